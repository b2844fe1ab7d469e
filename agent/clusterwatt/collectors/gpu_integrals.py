"""Sums over time of what the driver states as a momentary value: joules of power, seconds of use.

Intervals are taken on the monotonic clock. A failed read is no sample: the next good one spans the hole,
unless it is longer than three intervals. Over such a gap nothing is known, and nothing is added.
"""

from __future__ import annotations

from clusterwatt.clock import GAP_INTERVALS


class Integral:
    """The sum of a momentary value over time, in value times seconds; None before the first sample."""

    def __init__(self, interval_s: float) -> None:
        self.total: float | None = None
        self._longest_gap_s = GAP_INTERVALS * interval_s
        self._last: tuple[float, float] | None = None  # time, value

    def add(self, value: float, now_s: float, *, averaged: bool) -> None:
        """Take a sample: the value at this moment, or the average since the last one (`averaged`).

        Between two momentary values the line that joins them counts (trapezoid).
        """
        last, self._last = self._last, (now_s, value)
        if last is None or self.total is None:
            self.total = 0.0
            return
        seconds = now_s - last[0]
        if seconds <= self._longest_gap_s:
            self.total += seconds * (value if averaged else (value + last[1]) / 2)
