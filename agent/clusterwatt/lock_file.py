"""A lock that one process at a time holds: a file with its pid, free when that process ends (flock(2))."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class HeldError(Exception):
    """Another process holds the lock; `who` names it as far as it has said, as ` (pid 4711)`."""

    def __init__(self, who: str) -> None:
        super().__init__(who)
        self.who = who


def take(path: Path) -> int:
    """Hold the lock for as long as the descriptor is open. Raises HeldError, or OSError."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        pid = os.pread(lock, 32, 0).decode(errors="replace").strip()
        os.close(lock)
        raise HeldError(f" (pid {pid})" if pid.isdecimal() else "") from None
    except OSError:
        os.close(lock)
        raise
    return lock
