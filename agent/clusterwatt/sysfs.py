"""One-value files and directory listings of procfs and sysfs, below a root that may be a mounted host's.

Files are opened once and read again with `os.pread`: the kernel makes the text anew at each read from
offset 0 (Documentation/filesystems/sysfs.rst), and a kept descriptor costs an eighth of open, read and close.
Listings are kept for ten seconds. When descriptors run out, kept ones are given back and each read opens
anew.

What the kernel does not offer is None: a missing file, an attribute that answers EINVAL or EOPNOTSUPP while
its interface is down or its feature off, a device that went away between listing and reading, a text such
as "N/A (no PMA)". Any other error is raised: the collector decides which item it costs.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from clusterwatt import descriptors
from clusterwatt.clock import Clock

T = TypeVar("T")

FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
NOT_OFFERED = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EINVAL,
        errno.EOPNOTSUPP,
        errno.ENODEV,
        errno.ENXIO,
        errno.ENODATA,
        errno.ESRCH,
    }
)
GONE = frozenset({errno.ENODEV, errno.ENXIO, errno.ESRCH, errno.ESTALE, errno.EBADF})
LISTING_SECONDS = 10.0
CHUNK_BYTES = 1 << 16
MAX_FILE_BYTES = 16 << 20  # no procfs file that we read comes near; a runaway one must not fill the memory


def raise_unless_not_offered(error: OSError, path: str) -> None:
    """Pass over what the kernel does not offer; raise any other error, naming the path."""
    if error.errno not in NOT_OFFERED:
        raise OSError(error.errno, os.strerror(error.errno or 0), path) from error


def read_once(path: str, max_bytes: int) -> bytes:
    """The start of a file of a process, in one read, not kept open; empty when the process has ended.

    `path` holds the root. Raises OSError for any other failure, with the path.
    """
    try:
        descriptor = os.open(path, FLAGS)
        try:
            return os.read(descriptor, max_bytes)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise_unless_not_offered(error, path)
        return b""


class Files:
    """Reads below one root. Belongs to one collector and its thread."""

    def __init__(self, root: Path | str, clock: Clock, *, max_descriptors: int = 2048) -> None:
        self.root = str(root).rstrip("/")
        self._clock = clock
        self._max_descriptors = max_descriptors
        self._descriptors: dict[str, int] = {}
        self._listings: dict[str, tuple[float, tuple[str, ...]]] = {}

    def __del__(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def raw(self, path: str) -> bytes | None:
        """The whole content of a file; None when it is not offered.

        Raises OSError for any other failure, with the path.
        """
        descriptor = self._descriptors.get(path)
        if descriptor is not None:
            try:
                return self._read(descriptor, path)
            except OSError as error:
                if error.errno not in GONE:
                    raise_unless_not_offered(error, self.root + path)
                    return None
                self._drop(path)
        try:
            descriptor = self._with_room(lambda: os.open(self.root + path, FLAGS))
        except OSError as error:
            raise_unless_not_offered(error, self.root + path)
            return None
        try:
            content = self._read(descriptor, path)
        except OSError as error:
            os.close(descriptor)
            raise_unless_not_offered(error, self.root + path)
            return None
        if len(self._descriptors) < self._max_descriptors and descriptors.may_keep(descriptor):
            self._descriptors[path] = descriptor
        else:
            os.close(descriptor)
        return content

    def text(self, path: str) -> str | None:
        """The content without surrounding white space, undecodable bytes replaced; None when not offered."""
        content = self.raw(path)
        return None if content is None else content.decode("utf-8", "replace").strip()

    def integer(self, path: str) -> int | None:
        """The content as a whole number; None when it is not offered or not a number."""
        content = self.raw(path)
        if content is None:
            return None
        try:
            return int(content)
        except ValueError:
            return None

    def names(self, directory: str) -> tuple[str, ...]:
        """Sorted entries of a directory, as old as ten seconds; empty when it is not there.

        Raises OSError when it is there and cannot be listed.
        """
        now_s = self._clock.monotonic_s()
        kept = self._listings.get(directory)
        if kept is not None and now_s - kept[0] < LISTING_SECONDS:
            return kept[1]
        try:
            names = tuple(sorted(self._with_room(lambda: os.listdir(self.root + directory))))
        except OSError as error:
            self._listings.pop(directory, None)
            if error.errno in NOT_OFFERED:
                return ()
            raise
        self._listings[directory] = (now_s, names)
        return names

    def link(self, path: str) -> str | None:
        """Where a symbolic link points; None when it is not there or not a link."""
        try:
            return os.readlink(self.root + path)
        except OSError as error:
            raise_unless_not_offered(error, self.root + path)
            return None

    def exists(self, path: str) -> bool:
        """Whether a path is there, links followed."""
        return os.path.exists(self.root + path)

    def forget(self, directory: str = "") -> None:
        """Close kept descriptors below a directory and list it anew at the next use."""
        for path in [path for path in self._descriptors if path.startswith(directory)]:
            self._drop(path)
        for path in [path for path in self._listings if path.startswith(directory)]:
            del self._listings[path]

    def _with_room(self, opening: Callable[[], T]) -> T:
        """Open something; when no descriptor is left, give back those kept here and keep none again."""
        try:
            return opening()
        except OSError as error:
            if error.errno not in descriptors.EXHAUSTED:
                raise
        self._max_descriptors = 0
        for kept in list(self._descriptors):
            self._drop(kept)
        return opening()

    def _read(self, descriptor: int, path: str) -> bytes:
        content = os.pread(descriptor, CHUNK_BYTES, 0)
        # An attribute of sysfs comes whole (at most a page); a procfs table comes in pieces of whole records,
        # each shorter than asked for, and ends with an empty read (fs/seq_file.c).
        if path.startswith("/sys/"):
            return content
        pieces, offset = [content], len(content)
        while offset < MAX_FILE_BYTES:
            piece = os.pread(descriptor, CHUNK_BYTES, offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)

    def _drop(self, path: str) -> None:
        os.close(self._descriptors.pop(path))
