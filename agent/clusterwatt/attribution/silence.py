"""Seconds in which nobody measured the node: the agent was away, or all GPUs gave nothing at once."""

from __future__ import annotations

from clusterwatt.clock import GAP_INTERVALS


class Silence:
    """Counts them as they pass, also while they last."""

    def __init__(self) -> None:
        self._counted_s: float | None = None  # everything up to here was measured, or counted
        self._lasts = False

    def begin(self, now_s: float) -> None:
        """GPUs are expected from now on."""
        self._counted_s = now_s

    def take(self, newest_read_s: float | None, *, now_s: float, every_s: float) -> float:
        """Seconds that nobody measured; `newest_read_s`: of all GPUs, None while there is no reading."""
        counted_s = self._counted_s
        if newest_read_s is not None and (counted_s is None or newest_read_s > counted_s):
            self._counted_s = newest_read_s
            gap_s = 0.0 if counted_s is None else newest_read_s - counted_s
            missed = self._lasts or gap_s > GAP_INTERVALS * every_s
            self._lasts = False
            return gap_s if missed else 0.0
        if counted_s is None or (not self._lasts and now_s - counted_s <= GAP_INTERVALS * every_s):
            return 0.0
        self._lasts = True
        self._counted_s = now_s
        return now_s - counted_s
