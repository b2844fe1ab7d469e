"""Tokens per second of runs that log only how many there were."""

from __future__ import annotations

from collections import deque

WINDOW_S = 120.0


class TokenRate:
    """The mean rate of the last two minutes, by the run's own clock; longer where a run logs more rarely.

    It falls, and in the end is 0, while a run is silent: one that hangs has no rate.
    """

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()  # time, tokens

    def take(self, tokens: float, logged_s: float, now_s: float) -> float | None:
        """The rate now, of a total that was logged at a time; None before a second one. Unix times."""
        points = self._points
        if points and tokens < points[-1][1]:  # it started over
            points.clear()
        if not points or (tokens > points[-1][1] and logged_s > points[-1][0]):
            points.append((logged_s, tokens))
        while len(points) > 2 and points[1][0] <= points[-1][0] - WINDOW_S:
            points.popleft()
        if len(points) < 2:
            return None
        (first_s, first), (last_s, last) = points[0], points[-1]
        longest_s = max(after[0] - before[0] for before, after in zip(points, list(points)[1:], strict=False))
        silent_s = now_s - last_s
        if silent_s <= 2 * longest_s:
            return (last - first) / (last_s - first_s)
        if silent_s > max(WINDOW_S, 10 * longest_s):
            return 0.0
        return (last - first) / (now_s - first_s)
