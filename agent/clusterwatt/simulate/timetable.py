"""A signal that takes another course at given times of a week, and the same in each week.

So what a cluster does for years is known after a week's work, every integral stays exact, and a fresh process
goes on where the last one stopped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from clusterwatt.simulate.work import EPOCH_S, Signal

WEEK_S = 604_800.0


class Timetable:
    """Signals in turn. `starts_s`: seconds of the week, the first 0. `shift_s`: the week begins so early."""

    def __init__(self, starts_s: Sequence[float], signals: Sequence[Signal], shift_s: float = 0.0) -> None:
        self._starts_s = list(starts_s)
        self._signals = list(signals)
        self._shift_s = shift_s
        self._sums = [0.0]
        ends_s = [*self._starts_s[1:], WEEK_S]
        for start_s, end_s, signal in zip(self._starts_s, ends_s, self._signals, strict=True):
            self._sums.append(self._sums[-1] + _between(signal, start_s, end_s))
        self._total = self._sums.pop()

    def at(self, time_s: float) -> float:
        """The value of the signal whose turn it is."""
        offset_s = (time_s - EPOCH_S + self._shift_s) % WEEK_S
        return self._signals[bisect_right(self._starts_s, offset_s) - 1].at(EPOCH_S + offset_s)

    def integral(self, time_s: float) -> float:
        """Whole weeks, whole turns, and the part of the last."""
        weeks, offset_s = divmod(time_s - EPOCH_S + self._shift_s, WEEK_S)
        turn = bisect_right(self._starts_s, offset_s) - 1
        part = _between(self._signals[turn], self._starts_s[turn], offset_s)
        return weeks * self._total + self._sums[turn] + part


def _between(signal: Signal, from_s: float, to_s: float) -> float:
    return signal.integral(EPOCH_S + to_s) - signal.integral(EPOCH_S + from_s)
