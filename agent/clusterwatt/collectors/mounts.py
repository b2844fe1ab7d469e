"""The table of mounts, from /proc/PID/mountinfo (Documentation/filesystems/proc.rst, section 3.5)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from clusterwatt.sysfs import Files

OCTAL = re.compile(rb"\\([0-7]{3})")


class Mount(msgspec.Struct, frozen=True):
    """One mount. `device` is major:minor; `root` the part of the file system that is mounted.

    `options` are those of the file system.
    """

    id: str
    device: str
    root: str
    mountpoint: str
    fstype: str
    source: str
    readonly: bool
    options: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        """Tells this mount from one that was mounted in its place later."""
        return self.id, self.device, self.mountpoint

    @property
    def label(self) -> str:
        """The mount point as a label value; bytes that are not UTF-8 become U+FFFD."""
        return os.fsencode(self.mountpoint).decode("utf-8", "replace")


def mounts_of_host(files: Files) -> list[Mount]:
    """The mounts that are on top, as the host's first process sees them, else as this process does.

    Below a root, this process sees the host's mounts under that root, which is then taken off their names.
    """
    try:
        table = files.raw("/proc/1/mountinfo")
    except PermissionError:  # procfs mounted with hidepid
        table = None
    mounts = on_top(parse(table or files.raw("/proc/self/mountinfo") or b""))
    root = files.root
    if not root or root not in mounts:
        return list(mounts.values())
    return [
        msgspec.structs.replace(mount, mountpoint=path[len(root) :] or "/")
        for path, mount in mounts.items()
        if path == root or path.startswith(root + "/")
    ]


def on_top(mounts: Iterable[Mount]) -> dict[str, Mount]:
    """Mounts by mount point; of several on one point the last, which hides the others."""
    return {mount.mountpoint: mount for mount in mounts}


@lru_cache(maxsize=2)  # the host's and our own: several sources look at thousands of lines that hardly change
def parse(table: bytes) -> tuple[Mount, ...]:
    """All lines of a mountinfo, in their order."""
    mounts = []
    for line in table.splitlines():
        before, _, after = line.partition(b" - ")
        mounted = before.split()
        filesystem = after.split()
        if len(mounted) < 6 or len(filesystem) < 2:
            continue
        mounts.append(
            Mount(
                id=mounted[0].decode(),
                device=mounted[2].decode(),
                root=unescape(mounted[3]),
                mountpoint=unescape(mounted[4]),
                fstype=filesystem[0].decode("utf-8", "replace"),
                source=unescape(filesystem[1]) if len(filesystem) > 2 else "",  # an empty name leaves a gap
                # A file system that the kernel made read-only after an error says so in its own options only.
                readonly=b"ro" in mounted[5].split(b",") or b"ro" in filesystem[-1].split(b","),
                options=filesystem[-1].decode("utf-8", "replace"),
            )
        )
    return tuple(mounts)


def unescape(field: bytes) -> str:
    """A path as the system calls take it: space, tab, line feed and backslash are written in octal."""
    if b"\\" in field:
        field = OCTAL.sub(lambda match: bytes([int(match[1], 8)]), field)
    return os.fsdecode(field)
