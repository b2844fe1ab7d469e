"""Disks, file systems and shared file systems of a simulated node.

Checkpoints go to an NFS mount, training data come from Lustre and are cached on the local disks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from clusterwatt.readings.base import Reading
from clusterwatt.readings.storage import (
    Disk,
    DiskHealth,
    DiskInfo,
    Filesystem,
    FilesystemProbe,
    LustreMount,
    LustreOperation,
    MdArray,
    NfsMount,
    NfsOperation,
)
from clusterwatt.simulate.troubles import Troubles
from clusterwatt.simulate.work import EPOCH_S, Flat, Signal

TB = 1e12
FLAT_ZERO: Signal = Flat(0.0)
SYSTEM_BYTES_PER_S = 250_000.0
IO_BYTES = 128 * 1024.0
DISKS = ("nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1", "nvme4n1")
DISK_BYTES_PER_S = 6e9
CLEANED_EVERY_S = 28 * 86_400.0
NFS_MOUNT, LUSTRE_MOUNT = "/checkpoints", "/data"


class Space(NamedTuple):
    """A file system. `used`: share in use; what is `added` until the next clean-up comes to it by and by."""

    fstype: str
    size_bytes: float
    used: float
    files: float
    added: float = 0.0

    def used_at(self, time_s: float) -> float:
        """The share in use at a Unix time, the same on all nodes."""
        return self.used + self.added * ((time_s - EPOCH_S) % CLEANED_EVERY_S) / CLEANED_EVERY_S


FILESYSTEMS = {
    "/": Space("ext4", 0.94 * TB, 0.31, 6.1e7),
    "/boot": Space("ext4", 0.001 * TB, 0.22, 6.5e4),
    "/dev/shm": Space("tmpfs", 1.1 * TB, 0.01, 2.6e8),  # noqa: S108 - a name on the page, no file
    "/scratch": Space("xfs", 15.3 * TB, 0.47, 1.5e9),
    NFS_MOUNT: Space("nfs4", 600.0 * TB, 0.52, 4e8, added=0.16),
    LUSTRE_MOUNT: Space("lustre", 4_000.0 * TB, 0.61, 3e9, added=0.07),
}


class Storage:
    """`read`, `written`: bytes a second that the jobs read from and write to shared file systems."""

    def __init__(self, read: Signal, written: Signal, boot_s: float, troubles: Troubles) -> None:
        self.read, self.written = read, written
        self._boot_s = boot_s
        self._troubles = troubles

    def _since_boot(self, signal: Signal, time_s: float) -> float:
        return signal.integral(time_s) - signal.integral(self._boot_s)

    def disks(self, time_s: float) -> Iterator[Reading]:
        """The system's disk, and four that cache a fifth of what is read."""
        system = SYSTEM_BYTES_PER_S * (time_s - self._boot_s)
        cached = 0.05 * self._since_boot(self.read, time_s)
        for device in DISKS:
            local = device == DISKS[0]
            read, written = (0.1 * system, system) if local else (cached, 0.2 * cached)
            busy_s = (read + written) / DISK_BYTES_PER_S
            yield Disk(
                device=device,
                read_bytes=float(math.floor(read)),
                written_bytes=float(math.floor(written)),
                reads_completed=float(math.floor(read / IO_BYTES)),
                writes_completed=float(math.floor(written / IO_BYTES)),
                read_seconds=round(read / DISK_BYTES_PER_S * 1.4, 3),
                write_seconds=round(written / DISK_BYTES_PER_S * 1.7, 3),
                busy_seconds=round(busy_s, 3),
                queue_seconds=round(1.5 * busy_s, 3),
                in_flight=0.0,
                flushes_completed=float(math.floor(written / IO_BYTES / 50)),
                flush_seconds=round(0.02 * busy_s, 3),
            )
            yield DiskInfo(device=device, model="Simulated NVMe 3.84TB", transport="nvme")
        degraded = self._troubles.now("array_degraded", time_s)
        yield MdArray(array="md0", degraded=float(degraded is not None))

    def health(self, time_s: float) -> Iterator[Reading]:
        """What the drives say of themselves."""
        for number, device in enumerate(DISKS):
            yield DiskHealth(
                device=device.removesuffix("n1"),
                wear_ratio=0.03 + 0.01 * number,
                spare_ratio=1.0,
                media_errors=0.0,
                temperature_celsius=36.0 + number,
            )

    def filesystems(self, time_s: float) -> Iterator[Reading]:
        """Space and probe of each; of one that does not answer the probe alone."""
        for mountpoint, space in FILESYSTEMS.items():
            hung = self._hung(mountpoint, time_s)
            if hung is None:
                yield self._space(mountpoint, space, time_s)
            yield FilesystemProbe(
                mountpoint=mountpoint,
                fstype=space.fstype,
                last_probe_timestamp_seconds=time_s if hung is None else hung,
                probe_duration_seconds=0.0004 if hung is None else time_s - hung,
            )

    def _space(self, mountpoint: str, space: Space, time_s: float) -> Filesystem:
        before, size = space.used_at(time_s), space.size_bytes
        used = before + self._filled("disk_fills", mountpoint, before, time_s)
        entries = 0.1 + self._filled("files_fill", mountpoint, 0.1, time_s)
        free = size * (1.0 - used)
        return Filesystem(
            mountpoint=mountpoint,
            fstype=space.fstype,
            size_bytes=size,
            available_bytes=float(math.floor(max(0.0, free - 0.01 * size))),
            free_bytes=float(math.floor(free)),
            files=space.files,
            files_free=float(math.floor(space.files * (1.0 - entries))),
            readonly=float(self._troubles.now("read_only", time_s, mountpoint) is not None),
        )

    def _hung(self, mountpoint: str, time_s: float) -> float | None:
        """Since when a mount does not answer; only shared ones hang unless one is named."""
        for trouble in self._troubles.all("mount_hangs", mountpoint):
            if trouble.on(time_s) and (trouble.item or mountpoint == NFS_MOUNT):
                return trouble.from_s
        return None

    def _filled(self, kind: str, mountpoint: str, before: float, time_s: float) -> float:
        """What is in use beyond the usual: it grows to `amount` within the time, and stays there."""
        for trouble in self._troubles.all(kind, mountpoint):
            if trouble.from_s <= time_s and (trouble.item or mountpoint == "/scratch"):
                lasts_s = trouble.until_s - trouble.from_s
                done = 1.0 if math.isinf(lasts_s) else min(1.0, trouble.seconds(time_s) / lasts_s)
                return (trouble.amount - before) * done
        return 0.0

    def nfs(self, time_s: float) -> Iterator[Reading]:
        """Checkpoints; what a hung mount was asked for is not answered."""
        time_s = min(time_s, self._hung(NFS_MOUNT, time_s) or time_s)
        written = self._since_boot(self.written, time_s)
        read = 0.02 * written
        requests = {"read": read / 1e6, "write": written / 1e6, "metadata": 0.8 * (time_s - self._boot_s)}
        yield NfsMount(
            mountpoint=NFS_MOUNT,
            read_bytes=float(math.floor(read)),
            write_bytes=float(math.floor(written)),
            queue_seconds=round(written / 1e10, 3),
            retransmissions=0.0,
            timeouts=0.0,
        )
        for operation, count in requests.items():
            yield NfsOperation(NFS_MOUNT, operation, float(math.floor(count)), round(0.004 * count, 3))

    def lustre(self, time_s: float) -> Iterator[Reading]:
        """Training data."""
        time_s = min(time_s, self._hung(LUSTRE_MOUNT, time_s) or time_s)
        read = self._since_boot(self.read, time_s)
        yield LustreMount(LUSTRE_MOUNT, read_bytes=float(math.floor(read)), write_bytes=0.0)
        for operation, count in (("read", read / 4e6), ("write", 0.0), ("metadata", read / 1e9)):
            yield LustreOperation(LUSTRE_MOUNT, operation, float(math.floor(count)), round(0.002 * count, 3))
