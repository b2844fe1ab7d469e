"""The agent's only source of time, so that tests can move it."""

from __future__ import annotations

import math
import time
from typing import Protocol

STALE_INTERVALS = 3  # a reading older than so many of its own intervals leaves the page
# Across a longer gap between two readings nothing is summed up, since nobody knows what happened in it: three
# intervals, and a little for a tick that comes late.
GAP_INTERVALS = 3.15
EARLY = 0.1  # of a cadence: a tick that comes a little early is still this one


def next_point_s(now_s: float, every_s: float) -> float:
    """The next whole multiple of a cadence, for a tick that begins now.

    Everything that happens at a cadence keeps to such points of the common monotonic clock: what was late
    does not shift what comes next, and the driver host ticks with the agent.
    """
    return (math.floor(now_s / every_s + EARLY) + 1) * every_s


class Clock(Protocol):
    """Two clocks: one that follows the calendar and may step, one that only moves forward."""

    def wall_s(self) -> float:
        """Seconds since the Unix epoch; may jump in either direction."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never steps; every interval is measured on it.

        Linux counts it from boot, the same in every process of the machine (clock_gettime(2),
        CLOCK_MONOTONIC): a reading that the driver host stamped is aged by the agent without conversion.
        """
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_s(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    def monotonic_s(self) -> float:
        """CLOCK_MONOTONIC, in seconds."""
        return time.monotonic()
