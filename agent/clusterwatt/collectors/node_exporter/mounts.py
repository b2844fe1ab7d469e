"""Mounts: which device stands behind each, and what the NFS client counts.

/proc/PID/mountinfo, /proc/PID/mountstats (fs/nfs/super.c, net/sunrpc/xprtsock.c of Linux), /proc/net/rpc/nfs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterwatt.collectors.mounts import mounts_of_host, unescape
from clusterwatt.collectors.nfs import MILLISECONDS, NFS, mountstats
from clusterwatt.collectors.node_exporter.families import COUNTER, GAUGE, Found, Row, single, table
from clusterwatt.readings.base import Failure
from clusterwatt.readings.node_exporter import MountSource
from clusterwatt.sysfs import Files

PREFIX = "node_mountstats_nfs_"
SOURCE = "/proc/1/mountstats"
LABELS = ("export", "protocol", "mountaddr")

BYTES = (
    *("read_bytes_total", "write_bytes_total", "direct_read_bytes_total", "direct_write_bytes_total"),
    *("total_read_bytes_total", "total_write_bytes_total", "read_pages_total", "write_pages_total"),
)
EVENTS = (
    *("inode_revalidate", "dnode_revalidate", "data_invalidate", "attribute_invalidate", "vfs_open"),
    *("vfs_lookup", "vfs_access", "vfs_update_page", "vfs_read_page", "vfs_read_pages", "vfs_write_page"),
    *("vfs_write_pages", "vfs_getdents", "vfs_setattr", "vfs_flush", "vfs_fsync", "vfs_lock"),
    *("vfs_file_release", "", "truncation", "write_extension", "silly_rename", "short_read", "short_write"),
    *("jukebox_delay", "pnfs_read", "pnfs_write"),  # the empty one: congestion waits, which it leaves out
)
TRANSPORT = (
    ("bind_total", COUNTER),
    ("connect_total", COUNTER),
    ("idle_time_seconds", GAUGE),
    ("sends_total", COUNTER),
    ("receives_total", COUNTER),
    ("bad_transaction_ids_total", COUNTER),
    ("backlog_queue_total", COUNTER),
    ("maximum_rpc_slots", GAUGE),
    ("sending_queue_total", COUNTER),
    ("pending_queue_total", COUNTER),
)
OPERATIONS = (
    *("requests_total", "transmissions_total", "major_timeouts_total", "sent_bytes_total"),
    *("received_bytes_total", "queue_time_seconds_total", "response_time_seconds_total"),
    "request_time_seconds_total",
)
FIRST_TIME = 5  # from this column of an operation on, milliseconds
COLUMNS = (
    (f"{PREFIX}age_seconds_total", COUNTER),
    *((f"{PREFIX}{name}", COUNTER) for name in BYTES),
    *((f"{PREFIX}transport_{name}", kind) for name, kind in TRANSPORT),
    *((f"{PREFIX}event_{name}_total", COUNTER) for name in EVENTS if name),
)
OPERATION_COLUMNS = tuple((f"{PREFIX}operations_{name}", COUNTER) for name in OPERATIONS)
ADDRESS = re.compile(r"(?:^|,)addr=([^,]+)")


def sources(files: Files) -> Iterator[MountSource]:
    """The device of each mount, for the page to put beside its space."""
    for mount in mounts_of_host(files):
        yield MountSource(mountpoint=mount.label, fstype=mount.fstype, device=mount.source)


def nfs(files: Files) -> Found:
    """Each export once for each protocol and server address, then the calls of the whole client."""
    rows: list[Row] = []
    operations: list[Row] = []
    seen = set()
    for source, address, lines in _mounts(files):
        try:
            protocol, values, by_operation = _statistics(lines)
        except (ValueError, IndexError) as error:
            yield Failure(item=source, reason="format", detail=str(error))
            continue
        key = (source, protocol, address)
        if key in seen:
            continue
        seen.add(key)
        rows.append((key, values))
        operations += [((*key, name), numbers) for name, numbers in by_operation]
    yield from table(SOURCE, LABELS, COLUMNS, rows)
    yield from table(SOURCE, (*LABELS, "operation"), OPERATION_COLUMNS, operations)
    yield from _client(files)


def _mounts(files: Files) -> Iterator[tuple[str, str, list[str]]]:
    """Export, server address and lines of each NFS mount."""
    text = mountstats(files)
    if b"fstype nfs" not in text:
        return
    mounts = {mount.mountpoint: mount for mount in mounts_of_host(files)}
    blocks: list[tuple[str, str, list[str]]] = []
    of_nfs = False
    for line in text.splitlines():
        if line.startswith((b"device ", b"no device ")):
            found = NFS.match(line)
            of_nfs = found is not None
            if found is not None:
                path = unescape(found["mountpoint"])
                mount = mounts.get(path) or mounts.get(path.removeprefix(files.root) or "/")
                address = ADDRESS.search(mount.options) if mount is not None else None
                source = found["source"].decode("utf-8", "replace")
                blocks.append((source, address[1] if address else "", []))
        elif of_nfs:
            blocks[-1][2].append(line.decode("utf-8", "replace"))
    yield from blocks


def _statistics(lines: list[str]) -> tuple[str, list[float], list[tuple[str, list[float]]]]:
    """Protocol, values in the order of the columns, values by operation. Raises ValueError, IndexError."""
    age, protocol = 0.0, ""
    values = {"bytes": list[float](), "events": list[float]()}
    transport = [0.0] * len(TRANSPORT)
    operations: list[tuple[str, list[float]]] = []
    per_operation = False
    for line in lines:
        name, _, rest = line.strip().partition(":")
        words = rest.split()
        if name == "age":
            age = float(words[0])
        elif name in values:
            values[name] = [float(word) for word in words]
        elif name == "xprt":
            protocol, transport = words[0], _transport(words)
        elif name == "per-op statistics":
            per_operation = True
        elif per_operation and words:
            numbers = [float(word) for word in words[: len(OPERATIONS)]]
            times = [milliseconds / MILLISECONDS for milliseconds in numbers[FIRST_TIME:]]
            operations.append((name, numbers[:FIRST_TIME] + times))
    events = [number for number, name in zip(values["events"], EVENTS, strict=False) if name]
    return protocol, [age, *values["bytes"][: len(BYTES)], *transport, *events], operations


def _transport(words: list[str]) -> list[float]:
    """Of the numbers behind the protocol: TCP and RDMA have three that UDP has not."""
    numbers = [float(word) for word in words[1:]]
    if words[0] == "udp":
        numbers[2:2] = [0.0, 0.0, 0.0]
    numbers += [0.0] * (13 - len(numbers))  # the last three since statvers 1.1
    if words[0] == "rdma":
        numbers[10:13] = [0.0, 0.0, 0.0]
    _, bind, connect, _, idle, sends, receives, bad, _, backlog, slots, sending, pending = numbers[:13]
    return [bind, connect, idle, sends, receives, bad, backlog, slots, sending, pending]


def _client(files: Files) -> Found:
    """The NFS client's calls of all mounts, in the network namespace of the host's first process."""
    try:
        text = files.text("/proc/1/net/rpc/nfs")
    except PermissionError:
        text = None
    text = text or files.text("/proc/net/rpc/nfs") or ""
    lines = {words[0]: [float(word) for word in words[1:]] for words in map(str.split, text.splitlines())}
    net, rpc = lines.get("net", []), lines.get("rpc", [])
    source = "/proc/net/rpc/nfs"
    if len(net) >= 4:
        rows: list[Row] = [(("udp",), (net[1],)), (("tcp",), (net[2],))]
        yield from table(source, ("protocol",), (("node_nfs_packets_total", COUNTER),), rows)
        yield from single(source, [("node_nfs_connections_total", COUNTER, net[3])])
    names = ("rpcs", "rpc_retransmissions", "rpc_authentication_refreshes")
    yield from single(
        source,
        ((f"node_nfs_{name}_total", COUNTER, number) for name, number in zip(names, rpc, strict=False)),
    )
