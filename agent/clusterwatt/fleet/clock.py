"""The fleet's clock. It stands still while the nodes tick, so that a tick is of one moment on all of them."""

from __future__ import annotations

import math

from clusterwatt.clock import Clock


class FleetClock:
    """Time that goes `speed` times as fast as that of another clock, in steps of `every_s` of its own."""

    def __init__(self, real: Clock, speed: float, every_s: float) -> None:
        self._real = real
        self._speed = speed
        self._every_s = every_s
        self._began_s = real.monotonic_s()
        # Both begin on a whole step, so that two fleets of one seed tick at the same moments.
        self._first_wall_s = math.floor(real.wall_s() / every_s) * every_s
        self._steps = 0

    def wall_s(self) -> float:
        """Unix time of the simulation."""
        return self._first_wall_s + self._steps * self._every_s

    def monotonic_s(self) -> float:
        """Seconds of the simulation; whole steps."""
        return (self._steps + 1_000) * self._every_s

    def step(self) -> None:
        """Go on to the next step, or to the one that is due where steps were missed."""
        due = math.floor((self._real.monotonic_s() - self._began_s) * self._speed / self._every_s)
        self._steps = max(self._steps + 1, due)

    def wait_s(self) -> float:
        """Seconds of real time until the next step."""
        next_s = self._began_s + (self._steps + 1) * self._every_s / self._speed
        return max(0.0, next_s - self._real.monotonic_s())
