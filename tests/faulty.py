"""Files that answer with an error number, which a plain file of a test's tree does not: root reads it all."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest


def refuse_open(monkeypatch: pytest.MonkeyPatch, part: str, number: int = errno.EACCES) -> None:
    """Have the kernel refuse to open every file whose path has this part."""
    real_open = os.open

    def refuse(path: Any, *arguments: Any, **named: Any) -> int:
        if part in os.fspath(path):
            raise OSError(number, os.strerror(number), path)
        return real_open(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refuse)


class FaultyReads:
    """Makes reads of files fail whose path ends in a key of `faults`; counts all reads by path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.faults: dict[str, int] = {}
        self.reads: list[str] = []
        self.opened: list[str] = []
        pread, open_file = os.pread, os.open

        def read(descriptor: int, length: int, offset: int) -> bytes:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            self.reads.append(path)
            for ending, number in self.faults.items():
                if path.endswith(ending):
                    raise OSError(number, os.strerror(number))
            return pread(descriptor, length, offset)

        def open_counted(path: str, flags: int, *, dir_fd: int | None = None) -> int:
            self.opened.append(path)
            return open_file(path, flags, dir_fd=dir_fd)

        monkeypatch.setattr(os, "pread", read)
        monkeypatch.setattr(os, "open", open_counted)
