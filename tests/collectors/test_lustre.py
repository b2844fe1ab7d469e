"""Lustre mounts: three places for the counters, clients with and without times."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from clusterwatt.catalog import faults
from clusterwatt.collectors import lustre
from clusterwatt.collectors.lustre import LustreCollector
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.storage import LustreMount, LustreOperation
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock
from tests.machines import capture, machine, put


def collect(files: Files) -> list[Reading]:
    return list(LustreCollector(files).collect())


def operations(readings: list[Reading]) -> dict[str, float]:
    return {r.operation: r.operations for r in readings if isinstance(r, LustreOperation)}


def seconds(readings: list[Reading]) -> dict[str, float | None]:
    return {r.operation: r.operation_seconds for r in readings if isinstance(r, LustreOperation)}


UNTIMED = {"read": None, "write": None, "metadata": None}


def mounts(readings: list[Reading]) -> list[LustreMount]:
    return [reading for reading in readings if isinstance(reading, LustreMount)]


def test_a_client_that_measures_time() -> None:
    readings = collect(machine("nfs-lustre"))
    assert mounts(readings) == [
        LustreMount(mountpoint="/lustre", read_bytes=16_777_216_000, write_bytes=1_048_576_000)
    ]
    assert operations(readings) == {"read": 4000, "write": 1000 + 10, "metadata": 250 + 240 + 900}
    assert seconds(readings) == pytest.approx(
        {"read": 8.0, "write": 3.0 + 0.5, "metadata": 0.125 + 0.048 + 0.009}
    )


def test_an_old_client_counts_without_times_and_what_has_not_happened_is_zero() -> None:
    readings = collect(machine("efa"))
    assert mounts(readings) == [LustreMount(mountpoint="/fsx", read_bytes=8_392_704, write_bytes=0)]
    assert operations(readings) == {"read": 3, "write": 0, "metadata": 136 + 96 + 41}
    assert seconds(readings) == UNTIMED


@pytest.mark.parametrize(
    "root", ["/proc/fs/lustre/llite", "/sys/kernel/debug/lustre/llite", "/sys/fs/lustre/llite"]
)
def test_each_place_is_found(tmp_path: Path, root: str) -> None:
    put(tmp_path, "/proc/1/mountinfo", "1 0 0:5 / /l rw - lustre 10.0.0.1@tcp:/fs-1/folder rw\n")
    put(tmp_path, f"{root}/fs-1-ffff00/stats", "read_bytes 1 samples [bytes] 5 5 5\n")
    assert mounts(collect(Files(tmp_path, FakeClock()))) == [
        LustreMount(mountpoint="/l", read_bytes=5, write_bytes=0)
    ]


def test_mounts_of_one_file_system_are_added_up_under_the_first(tmp_path: Path) -> None:
    put(
        tmp_path,
        "/proc/1/mountinfo",
        "1 0 0:5 / /l rw - lustre 10.0.0.1@tcp:/fs rw\n2 0 0:6 / /m rw - lustre 10.0.0.1@tcp:/fs rw\n"
        "3 0 0:7 / /n rw - lustre 10.0.0.1@tcp:/other rw\n",
    )
    for instance, number in (("fs-ffff01", 3), ("fs-ffff02", 4), ("other-ffff03", 9)):
        put(
            tmp_path,
            f"/proc/fs/lustre/llite/{instance}/stats",
            f"write_bytes 1 samples [bytes] {number} {number} {number}\n",
        )
    found = {
        reading.mountpoint: reading.write_bytes for reading in mounts(collect(Files(tmp_path, FakeClock())))
    }
    assert found == {"/l": 7, "/n": 9}


def test_a_machine_without_lustre_is_not_asked_for_its_debug_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(path: str) -> list[str]:
        raise AssertionError(path)

    monkeypatch.setattr(os, "listdir", listed)
    assert collect(machine("cloud-vm")) == []


def test_counters_that_only_root_may_read_are_absent_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        if "/debug/" in path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(os, "listdir", refuse)
    readings = collect(machine("nfs-lustre"))
    assert [(r.item, r.reason) for r in readings if isinstance(r, Failure)] == [
        ("/sys/kernel/debug/lustre/llite", "permission")
    ]
    assert mounts(readings) == []


def test_capture_of_a_client(tmp_path: Path) -> None:
    put(tmp_path, "/proc/1/mountinfo", "1 0 0:5 / /lustrefs rw - lustre 10.0.0.1@o2ib:/lustrefs rw\n")
    (tmp_path / "proc/fs").symlink_to(capture("procfs/lustre-client/fs"))
    readings = collect(Files(tmp_path, FakeClock()))
    assert mounts(readings) == [
        LustreMount(mountpoint="/lustrefs", read_bytes=4_194_304, write_bytes=93_813_797_294_080)
    ]
    assert operations(readings) == {
        "read": 1,
        "write": 89_467_810,
        # open, close, readdir, truncate, getattr, getxattr, removexattr
        "metadata": 136 + 96 + 12 + 134 + 41 + 85 + 134,
    }
    assert seconds(readings) == UNTIMED


def test_names_keep_the_rules() -> None:
    assert list(faults(lustre.METRICS)) == []
