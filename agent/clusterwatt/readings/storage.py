"""Disks, arrays, file systems and network mounts."""

from __future__ import annotations

from clusterwatt.readings.base import Reading


class Disk(Reading, frozen=True):
    """A whole physical disk, from the kernel's block layer; flushes are counted since Linux 5.5."""

    device: str
    read_bytes: float
    written_bytes: float
    reads_completed: float
    writes_completed: float
    read_seconds: float
    write_seconds: float
    busy_seconds: float
    queue_seconds: float
    in_flight: float
    flushes_completed: float | None = None
    flush_seconds: float | None = None


class DiskInfo(Reading, frozen=True):
    """Model and transport (nvme, sata, virtio, ...) of a disk; empty where the kernel does not say."""

    device: str
    model: str
    transport: str


class DiskHealth(Reading, frozen=True):
    """What a drive says of its own health."""

    device: str
    wear_ratio: float | None = None
    spare_ratio: float | None = None
    media_errors: float | None = None
    temperature_celsius: float | None = None


class MdArray(Reading, frozen=True):
    """A software RAID array: members that are missing, 0 = whole."""

    array: str
    degraded: float


class Filesystem(Reading, frozen=True):
    """Space of one mount, in bytes and files. `available` is what an unprivileged user can have."""

    mountpoint: str
    fstype: str
    size_bytes: float | None = None
    available_bytes: float | None = None
    free_bytes: float | None = None
    files: float | None = None
    files_free: float | None = None
    readonly: float | None = None


class FilesystemProbe(Reading, frozen=True):
    """When a mount answered last: the time stays while it hangs. Until its first answer: when first asked.

    The duration is that of its last answer, or of the call that it has not answered so far.
    """

    mountpoint: str
    fstype: str
    last_probe_timestamp_seconds: float | None = None
    probe_duration_seconds: float | None = None


class NfsMount(Reading, frozen=True):
    """Traffic of an NFS mount with its server, as the client counts it, and what the network cost it."""

    mountpoint: str
    read_bytes: float
    write_bytes: float
    queue_seconds: float
    retransmissions: float
    timeouts: float


class NfsOperation(Reading, frozen=True):
    """Requests of an NFS mount and the time they took together. operation: read, write, metadata."""

    mountpoint: str
    operation: str
    operations: float
    operation_seconds: float


class LustreMount(Reading, frozen=True):
    """Bytes that programs read and wrote on a Lustre mount."""

    mountpoint: str
    read_bytes: float
    write_bytes: float


class LustreOperation(Reading, frozen=True):
    """Calls on a Lustre mount; old clients do not measure their time. operation: see NfsOperation."""

    mountpoint: str
    operation: str
    operations: float
    operation_seconds: float | None = None
