"""Memory and its errors."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from clusterwatt.catalog import faults
from clusterwatt.collectors import memory
from clusterwatt.collectors.memory import MemoryCollector
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.host import Memory, MemoryErrors
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock
from tests.faulty import refuse_open
from tests.machines import capture, machine, put


def collect(files: Files) -> list[Reading]:
    return list(MemoryCollector(files).collect())


def memory_of(files: Files) -> Memory:
    (found,) = [reading for reading in collect(files) if isinstance(reading, Memory)]
    return found


def errors(readings: list[Reading]) -> dict[str, float]:
    return {reading.type: reading.errors for reading in readings if isinstance(reading, MemoryErrors)}


def test_values_are_in_bytes() -> None:
    assert memory_of(machine("roce-bond")) == Memory(
        total_bytes=1_056_561_152 * 1024,
        available_bytes=912_345_678 * 1024,
        free_bytes=12_345_678 * 1024,
        cached_bytes=712_345_678 * 1024,
        dirty_bytes=412 * 1024,
        swap_total_bytes=8_388_604 * 1024,
        swap_free_bytes=8_388_604 * 1024,
    )


def test_a_machine_without_swap_has_none_of_it() -> None:
    found = memory_of(machine("h100-ib"))
    assert (found.swap_total_bytes, found.swap_free_bytes) == (0, 0)


def test_an_old_kernel_does_not_offer_what_is_available() -> None:
    found = memory_of(machine("broken-ports"))
    assert found.available_bytes is None
    assert found.total_bytes == 263_856_788 * 1024


def test_a_line_without_a_blank_counts(tmp_path: Path) -> None:
    put(tmp_path, "/proc/meminfo", "MemTotal:123456789 kB\nMemFree:        10 kB\nDirty:7kB\n")
    found = memory_of(Files(tmp_path, FakeClock()))
    assert (found.total_bytes, found.free_bytes, found.dirty_bytes) == (123_456_789 * 1024, 10_240, 7168)


def test_errors_are_summed_over_the_controllers() -> None:
    assert errors(collect(machine("h100-ib"))) == {"corrected": 4, "uncorrected": 0}
    assert errors(collect(machine("roce-bond"))) == {"corrected": 12, "uncorrected": 1}


def test_a_virtual_machine_has_no_errors_not_zero() -> None:
    assert errors(collect(machine("cloud-vm"))) == {}


def test_a_controller_that_cannot_be_read_does_not_lower_the_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "/proc/meminfo", "MemTotal: 1 kB\n")
    for controller in ("mc0", "mc1"):
        put(tmp_path, f"/sys/devices/system/edac/mc/{controller}/ce_count", "5\n")
        put(tmp_path, f"/sys/devices/system/edac/mc/{controller}/ue_count", "1\n")
    refuse_open(monkeypatch, "mc1/ce_count", errno.EIO)
    readings = collect(Files(tmp_path, FakeClock()))
    assert errors(readings) == {"uncorrected": 2}
    assert [(r.item, r.reason) for r in readings if isinstance(r, Failure)] == [("mc1", "io_error")]


def test_captures(tmp_path: Path) -> None:
    put(tmp_path, "/proc/meminfo", capture("procfs/procfs-lib/meminfo").read_bytes())
    found = memory_of(Files(tmp_path, FakeClock()))
    assert found.total_bytes == 15_666_184 * 1024
    assert found.cached_bytes == 12_007_640 * 1024
    assert found.dirty_bytes == 768 * 1024


def test_capture_of_edac(tmp_path: Path) -> None:
    (tmp_path / "sys").symlink_to(capture("sysfs/node-exporter"))
    controllers = sorted((capture("sysfs/node-exporter") / "devices/system/edac/mc").glob("mc*"))
    assert errors(collect(Files(tmp_path, FakeClock()))) == {
        "corrected": sum(float((mc / "ce_count").read_text()) for mc in controllers),
        "uncorrected": sum(float((mc / "ue_count").read_text()) for mc in controllers),
    }


def test_names_keep_the_rules() -> None:
    assert list(faults(memory.METRICS)) == []
