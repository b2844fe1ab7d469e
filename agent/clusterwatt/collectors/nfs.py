"""NFS mounts, from /proc/PID/mountstats: what the client counts, without a word to the server.

Specified by show_vfsstat in fs/proc_namespace.c, nfs_show_stats in fs/nfs/super.c and rpc_clnt_show_stats in
net/sunrpc/stats.c of Linux.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterwatt.catalog import STANDARD, Table
from clusterwatt.collectors.mounts import Mount, mounts_of_host, unescape
from clusterwatt.config.model import NfsCollector as Settings
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.storage import NfsMount, NfsOperation
from clusterwatt.sysfs import Files

MILLISECONDS = 1000.0
NFS = re.compile(rb"^device (?P<source>\S+) mounted on (?P<mountpoint>\S+) with fstype nfs4? ")
# A COMMIT is the second half of a write. All other procedures are about files, not their contents.
OPERATION = {b"READ": "read", b"READ_PLUS": "read", b"WRITE": "write", b"COMMIT": "write"}
OPERATIONS = ("read", "write", "metadata")

MOUNT = Table(NfsMount, labels=("mountpoint",))
OPERATION_TABLE = Table(NfsOperation, labels=("mountpoint", "operation"))
METRICS = (
    MOUNT.counter(
        "nfs_read_bytes_total", "Bytes that the client read from the server.", "read_bytes", STANDARD
    ),
    MOUNT.counter(
        "nfs_write_bytes_total", "Bytes that the client wrote to the server.", "write_bytes", STANDARD
    ),
    OPERATION_TABLE.counter(
        "nfs_operations_total", "Requests that the client completed.", "operations", STANDARD
    ),
    OPERATION_TABLE.counter(
        "nfs_operation_seconds_total",
        "Seconds that requests took, added up: waiting in the client, network and server.",
        "operation_seconds",
        STANDARD,
    ),
    MOUNT.counter(
        "nfs_queue_seconds_total",
        "Seconds that requests waited in the client before they were sent, added up.",
        "queue_seconds",
        STANDARD,
    ),
    MOUNT.counter("nfs_retransmissions_total", "Requests that were sent again.", "retransmissions", STANDARD),
    MOUNT.counter("nfs_timeouts_total", "Times a request was not answered in time.", "timeouts", STANDARD),
)


class NfsCollector:
    """Reads the statistics of each NFS file system once, however often it is mounted."""

    name = "nfs"

    def __init__(self, files: Files, settings: Settings) -> None:
        self._files = files
        self._excluded = re.compile(settings.exclude_mountpoints) if settings.exclude_mountpoints else None

    def collect(self) -> Iterator[Reading]:
        """Four readings for each file system, under its first mount point that is not excluded."""
        blocks = mounted(mountstats(self._files))
        if not blocks:
            return
        mounts = {mount.mountpoint: mount for mount in mounts_of_host(self._files)}
        seen: set[str] = set()
        for path, lines in blocks:
            mount = mounts.get(path) or mounts.get(path.removeprefix(self._files.root) or "/")
            if mount is None or mount.device in seen:
                continue
            if self._excluded is not None and self._excluded.fullmatch(mount.mountpoint):
                continue
            seen.add(mount.device)
            try:
                yield from readings(mount, lines)
            except (ValueError, IndexError) as error:
                yield Failure(item=mount.label, reason="format", detail=str(error))


def mountstats(files: Files) -> bytes:
    """The statistics of all mounts, as the host's first process sees them, else as this process does."""
    try:
        table = files.raw("/proc/1/mountstats")
    except PermissionError:  # of another user's process, for root only
        table = None
    return table or files.raw("/proc/self/mountstats") or b""


def mounted(table: bytes) -> list[tuple[str, list[bytes]]]:
    """Mount point and indented lines of each NFS mount."""
    blocks: list[tuple[str, list[bytes]]] = []
    if b"fstype nfs" not in table:
        return blocks
    of_nfs = False
    for line in table.splitlines():
        if line.startswith((b"device ", b"no device ")):
            found = NFS.match(line)
            of_nfs = found is not None
            if found is not None:
                blocks.append((unescape(found["mountpoint"]), []))
        elif of_nfs:
            blocks[-1][1].append(line)
    return blocks


def readings(mount: Mount, lines: list[bytes]) -> Iterator[Reading]:
    """The readings of one mount. Raises ValueError or IndexError when its lines are not as specified."""
    read_bytes = write_bytes = None
    operations = dict.fromkeys(OPERATIONS, 0)
    milliseconds = dict.fromkeys(OPERATIONS, 0)
    queue_ms = retransmissions = timeouts = 0
    per_operation = False
    for line in lines:
        name, _, rest = line.strip().partition(b":")
        if name == b"bytes":
            # Of programs: read, written, the same with O_DIRECT; then with the server: read, written.
            read_bytes, write_bytes = (int(number) for number in rest.split()[4:6])
        elif name == b"per-op statistics":
            per_operation = True
        elif per_operation and rest:
            numbers = [int(number) for number in rest.split()]
            sent_times, completed = numbers[1], numbers[0]
            kind = OPERATION.get(name, "metadata")
            operations[kind] += completed
            milliseconds[kind] += numbers[7]
            queue_ms += numbers[5]
            timeouts += numbers[2]
            retransmissions += max(0, sent_times - completed)
    if read_bytes is None or write_bytes is None:
        raise ValueError("no line of bytes")
    yield NfsMount(
        mountpoint=mount.label,
        read_bytes=float(read_bytes),
        write_bytes=float(write_bytes),
        queue_seconds=queue_ms / MILLISECONDS,
        retransmissions=float(retransmissions),
        timeouts=float(timeouts),
    )
    for kind in OPERATIONS:
        yield NfsOperation(
            mountpoint=mount.label,
            operation=kind,
            operations=float(operations[kind]),
            operation_seconds=milliseconds[kind] / MILLISECONDS,
        )
