"""One event file that grows: what was appended since the last look, wherever the file went meanwhile.

The file is opened for each read and closed again. On NFS that is what makes the client ask the server
(close-to-open consistency, nfs(5)), and no mount is kept busy by an agent that looks at it. A link in its
place is not followed: the agent may read what who made the link may not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from clusterwatt.training import records
from clusterwatt.training.tfevents import Events, Logged

CHUNK_BYTES = 1 << 20  # more than the longest record that is decoded, so that every read makes headway
FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


class News(NamedTuple):
    """What a file has told since the last look.

    `scalars`: tag, value, step and wall time. `other`: that something was logged that is not asked for.
    `history`: it was in the file already when the agent began.
    """

    scalars: list[tuple[str, float, int, float]]
    other: Logged | None
    checkpoint_s: float | None
    history: bool


class Tail:
    """Follows one file. `corrupt` counts stretches that were passed over, `size` is that at the last look.

    `tail_bytes`: where to begin, from the end; None: at the start. `history`: what it holds now is old.
    """

    def __init__(
        self,
        path: str,
        wanted: Callable[[str], bool],
        *,
        tail_bytes: int | None,
        history: bool,
    ) -> None:
        self.path = path
        self.corrupt = 0
        self.size = 0
        self.written_s = 0.0
        self.identity: tuple[int, int] | None = None
        self._wanted = wanted
        self._tail_bytes = tail_bytes
        self._history = history
        self._offset = 0
        self._synced = True
        self._events = Events(wanted, from_start=True)

    def read(self, budget: int) -> tuple[News, int] | None:
        """What is new, and how many bytes were read for it, hardly more than `budget`; None when nothing is.

        Raises OSError; FileNotFoundError when the file is gone.
        """
        found = os.stat(self.path, follow_symlinks=False)
        if (found.st_dev, found.st_ino) != self.identity or found.st_size < self.size:
            self._begin(found)
        self.size, self.written_s = found.st_size, found.st_mtime
        if self._offset >= self.size:
            self._history = False
            return None
        scalars: list[tuple[str, float, int, float]] = []
        history, read = self._history, 0
        descriptor = os.open(self.path, FLAGS)
        try:
            while read < budget and self._offset < self.size:
                # Not more than there is: room for a whole chunk, for each file in each pass, takes time.
                data = os.pread(descriptor, min(CHUNK_BYTES, self.size - self._offset), self._offset)
                read += len(data)
                at_end = self._offset + len(data) >= self.size
                stretch = records.find(data, synced=self._synced, at_end=at_end)
                self._offset += stretch.next_at
                self._synced = stretch.synced
                self.corrupt += stretch.corrupt
                scalars.extend(self._events.scalars(stretch.records))
                if at_end:
                    self._history = False
                if at_end or not stretch.next_at:  # what is left is half a record, or was cut off meanwhile
                    break
        finally:
            os.close(descriptor)
        other, self._events.other = self._events.other, None
        return News(scalars, other, self._events.checkpoint_s, history), read

    def in_place(self) -> bool:
        """Whether the file is still where it was."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.identity

    @property
    def malformed(self) -> int:
        """Records whose checksum fits and that are no events."""
        return self._events.malformed

    def _begin(self, found: os.stat_result) -> None:
        """Begin with a file that was not known before, or was replaced by another of the name."""
        if self.identity is not None:
            self._history = False
        self.identity = (found.st_dev, found.st_ino)
        past = 0 if self._tail_bytes is None else max(0, found.st_size - self._tail_bytes)
        self._offset, self._synced = past, past == 0
        self._events = Events(self._wanted, from_start=past == 0)
