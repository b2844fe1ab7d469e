"""How long driver calls take, by function: counts and sums of one driver host."""

from __future__ import annotations

import bisect
import threading

import msgspec

BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # seconds


class CallTime(msgspec.Struct, frozen=True, array_like=True):
    """Calls of one function: how many fell into each bucket, the last one without bound, and their time."""

    call: str
    counts: tuple[int, ...]
    sum_s: float


class CallTimes:
    """Counts calls of all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def took(self, call: str, seconds: float) -> None:
        """Count a call."""
        place = bisect.bisect_left(BUCKETS, seconds)
        with self._lock:
            counts = self._counts.get(call)
            if counts is None:
                counts = self._counts[call] = [0] * (len(BUCKETS) + 1)
                self._sums[call] = 0.0
            counts[place] += 1
            self._sums[call] += seconds

    def so_far(self) -> tuple[CallTime, ...]:
        """All functions that were called."""
        with self._lock:
            return tuple(
                CallTime(call, tuple(counts), self._sums[call]) for call, counts in self._counts.items()
            )
