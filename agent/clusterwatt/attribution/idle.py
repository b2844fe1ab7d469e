"""The one idle rule: a GPU that is held and does next to nothing for a whole window is idle.

Bill, ledger, alerts and boards all take their states from here. What is not known is not idle.
"""

from __future__ import annotations

from collections import deque

import msgspec

ACTIVE, IDLE, FREE = STATES = ("active", "idle", "free")
POINTS = 120  # of a window, at most: a long one must not keep every second


class IdleRule(msgspec.Struct, frozen=True):
    """Idle is what is held with an activity under `below_ratio` over the last `window_s`."""

    below_ratio: float
    window_s: float


class IdleWatch:
    """Activity of one held GPU over the last window, from when its holder got it."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()  # time of reading, seconds of activity so far
        self._holders: frozenset[str] = frozenset()

    def state(
        self,
        read_s: float,
        activity_s: float | None,
        holders: frozenset[str],
        rule: IdleRule,
    ) -> str:
        """State of a device that `holders` hold, by its activity counter as it stood at `read_s`.

        active until a whole window is known: from its beginning on the counter was there without a break,
        and one of its holders is a holder still.
        """
        if activity_s is None or not (holders & self._holders):
            self._points.clear()
        self._holders = holders
        if activity_s is None:
            return ACTIVE
        points = self._points
        if not points or read_s - points[-1][0] >= rule.window_s / POINTS:
            points.append((read_s, activity_s))
        while len(points) > 1 and read_s - points[1][0] >= rule.window_s:
            points.popleft()
        begin_s, then_s = points[0]
        if read_s - begin_s < rule.window_s:
            return ACTIVE
        return IDLE if (activity_s - then_s) / (read_s - begin_s) < rule.below_ratio else ACTIVE
