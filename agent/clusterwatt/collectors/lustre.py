"""Lustre mounts, from the client's own counters in llite/FSNAME-INSTANCE/stats.

Specified by lustre/llite/lproc_llite.c and lprocfs_status.c of Lustre. A line is `name count samples [unit]`,
followed by `min max sum` and perhaps the sum of squares where the unit is one that adds up. Only what has
happened has a line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from clusterwatt.catalog import STANDARD, Table
from clusterwatt.collectors.mounts import Mount, mounts_of_host
from clusterwatt.failures import failure
from clusterwatt.readings.base import Reading
from clusterwatt.readings.storage import LustreMount, LustreOperation
from clusterwatt.sysfs import Files

# Before 2.12, since 2.12 (for root only; ovis-hpc/ldms#1648), and where other values of newer clients are.
ROOTS = ("/proc/fs/lustre/llite", "/sys/kernel/debug/lustre/llite", "/sys/fs/lustre/llite")
MICROSECONDS = 1e6
LINE = re.compile(r"^(\w+)\s+(\d+) samples \[(\w+)\](?: \d+ \d+ (\d+))?", re.MULTILINE)
# 10.0.0.1@o2ib:10.0.0.2@o2ib:/fsname/folder
FSNAME = re.compile(r".*:/([^/]+)")

METADATA = (
    "open",
    "close",
    "readdir",
    "setattr",
    "truncate",
    "getattr",
    "create",
    "link",
    "unlink",
    "symlink",
    "mkdir",
    "rmdir",
    "mknod",
    "rename",
    "statfs",
    "setxattr",
    "getxattr",
    "listxattr",
    "removexattr",
    "fallocate",
)

MOUNT = Table(LustreMount, labels=("mountpoint",))
OPERATION = Table(LustreOperation, labels=("mountpoint", "operation"))
METRICS = (
    MOUNT.counter("lustre_read_bytes_total", "Bytes that programs read.", "read_bytes", STANDARD),
    MOUNT.counter("lustre_write_bytes_total", "Bytes that programs wrote.", "write_bytes", STANDARD),
    OPERATION.counter("lustre_operations_total", "Calls of programs.", "operations", STANDARD),
    OPERATION.counter(
        "lustre_operation_seconds_total",
        "Seconds that calls took, added up; old clients do not measure it.",
        "operation_seconds",
        STANDARD,
    ),
)


class Counts(msgspec.Struct):
    """Calls, bytes and microseconds by the name of the counter; `timed`: this client measures time."""

    calls: Counter[str] = msgspec.field(default_factory=Counter)
    total_bytes: Counter[str] = msgspec.field(default_factory=Counter)
    microseconds: Counter[str] = msgspec.field(default_factory=Counter)
    timed: bool = False

    def add(self, stats: str) -> None:
        """Add the lines of one file."""
        for name, calls, unit, total in LINE.findall(stats):
            self.calls[name] += int(calls)
            if unit == "bytes":
                self.total_bytes[name] += int(total or 0)
            elif unit in {"usec", "usecs"}:
                self.timed = True
                self.microseconds[name] += int(total or 0)


class LustreCollector:
    """Reads the counters of each mounted Lustre file system, wherever this version keeps them."""

    name = "lustre"

    def __init__(self, files: Files) -> None:
        self._files = files

    def collect(self) -> Iterator[Reading]:
        """Four readings for each file system, under its first mount point.

        Of several mounts of one file system, the kernel does not say which counters are whose: their sum is
        reported.
        """
        first: dict[str, Mount] = {}
        for mount in mounts_of_host(self._files):
            source = FSNAME.match(mount.source)
            if mount.fstype == "lustre" and source is not None:
                first.setdefault(source[1], mount)
        if not first:
            return
        counts: dict[str, Counts] = {}
        for root in ROOTS:
            try:
                for instance in self._files.names(root):
                    stats = self._files.text(f"{root}/{instance}/stats")
                    if stats is not None:
                        counts.setdefault(instance.rpartition("-")[0], Counts()).add(stats)
            except OSError as error:
                yield failure(root, error)
            if counts:
                break
        for fsname, counted in counts.items():
            if fsname in first:
                yield from readings(first[fsname].label, counted)


def readings(mountpoint: str, counts: Counts) -> Iterator[Reading]:
    """The readings of one file system. What has not happened yet counts zero."""
    calls, times = counts.calls, counts.microseconds
    yield LustreMount(
        mountpoint=mountpoint,
        read_bytes=float(counts.total_bytes["read_bytes"]),
        write_bytes=float(counts.total_bytes["write_bytes"]),
    )
    for operation, number, microseconds in (
        ("read", calls["read"] or calls["read_bytes"], times["read"]),
        ("write", (calls["write"] or calls["write_bytes"]) + calls["fsync"], times["write"] + times["fsync"]),
        ("metadata", sum(calls[name] for name in METADATA), sum(times[name] for name in METADATA)),
    ):
        yield LustreOperation(
            mountpoint=mountpoint,
            operation=operation,
            operations=float(number),
            operation_seconds=microseconds / MICROSECONDS if counts.timed else None,
        )
