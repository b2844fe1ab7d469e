"""Durations of driver calls since the agent started, over all driver hosts: they never fall."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from clusterwatt.nvml.call_times import CallTime
from clusterwatt.readings.agent import DriverCallDuration


class CallTotals:
    """Adds what the running host says to what its predecessors said last."""

    def __init__(self) -> None:
        self._before: Mapping[str, CallTime] = {}
        self._total: Mapping[str, CallTime] = {}
        self.readings: tuple[DriverCallDuration, ...] = ()

    def fresh_host(self) -> None:
        """A host starts, whose counts begin at zero."""
        self._before = self._total

    def heard(self, calls: tuple[CallTime, ...]) -> None:
        """Take what the running host has counted so far; runs on the listener's thread."""
        if not calls:
            return
        total = dict(self._before)
        for now in calls:
            before = self._before.get(now.call)
            total[now.call] = now if before is None else _sum(before, now)
        self._total = total
        self.readings = tuple(
            DriverCallDuration(
                call=each.call,
                counts=tuple(map(float, accumulate(each.counts))),
                sum_seconds=each.sum_s,
            )
            for each in total.values()
        )


def _sum(one: CallTime, other: CallTime) -> CallTime:
    counts = tuple(a + b for a, b in zip(one.counts, other.counts, strict=True))
    return CallTime(one.call, counts, one.sum_s + other.sum_s)
