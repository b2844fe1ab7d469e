"""A clock that tests move by hand."""

from __future__ import annotations


class FakeClock:
    """Both clocks stand still until they are moved."""

    def __init__(self, wall_s: float = 1_700_000_000.0, monotonic_s: float = 1_000.0) -> None:
        self._wall_s = wall_s
        self._monotonic_s = monotonic_s

    def wall_s(self) -> float:
        return self._wall_s

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self._wall_s += seconds
        self._monotonic_s += seconds

    def step_wall(self, seconds: float) -> None:
        """The calendar is set; no time passes."""
        self._wall_s += seconds
