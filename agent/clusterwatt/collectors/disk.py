"""Disks, from /proc/diskstats (Documentation/admin-guide/iostats.rst) and /sys/block.

Only whole physical disks: partitions, RAID arrays, logical volumes and loop devices carry the same bytes
once more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterwatt.catalog import FULL, STANDARD, Table
from clusterwatt.collectors import md
from clusterwatt.config.model import DiskCollector as Settings
from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.storage import Disk, DiskInfo
from clusterwatt.sysfs import Files

SECTOR_BYTES = 512  # what diskstats counts in, whatever the block size of the device
MILLISECONDS = 1000.0

# Statistics after major, minor and name: 11 always, 4 of discards since Linux 4.18, 2 of flushes since 5.5.
COUNTS = 11
COUNTS_WITH_FLUSHES = 17

# One path to an NVMe namespace that is reached through several controllers: nvme<subsystem>c<controller>n1.
NVME_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")
# They stand behind a bus like disks, and are none: optical and floppy drives, boot areas of an eMMC.
NO_DISK = re.compile(r"(sr|fd)\d+|mmcblk\d+(boot\d+|rpmb|gp\d+)")
# Names that cannot be whole physical disks, for hosts without sysfs.
NO_WHOLE_DISK = re.compile(
    r"(z?ram|loop|md|dm-|nbd|zd|drbd|rbd)\d+.*|([hsv]|xv)d[a-z]+\d+|nvme\d+n\d+p\d+|mmcblk\d+p\d+"
)

# What the device's path through the buses tells of its transport; the first that is found counts.
TRANSPORTS = (
    ("nvme", re.compile(r"/nvme")),
    ("virtio", re.compile(r"/virtio\d+/")),
    ("usb", re.compile(r"/usb\d+/")),
    ("sata", re.compile(r"/ata\d+/")),
    ("sas", re.compile(r"/end_device-")),
    ("fc", re.compile(r"/rport-")),
    ("iscsi", re.compile(r"/session\d+/")),
    ("mmc", re.compile(r"/mmc_host/")),
    ("xen", re.compile(r"/vbd-")),
    ("scsi", re.compile(r"/host\d+/")),
)

DISK = Table(Disk, labels=("device",))
INFO = Table(DiskInfo, labels=("device", "model", "transport"))
METRICS = (
    DISK.counter("disk_read_bytes_total", "Bytes read from the disk.", "read_bytes"),
    DISK.counter("disk_written_bytes_total", "Bytes written to the disk.", "written_bytes"),
    DISK.counter("disk_reads_completed_total", "Reads completed.", "reads_completed", level=STANDARD),
    DISK.counter("disk_writes_completed_total", "Writes completed.", "writes_completed", level=STANDARD),
    DISK.counter(
        "disk_read_seconds_total", "Seconds that reads took, added up.", "read_seconds", level=STANDARD
    ),
    DISK.counter(
        "disk_write_seconds_total", "Seconds that writes took, added up.", "write_seconds", level=STANDARD
    ),
    DISK.counter(
        "disk_busy_seconds_total",
        "Seconds in which the disk had work. A disk that works in parallel is not full at 1 per second.",
        "busy_seconds",
        level=STANDARD,
    ),
    DISK.counter(
        "disk_queue_seconds_total",
        "Seconds that requests spent in the disk's queue, added up; its rate is the mean queue length.",
        "queue_seconds",
        level=STANDARD,
    ),
    DISK.gauge("disk_in_flight", "Requests at work now.", "in_flight", level=FULL),
    DISK.counter("disk_flushes_completed_total", "Cache flushes completed.", "flushes_completed", level=FULL),
    DISK.counter(
        "disk_flush_seconds_total", "Seconds that cache flushes took, added up.", "flush_seconds", level=FULL
    ),
    INFO.info("disk_info", "Model and transport of a disk.", level=STANDARD),
)


class DiskCollector:
    """Reads the table of all block devices and passes on the whole physical ones, and the RAID arrays."""

    name = "disk"

    def __init__(self, files: Files, settings: Settings) -> None:
        self._files = files
        self._excluded = re.compile(settings.exclude) if settings.exclude else None
        self._listing: tuple[str, ...] | None = None
        self._known: dict[str, DiskInfo | None] = {}  # by name; None: not a disk, or an excluded one

    def collect(self) -> Iterator[Reading]:
        """Two readings for each disk, one for each RAID array."""
        yield from self._disks()
        yield from md.arrays(self._files)

    def _disks(self) -> Iterator[Reading]:
        text = self._files.text("/proc/diskstats")
        if text is None:
            return
        listing = self._files.names("/sys/block")
        if listing is not self._listing:  # listed anew: disks may have come, or other ones under old names
            self._listing = listing
            self._known.clear()
        disks: dict[str, tuple[DiskInfo, list[int]]] = {}
        paths: dict[str, list[list[int]]] = {}
        for line in text.splitlines():
            columns = line.split()
            if len(columns) < 3 + COUNTS:
                continue
            name = columns[2]
            path = NVME_PATH.fullmatch(name)
            if path is None and name not in self._known:
                yield from self._learn(name)
            identity = self._known.get(name)
            if path is None and identity is None:
                continue
            try:
                counts = [int(column) for column in columns[3:]]
            except ValueError:
                yield Failure(item=name, reason="format", detail=line)
                continue
            if identity is not None:
                disks[name] = identity, counts
            elif path is not None:
                paths.setdefault(path[1] + path[2], []).append(counts)
        for name, (identity, counts) in disks.items():
            # Up to Linux 6.4 requests are counted on the paths and the namespace itself stays at zero
            # (Atoptool/atop#157). From then on it counts too, and its paths would double it.
            if name in paths and not any(counts[:COUNTS]):
                yield disk(name, [sum(column) for column in zip(*paths[name], strict=False)])
            else:
                yield disk(name, counts)
            yield identity

    def _learn(self, name: str) -> Iterator[Failure]:
        """Find out what a block device is; one that does not tell its model keeps its statistics."""
        self._known[name] = None
        excluded = self._excluded is not None and self._excluded.fullmatch(name)
        if excluded or NO_DISK.fullmatch(name) or not self._is_whole_and_physical(name):
            return
        model = link = None
        try:
            link = self._files.link(f"/sys/block/{name}")
            device = f"/sys/block/{name}/device"
            model = self._files.text(f"{device}/model") or self._files.text(f"{device}/name")
        except OSError as error:
            yield failure(name, error)
        self._known[name] = DiskInfo(device=name, model=model or "", transport=transport(link or ""))

    def _is_whole_and_physical(self, name: str) -> bool:
        """A bus device stands behind a physical disk; partitions are not listed in /sys/block."""
        if self._listing:
            return name in self._listing and self._files.exists(f"/sys/block/{name}/device")
        return not NO_WHOLE_DISK.fullmatch(name)


def disk(name: str, counts: list[int]) -> Disk:
    """The reading of one line of diskstats, whose columns are numbered in iostats.rst."""
    flushes = counts[COUNTS_WITH_FLUSHES - 2 : COUNTS_WITH_FLUSHES]
    return Disk(
        device=name,
        reads_completed=float(counts[0]),
        read_bytes=float(counts[2] * SECTOR_BYTES),
        read_seconds=counts[3] / MILLISECONDS,
        writes_completed=float(counts[4]),
        written_bytes=float(counts[6] * SECTOR_BYTES),
        write_seconds=counts[7] / MILLISECONDS,
        in_flight=float(counts[8]),
        busy_seconds=counts[9] / MILLISECONDS,
        queue_seconds=counts[10] / MILLISECONDS,
        flushes_completed=float(flushes[0]) if len(flushes) == 2 else None,
        flush_seconds=flushes[1] / MILLISECONDS if len(flushes) == 2 else None,
    )


def transport(link: str) -> str:
    """How a disk is attached, by where /sys/block/NAME points; empty when that does not tell."""
    return next((name for name, mark in TRANSPORTS if mark.search(link)), "")
