"""Health logs of NVMe disks: the bytes of the specification, drives that refuse, users who may not ask."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from clusterwatt.collectors import nvme
from clusterwatt.collectors.nvme import NvmeCollector
from clusterwatt.readings.base import Failure
from clusterwatt.readings.storage import DiskHealth
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock


def log(*, kelvin: int = 313, spare: int = 100, used: int = 3, media_errors: int = 0) -> bytes:
    """A health log as a drive writes it."""
    page = bytearray(512)
    page[1:3] = kelvin.to_bytes(2, "little")
    page[3], page[4], page[5] = spare, 10, used
    page[160:176] = media_errors.to_bytes(16, "little")
    return bytes(page)


class Drives:
    """Controllers below a root, and what each answers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.answers: dict[str, bytes | int] = {}

    def add(self, controller: str, answer: bytes | int, *namespaces: str) -> None:
        for name in namespaces:
            (self.root / "sys/class/nvme" / controller / name).mkdir(parents=True)
        self.answers[f"{self.root}/dev/{controller}"] = answer

    def read(self, path: str) -> bytes:
        answer = self.answers[path]
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer), path)
        return answer

    def collect(self) -> list[object]:
        return list(NvmeCollector(Files(self.root, FakeClock()), self.read).collect())


@pytest.fixture
def drives(tmp_path: Path) -> Drives:
    return Drives(tmp_path)


def test_a_log_becomes_ratios_errors_and_celsius(drives: Drives) -> None:
    drives.add("nvme0", log(kelvin=310, spare=97, used=104, media_errors=2**64 + 5), "nvme0n1", "hwmon3")
    assert drives.collect() == [DiskHealth("nvme0n1", 1.04, 0.97, float(2**64 + 5), 37.0)]


def test_a_temperature_of_zero_kelvin_is_none(drives: Drives) -> None:
    drives.add("nvme0", log(kelvin=0), "nvme0n1")
    (health,) = drives.collect()
    assert isinstance(health, DiskHealth)
    assert health.temperature_celsius is None


def test_a_disk_on_two_paths_is_told_once_under_its_own_name(drives: Drives) -> None:
    drives.add("nvme0", log(), "nvme0c0n1")
    drives.add("nvme1", log(), "nvme0c1n1")
    assert [health.device for health in drives.collect() if isinstance(health, DiskHealth)] == ["nvme0n1"]


def test_who_may_not_ask_gets_nothing_and_no_failure(drives: Drives) -> None:
    drives.add("nvme0", errno.EACCES, "nvme0n1")
    drives.add("nvme1", errno.EPERM, "nvme1n1")
    assert drives.collect() == []


def test_a_drive_that_fails_costs_itself_only(drives: Drives) -> None:
    drives.add("nvme0", errno.EIO, "nvme0n1")
    drives.add("nvme1", bytes(512), "nvme1n1")
    drives.add("nvme2", log(), "nvme2n1")
    said = drives.collect()
    assert [(item.item, item.reason) for item in said if isinstance(item, Failure)] == [
        ("nvme0", "io_error"),
        ("nvme1", "format"),
    ]
    assert [item.device for item in said if isinstance(item, DiskHealth)] == ["nvme2n1"]


def test_no_nvme_is_nothing(drives: Drives) -> None:
    assert drives.collect() == []


def test_the_command_is_that_of_the_kernel_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bytes]] = []

    def ioctl(_: int, request: int, command: bytearray) -> int:
        asked.append((request, bytes(command)))
        return 0x4002  # invalid field in command, do not retry

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    (tmp_path / "nvme0").write_bytes(b"")
    with pytest.raises(OSError, match="refused with status 0x4002"):
        nvme.read_health_log(str(tmp_path / "nvme0"))
    ((request, command),) = asked
    # _IOWR('N', 0x41, struct nvme_passthru_cmd): direction 3, size in bits 16 to 29
    assert request == 3 << 30 | len(command) << 16 | ord("N") << 8 | 0x41
    assert command[0] == 0x02
    assert command[4:8] == b"\xff" * 4
    assert int.from_bytes(command[36:40], "little") == 512
    assert int.from_bytes(command[40:44], "little") == 0x007F0002
