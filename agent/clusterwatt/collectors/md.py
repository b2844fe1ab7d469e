"""Software RAID arrays, from /sys/block/mdN/md (Documentation/admin-guide/md.rst)."""

from __future__ import annotations

from collections.abc import Iterator

from clusterwatt.catalog import STANDARD, Table
from clusterwatt.failures import failure
from clusterwatt.readings.base import Reading
from clusterwatt.readings.storage import MdArray
from clusterwatt.sysfs import Files

ARRAY = Table(MdArray, labels=("array",))
METRICS = (
    ARRAY.gauge(
        "md_degraded",
        "Members that a software RAID array misses; 0 = whole.",
        "degraded",
        level=STANDARD,
    ),
)


def arrays(files: Files) -> Iterator[Reading]:
    """One reading for each array that has members; the disk collector asks for them."""
    for name in files.names("/sys/block"):
        if not name.startswith("md"):
            continue
        try:
            degraded = missing_members(files, f"/sys/block/{name}/md")
        except OSError as error:
            yield failure(name, error)
            continue
        if degraded is not None:
            yield MdArray(array=name, degraded=float(degraded))


def missing_members(files: Files, directory: str) -> int | None:
    """How many members an array misses; None for a container of arrays, which has none of its own.

    Levels without redundancy (raid0, linear) and arrays that could not be started have no `degraded`: their
    members are those of `raid_disks` slots that a `rdN` link fills.
    """
    degraded = files.integer(f"{directory}/degraded")
    if degraded is not None:
        return degraded
    slots = files.integer(f"{directory}/raid_disks")
    if not slots:
        return None
    filled = sum(1 for name in files.names(directory) if name.startswith("rd") and name[2:].isdigit())
    return max(0, slots - filled)
