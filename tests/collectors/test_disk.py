"""Disks: columns that come with kernels, whole physical devices only, what they are."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from clusterwatt.catalog import faults
from clusterwatt.collectors import disk, md
from clusterwatt.collectors.disk import DiskCollector, transport
from clusterwatt.config.model import DiskCollector as Settings
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.storage import Disk, DiskInfo, MdArray
from clusterwatt.sysfs import LISTING_SECONDS, Files
from tests.clocks import FakeClock
from tests.faulty import refuse_open
from tests.machines import capture, machine, put


def collect(files: Files, exclude: str = "") -> list[Reading]:
    return list(DiskCollector(files, Settings(exclude=exclude)).collect())


def disks(readings: list[Reading]) -> dict[str, Disk]:
    return {reading.device: reading for reading in readings if isinstance(reading, Disk)}


def infos(readings: list[Reading]) -> dict[str, tuple[str, str]]:
    return {r.device: (r.model, r.transport) for r in readings if isinstance(r, DiskInfo)}


def arrays(readings: list[Reading]) -> dict[str, float]:
    return {reading.array: reading.degraded for reading in readings if isinstance(reading, MdArray)}


def attach(root: Path, name: str, *, behind_a_bus: bool = True) -> None:
    """A device of /sys/block."""
    put(root, f"/sys/block/{name}/size", "1000\n")
    if behind_a_bus:
        put(root, f"/sys/block/{name}/device/uevent", "")


SDA = "8 0 sda 100 0 4000 50 60 0 8192 70 0 90 120"


@pytest.mark.parametrize(
    ("more", "flushes", "flush_seconds"),
    [("", None, None), (" 0 0 0 0", None, None), (" 0 0 0 0 5 6", 5, 0.006), (" 0 0 0 0 5 6 7 8", 5, 0.006)],
    ids=["14 columns", "18", "20", "22"],
)
def test_g20_longer_lines_of_newer_kernels(
    tmp_path: Path, more: str, flushes: float | None, flush_seconds: float | None
) -> None:
    put(tmp_path, "/proc/diskstats", f"   {SDA}{more}\n   8 16 sdb 1 0 8 0 1 0 8 0 0 1 1 0\n")
    attach(tmp_path, "sda")
    attach(tmp_path, "sdb")
    found = disks(collect(Files(tmp_path, FakeClock())))
    assert found["sda"] == Disk(
        device="sda",
        read_bytes=2_048_000,
        written_bytes=4_194_304,
        reads_completed=100,
        writes_completed=60,
        read_seconds=0.05,
        write_seconds=0.07,
        busy_seconds=0.09,
        queue_seconds=0.12,
        in_flight=0,
        flushes_completed=flushes,
        flush_seconds=flush_seconds,
    )
    assert (found["sdb"].read_bytes, found["sdb"].flushes_completed) == (4096, None)


def test_g20_a_line_that_is_too_short_or_no_numbers_costs_itself_only(tmp_path: Path) -> None:
    put(tmp_path, "/proc/diskstats", f"8 1 sda1 1 2 3 4\n8 16 sdb x 0 8 0 1 0 8 0 0 1 1\n\n{SDA}\n")
    attach(tmp_path, "sda")
    attach(tmp_path, "sdb")
    readings = collect(Files(tmp_path, FakeClock()))
    assert list(disks(readings)) == ["sda"]
    assert [(r.item, r.reason) for r in readings if isinstance(r, Failure)] == [("sdb", "format")]


G21 = """259 0 nvme0n1 10 0 8000 1 10 0 4000 1 0 1 1
259 1 nvme0n1p1 4 0 3000 1 4 0 1500 1 0 1 1
259 2 nvme0n1p2 6 0 5000 1 6 0 2500 1 0 1 1
179 0 mmcblk0 10 0 8000 1 10 0 4000 1 0 1 1
179 8 mmcblk0boot0 10 0 8000 1 10 0 4000 1 0 1 1
179 1 mmcblk0p1 10 0 8000 1 10 0 4000 1 0 1 1
9 127 md127 10 0 8000 1 10 0 4000 1 0 1 1
253 0 dm-0 10 0 8000 1 10 0 4000 1 0 1 1
7 0 loop0 10 0 8000 1 10 0 4000 1 0 1 1
252 0 zram0 10 0 8000 1 10 0 4000 1 0 1 1
11 0 sr0 10 0 8000 1 10 0 4000 1 0 1 1
"""


@pytest.mark.parametrize("with_sysfs", [True, False])
def test_g21_bytes_are_counted_once_and_in_units_of_512(tmp_path: Path, with_sysfs: bool) -> None:
    put(tmp_path, "/proc/diskstats", G21)
    if with_sysfs:
        for name in ("nvme0n1", "mmcblk0", "mmcblk0boot0", "sr0"):
            attach(tmp_path, name)
        for name in ("md127", "dm-0", "loop0", "zram0"):
            attach(tmp_path, name, behind_a_bus=False)
        put(tmp_path, "/sys/block/nvme0n1/queue/logical_block_size", "4096\n")
        put(tmp_path, "/sys/class/block/nvme0n1p1/partition", "1\n")
    found = disks(collect(Files(tmp_path, FakeClock())))
    assert set(found) == {"nvme0n1", "mmcblk0"}
    assert found["nvme0n1"].read_bytes == 4_096_000
    assert found["nvme0n1"].written_bytes == 2_048_000


def test_a_whole_disk_whose_name_looks_like_a_partition_counts(tmp_path: Path) -> None:
    """Old Xen guests have /dev/xvda1 without /dev/xvda: structure decides, not the name."""
    put(tmp_path, "/proc/diskstats", SDA.replace("sda", "xvda1"))
    attach(tmp_path, "xvda1")
    assert list(disks(collect(Files(tmp_path, FakeClock())))) == ["xvda1"]


PATHS = """0 0 nvme0c0n1 30 0 800 1 10 0 400 5 1 1 1 0 0 0 0 2 4
0 0 nvme0c1n1 10 0 200 1 10 0 100 5 0 1 1 0 0 0 0 1 2
259 1 nvme0n1 {head}
"""


@pytest.mark.parametrize(
    ("head", "reads", "read_bytes", "flushes"),
    [("0 " * 17, 40, 512_000, 3), ("41 0 1100 2 20 0 500 9 1 1 1 0 0 0 0 3 6", 41, 563_200, 3)],
    ids=["counted on the paths (to 6.4)", "counted on the namespace too"],
)
def test_nvme_paths_are_never_disks_but_count_for_a_head_that_does_not(
    tmp_path: Path, head: str, reads: float, read_bytes: float, flushes: float
) -> None:
    put(tmp_path, "/proc/diskstats", PATHS.format(head=head))
    for name in ("nvme0n1", "nvme0c0n1", "nvme0c1n1"):
        attach(tmp_path, name)
    found = disks(collect(Files(tmp_path, FakeClock())))
    assert list(found) == ["nvme0n1"]
    nvme = found["nvme0n1"]
    assert (nvme.reads_completed, nvme.read_bytes, nvme.flushes_completed) == (reads, read_bytes, flushes)


def test_an_excluded_disk_is_left_out() -> None:
    assert set(disks(collect(machine("roce-bond"), exclude=r"sd[ab]"))) == {"nvme0n1"}
    assert set(disks(collect(machine("roce-bond"), exclude=r"sd"))) == {"sda", "sdb", "nvme0n1"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "h100-ib",
            {
                "nvme0n1": ("SAMSUNG MZ1L21T9HCLS-00A07", "nvme"),
                "nvme1n1": ("SAMSUNG MZ1L21T9HCLS-00A07", "nvme"),
                "nvme2n1": ("SAMSUNG MZWLJ3T8HBLS-00007", "nvme"),
                "nvme3n1": ("SAMSUNG MZWLJ3T8HBLS-00007", "nvme"),
            },
        ),
        (
            "roce-bond",
            {
                "sda": ("MTFDDAK480TDS", "sata"),
                "sdb": ("MTFDDAK480TDS", "sata"),
                "nvme0n1": ("KIOXIA KCD81RUG7T68", "nvme"),
            },
        ),
        ("cloud-vm", {"vda": ("", "virtio"), "vdb": ("", "virtio")}),
        ("broken-ports", {"sdc": ("ST2400MM0129", "sas"), "sdd": ("ST2400MM0129", "sas")}),
    ],
)
def test_disks_of_a_machine_say_what_they_are(name: str, expected: dict[str, tuple[str, str]]) -> None:
    readings = collect(machine(name))
    assert infos(readings) == expected
    assert set(disks(readings)) == set(expected)
    assert not [reading for reading in readings if isinstance(reading, Failure)]


@pytest.mark.parametrize(
    ("link", "name"),
    [
        ("../devices/pci0000:00/0000:00:1d.0/0000:01:00.0/nvme/nvme0/nvme0n1", "nvme"),
        ("../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1", "nvme"),
        ("../devices/pci0000:00/0000:00:02.0/virtio1/block/vda", "virtio"),
        ("../devices/pci0000:00/0000:00:02.0/virtio0/host2/target2:0:1/2:0:1:0/block/sda", "virtio"),
        ("../devices/pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdb", "usb"),
        ("../devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda", "sata"),
        (
            "../devices/pci0000:00/0000:02:00.0/host0/port-0:1/end_device-0:1/target0:0:1/0:0:1:0/block/sdc",
            "sas",
        ),
        ("../devices/platform/host3/session1/target3:0:0/3:0:0:1/block/sdd", "iscsi"),
        ("../devices/pci0000:00/0000:04:00.0/host1/rport-1:0-2/target1:0:0/1:0:0:0/block/sde", "fc"),
        ("../devices/platform/emmc2bus/fe340000.mmc/mmc_host/mmc0/mmc0:0001/block/mmcblk0", "mmc"),
        ("../devices/vbd-51712/block/xvda", "xen"),
        ("../devices/LNXSYSTM:00/VMBUS:01/00000000-0000/host0/target0:0:0/0:0:0:0/block/sda", "scsi"),
        ("../devices/virtual/block/loop0", ""),
    ],
)
def test_the_path_through_the_buses_tells_the_transport(link: str, name: str) -> None:
    assert transport(link) == name


def test_a_new_disk_under_an_old_name_is_seen(tmp_path: Path) -> None:
    clock = FakeClock()
    put(tmp_path, "/proc/diskstats", SDA)
    attach(tmp_path, "sda")
    model = put(tmp_path, "/sys/block/sda/device/model", "old\n")
    collector = DiskCollector(Files(tmp_path, clock), Settings())
    assert infos(list(collector.collect()))["sda"][0] == "old"
    model.write_text("new\n")
    clock.advance(LISTING_SECONDS)
    assert infos(list(collector.collect()))["sda"][0] == "new"


def test_a_disk_that_is_pulled_leaves(tmp_path: Path) -> None:
    clock = FakeClock()
    table = put(tmp_path, "/proc/diskstats", f"{SDA}\n{SDA.replace('sda', 'sdb')}\n")
    attach(tmp_path, "sda")
    attach(tmp_path, "sdb")
    collector = DiskCollector(Files(tmp_path, clock), Settings())
    assert set(disks(list(collector.collect()))) == {"sda", "sdb"}
    table.write_text(f"{SDA}\n")
    assert set(disks(list(collector.collect()))) == {"sda"}


def test_a_sick_disk_keeps_its_statistics_and_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "/proc/diskstats", f"{SDA}\n{SDA.replace('sda', 'sdb')}\n")
    attach(tmp_path, "sda")
    attach(tmp_path, "sdb")
    put(tmp_path, "/sys/block/sda/device/model", "sick\n")
    put(tmp_path, "/sys/block/sdb/device/model", "well\n")
    refuse_open(monkeypatch, "sda/device/model", errno.EIO)
    readings = collect(Files(tmp_path, FakeClock()))
    assert set(disks(readings)) == {"sda", "sdb"}
    assert infos(readings) == {"sda": ("", ""), "sdb": ("well", "")}
    assert [(r.item, r.reason) for r in readings if isinstance(r, Failure)] == [("sda", "io_error")]


def test_without_diskstats_there_are_no_disks(tmp_path: Path) -> None:
    assert collect(Files(tmp_path, FakeClock())) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h100-ib", {"md0": 0, "md1": 0}),
        ("roce-bond", {"md127": 1}),
        ("broken-ports", {"md5": 2}),  # two of three members, and the empty container md126 is none
        ("cloud-vm", {}),
    ],
)
def test_arrays_tell_how_many_members_are_missing(name: str, expected: dict[str, float]) -> None:
    assert arrays(collect(machine(name))) == expected


def test_an_array_that_cannot_be_read_costs_itself_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "/sys/block/md0/md/degraded", "0\n")
    put(tmp_path, "/sys/block/md1/md/degraded", "1\n")
    refuse_open(monkeypatch, "md0")
    readings = list(md.arrays(Files(tmp_path, FakeClock())))
    assert arrays(readings) == {"md1": 1}
    assert [(r.item, r.reason) for r in readings if isinstance(r, Failure)] == [("md0", "permission")]


def test_capture_of_procfs_lib(tmp_path: Path) -> None:
    """Lines of 14, 18 and 20 columns in one file, links of sysfs lost: names decide."""
    put(tmp_path, "/proc/diskstats", capture("procfs/procfs-lib/diskstats").read_bytes())
    found = disks(collect(Files(tmp_path, FakeClock())))
    assert set(found) == {"sda", "sdb", "sdc", "vda", "mmcblk0", "nvme0n1"}
    assert found["sda"].read_bytes == 1_003_346_126 * 512
    assert found["sdb"].written_bytes == 1_972_905 * 512
    assert found["sdb"].flushes_completed is None
    assert (found["sdc"].flushes_completed, found["sdc"].flush_seconds) == (127, 0.182)
    assert found["vda"].queue_seconds == 2_077_872.228
    assert found["nvme0n1"].busy_seconds == 222.766


def test_capture_of_md_arrays(tmp_path: Path) -> None:
    """md0 is a raid0 without `degraded`, md6 a raid6 that lacks a member."""
    (tmp_path / "sys").symlink_to(capture("sysfs/node-exporter"))
    assert arrays(list(md.arrays(Files(tmp_path, FakeClock())))) == {
        "md0": 0,
        "md6": float((capture("sysfs/node-exporter") / "block/md6/md/degraded").read_text()),
    }


def test_names_keep_the_rules() -> None:
    assert list(faults((*disk.METRICS, *md.METRICS))) == []
