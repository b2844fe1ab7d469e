"""NFS mounts by the client's counters: columns of all ages, mounts of one file system, whose view it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.catalog import faults
from clusterwatt.collectors import nfs
from clusterwatt.collectors.nfs import NfsCollector
from clusterwatt.config.model import NfsCollector as Settings
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.storage import NfsMount, NfsOperation
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock
from tests.faulty import refuse_open
from tests.machines import capture, machine, put


def collect(files: Files, settings: Settings | None = None) -> list[Reading]:
    return list(NfsCollector(files, settings or Settings()).collect())


def mounts(readings: list[Reading]) -> dict[str, NfsMount]:
    found = {r.mountpoint: r for r in readings if isinstance(r, NfsMount)}
    assert len(found) == sum(isinstance(r, NfsMount) for r in readings)
    return found


def operations(readings: list[Reading], mountpoint: str) -> dict[str, float]:
    """Number and seconds of each kind of operation, under `read` and `read_seconds`."""
    of_mount = [r for r in readings if isinstance(r, NfsOperation) and r.mountpoint == mountpoint]
    return {r.operation: r.operations for r in of_mount} | {
        f"{r.operation}_seconds": r.operation_seconds for r in of_mount
    }


def test_a_mount_in_full() -> None:
    readings = collect(machine("nfs-lustre"))
    assert mounts(readings)["/home"] == NfsMount(
        mountpoint="/home",
        read_bytes=4_194_304_000,  # with the server, not what programs got from the cache
        write_bytes=1_048_576_000,
        queue_seconds=(1500 + 700 + 10 + 5 + 40 + 0 + 3) / 1000,
        retransmissions=3 + 1,
        timeouts=3 + 1,
    )
    assert operations(readings, "/home") == pytest.approx(
        {
            "read": 2000,
            "read_seconds": 92.5,
            "write": 500 + 20,  # a COMMIT ends a write
            "write_seconds": (41_000 + 6010) / 1000,
            "metadata": 1 + 300 + 9000 + 60 + 700,
            "metadata_seconds": (1300 + 9900 + 31 + 560) / 1000,
        }
    )


def test_a_file_system_that_is_mounted_twice_counts_once() -> None:
    """/mnt/home2 is /home again: the kernel shows the same counters under both."""
    assert set(mounts(collect(machine("nfs-lustre")))) == {"/home", "/datasets"}


def test_a_mount_without_writes_reports_zero() -> None:
    readings = collect(machine("nfs-lustre"))
    assert mounts(readings)["/datasets"].write_bytes == 0
    assert operations(readings, "/datasets")["write"] == 0
    assert operations(readings, "/datasets")["write_seconds"] == 0


def test_machines_without_nfs_or_without_its_counters_have_none() -> None:
    assert collect(machine("cloud-vm")) == []
    assert collect(machine("h100-ib")) == []


BLOCK = (
    "device nas:/a mounted on {point} with fstype nfs4 statvers=1.1\n"
    "\tage:\t1\n"
    "\tbytes:\t1 2 3 4 {bytes} 7 8\n"
    "\tper-op statistics\n"
    "\t        READ: {read}\n"
)


def table(root: Path, *blocks: str, mountinfo: str = "", process: str = "1") -> Files:
    put(root, f"/proc/{process}/mountstats", "".join(blocks))
    put(root, f"/proc/{process}/mountinfo", mountinfo)
    return Files(root, FakeClock())


def test_mount_points_are_unescaped(tmp_path: Path) -> None:
    files = table(
        tmp_path,
        BLOCK.format(point=r"/my\040data", bytes="5 6", read="1 1 0 0 0 0 0 0"),
        mountinfo=r"40 28 0:60 / /my\040data rw - nfs4 nas:/a rw",
    )
    assert set(mounts(collect(files))) == {"/my data"}


@pytest.mark.parametrize(
    ("bytes_", "read"), [("x 6", "1 1 0 0 0 0 0 0"), ("5 6", "1 1 0"), ("5", ""), ("5 6", "a b c d e f g h")]
)
def test_a_mount_whose_lines_are_broken_costs_itself_only(tmp_path: Path, bytes_: str, read: str) -> None:
    files = table(
        tmp_path,
        BLOCK.format(point="/a", bytes=bytes_, read=read).replace(" 7 8", ""),
        BLOCK.format(point="/b", bytes="5 6", read="1 1 0 0 0 0 0 0"),
        mountinfo="40 28 0:60 / /a rw - nfs4 nas:/a rw\n41 28 0:61 / /b rw - nfs4 nas:/a rw\n",
    )
    readings = collect(files)
    assert set(mounts(readings)) == {"/b"}
    assert [(r.item, r.reason) for r in readings if isinstance(r, Failure)] == [("/a", "format")]


def test_mounts_of_single_pods_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    point = "/var/lib/kubelet/pods/7a/volumes/kubernetes.io~nfs/pv"
    files = table(
        tmp_path,
        BLOCK.format(point=point, bytes="5 6", read="1 1 0 0 0 0 0 0"),
        mountinfo=f"40 28 0:60 / {point} rw - nfs4 nas:/a rw",
    )
    assert collect(files) == []
    assert set(mounts(collect(files, Settings(exclude_mountpoints="")))) == {point}


def test_without_the_right_to_read_another_process_our_own_view_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = BLOCK.format(point=f"{tmp_path}/data", bytes="5 6", read="1 1 0 0 0 0 0 0")
    mountinfo = f"1 0 8:1 / {tmp_path} rw - ext4 a rw\n2 1 0:60 / {tmp_path}/data rw - nfs4 nas:/a rw\n"
    files = table(tmp_path, block, mountinfo=mountinfo, process="self")
    put(tmp_path, "/proc/1/mountstats", "")
    refuse_open(monkeypatch, "/proc/1/")
    assert set(mounts(collect(files))) == {"/data"}


def test_capture_of_telegraf(tmp_path: Path) -> None:
    """NFS 3 and 4, with eight numbers for each operation; indented by blanks and by tabs."""
    put(tmp_path, "/proc/1/mountstats", capture("procfs/telegraf-nfs/mountstats").read_bytes())
    points = "".join(f"4{n} 28 0:6{n} / /{name} rw - nfs x rw\n" for n, name in enumerate("ABCD"))
    put(tmp_path, "/proc/1/mountinfo", points)
    readings = collect(Files(tmp_path, FakeClock()))
    found = mounts(readings)
    assert set(found) == {"/A", "/B", "/C", "/D"}
    # /A holds a ladder: operation k has k00, k01 ... k07, for k from 1 (GETATTR) to 21 (COMMIT).
    ladder = range(100, 2200, 100)
    assert found["/A"].read_bytes == 1_134_399_088_816
    assert found["/A"].write_bytes == 407_107_155_723
    assert found["/A"].queue_seconds == sum(k + 5 for k in ladder) / 1000
    assert found["/A"].retransmissions == len(ladder)
    assert found["/A"].timeouts == sum(k + 2 for k in ladder)
    assert operations(readings, "/A") == pytest.approx(
        {
            "read": 600,
            "read_seconds": 0.607,
            "write": 700 + 2100,
            "write_seconds": (707 + 2107) / 1000,
            "metadata": sum(ladder) - 600 - 700 - 2100,
            "metadata_seconds": (sum(k + 7 for k in ladder) - 607 - 707 - 2107) / 1000,
        }
    )
    assert operations(readings, "/B")["read"] == 9797
    assert operations(readings, "/B")["read_seconds"] == 8.2
    assert found["/C"].retransmissions == 1  # NULL: sent twice, completed once


def test_captures_of_prometheus(tmp_path: Path) -> None:
    put(tmp_path, "/proc/1/mountstats", capture("procfs/node-exporter/10/mountstats").read_bytes())
    put(
        tmp_path,
        "/proc/1/mountinfo",
        "1 0 0:5 / /mnt/nfs/test rw - nfs4 x rw\n2 0 0:6 / /mnt/nfs/test-dupe rw - nfs x rw\n",
    )
    assert set(mounts(collect(Files(tmp_path, FakeClock())))) == {"/mnt/nfs/test", "/mnt/nfs/test-dupe"}


def test_names_keep_the_rules() -> None:
    assert list(faults(nfs.METRICS)) == []
