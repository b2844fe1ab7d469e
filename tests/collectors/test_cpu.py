"""CPU time: guests, kernels that take time back, CPUs that come and go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterwatt.catalog import faults
from clusterwatt.collectors import cpu
from clusterwatt.collectors.cpu import CpuCollector
from clusterwatt.readings.host import CpuCount, CpuTime
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock
from tests.machines import capture, machine, put

HERTZ = os.sysconf("SC_CLK_TCK")


def stat(root: Path, total: str, cpus: int = 2) -> None:
    lines = [f"cpu  {total}", *(f"cpu{n} {total}" for n in range(cpus)), "intr 5 cpu", "btime 1700000000"]
    put(root, "/proc/stat", "\n".join(lines) + "\n")


def seconds(collector: CpuCollector) -> dict[str, float]:
    return {r.mode: r.cpu_seconds for r in collector.collect() if isinstance(r, CpuTime)}


def count(collector: CpuCollector) -> list[float]:
    return [reading.cpus for reading in collector.collect() if isinstance(reading, CpuCount)]


def ticks(**modes: int) -> dict[str, float]:
    return {mode: number / HERTZ for mode, number in modes.items()}


@pytest.fixture
def collector(tmp_path: Path) -> CpuCollector:
    return CpuCollector(Files(tmp_path, FakeClock()))


def test_modes_are_in_seconds_and_guests_are_taken_out(tmp_path: Path, collector: CpuCollector) -> None:
    stat(tmp_path, "1000 200 300 4000 50 6 7 8 400 20")
    assert seconds(collector) == ticks(
        user=600, nice=180, system=300, idle=4000, iowait=50, irq=6, softirq=7, steal=8
    )


def test_an_old_kernel_has_fewer_columns(tmp_path: Path, collector: CpuCollector) -> None:
    stat(tmp_path, "1000 200 300 4000 50 6 7")
    assert set(seconds(collector)) == {"user", "nice", "system", "idle", "iowait", "irq", "softirq"}
    assert seconds(collector)["user"] == 1000 / HERTZ


@pytest.mark.parametrize("column", [3, 4], ids=["idle", "iowait"])
def test_time_taken_back_does_not_step_back_and_is_not_counted_twice(
    tmp_path: Path, collector: CpuCollector, column: int
) -> None:
    mode = ("idle", "iowait")[column - 3]
    seen = []
    for value in (100, 98, 99, 100, 103, 101, 104):
        numbers = [10, 0, 10, 50, 50, 0, 0, 0, 0, 0]
        numbers[column] = value
        stat(tmp_path, " ".join(map(str, numbers)))
        seen.append(seconds(collector)[mode] * HERTZ)
    assert seen == pytest.approx([100, 100, 100, 100, 103, 103, 104])


def test_cpus_going_off_and_on_line_neither_stop_nor_jump_the_counters(
    tmp_path: Path, collector: CpuCollector
) -> None:
    stat(tmp_path, "500 0 100 900000 10 0 0 0 0 0", cpus=4)
    assert seconds(collector)["idle"] == 900_000 / HERTZ
    stat(tmp_path, "510 0 100 600000 10 0 0 0 0 0", cpus=2)  # two CPUs off: their idle time is gone
    assert seconds(collector)["idle"] == 900_000 / HERTZ
    stat(tmp_path, "520 0 100 600150 10 0 0 0 0 0", cpus=2)
    assert seconds(collector)["idle"] == pytest.approx(900_150 / HERTZ)
    stat(tmp_path, "530 0 100 900400 10 0 0 0 0 0", cpus=4)  # and back
    assert seconds(collector)["idle"] == pytest.approx(900_150 / HERTZ)
    stat(tmp_path, "540 0 100 900700 10 0 0 0 0 0", cpus=4)
    assert seconds(collector)["idle"] == pytest.approx(900_450 / HERTZ)


def test_only_cpus_on_line_are_counted() -> None:
    """cpu5 is off line: the numbers of the others have a gap."""
    assert count(CpuCollector(machine("roce-bond"))) == [6]


def test_no_table_no_reading(collector: CpuCollector) -> None:
    assert list(collector.collect()) == []


def test_capture_of_node_exporter(tmp_path: Path) -> None:
    put(tmp_path, "/proc/stat", capture("procfs/node-exporter/stat").read_bytes())
    collector = CpuCollector(Files(tmp_path, FakeClock()))
    assert seconds(collector) == ticks(
        user=301_854 - 44,
        nice=612 - 36,
        system=111_922,
        idle=8_979_004,
        iowait=3552,
        irq=2,
        softirq=3944,
        steal=0,
    )
    assert count(collector) == [8]


def test_names_keep_the_rules() -> None:
    assert list(faults(cpu.METRICS)) == []
