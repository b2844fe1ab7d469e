"""Files that people and other programs put in place: read when they are files, never waited for.

Opening a named pipe waits for who writes into it (fifo(7)), and a device may act on being opened or never
come to an end. Whoever may put one in a file's place would stop the agent with it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

# O_NONBLOCK: what was a file a moment ago may be a pipe now. O_NOCTTY: nor does a terminal become ours.
FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class NotPlainError(OSError):
    """Something else stands in a file's place; `strerror` says what."""


def opened(path: Path | str) -> BinaryIO:
    """The file, to read it. Raises OSError; NotPlainError for what is no plain file, which is not touched."""
    check(path)
    descriptor = os.open(path, FLAGS)
    try:
        _plain(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def content(path: Path | str, max_bytes: int) -> bytes:
    """What the file holds, not more than so many bytes of it. Raises as `opened` does."""
    with opened(path) as file:
        return file.read(max_bytes)


def check(path: Path | str) -> os.stat_result:
    """What a file is, for those whose library opens it. Raises as `opened` does."""
    return _plain(os.stat(path), path)


def _plain(status: os.stat_result, path: Path | str) -> os.stat_result:
    if stat.S_ISREG(status.st_mode):
        return status
    folder = stat.S_ISDIR(status.st_mode)
    found = "directory" if folder else "pipe or device"
    raise NotPlainError(
        errno.EISDIR if folder else errno.EINVAL, f"expected a plain file, found a {found}", str(path)
    )
