"""Tokens per second of runs that log only how many there were, or only the rate of one GPU."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

WINDOW_S = 120.0


def of_all_gpus(
    per_gpu: float | None, stated_gpus: float | None, held_gpus: int, nodes: int | None
) -> float | None:
    """The rate of a whole run from that of one GPU; None where it is not known how many GPUs the run has.

    `held_gpus`: of its job here, which are all when the job runs on one node.
    """
    gpus = stated_gpus if stated_gpus is not None else held_gpus if nodes == 1 else 0
    return None if per_gpu is None or not gpus else per_gpu * gpus


class TokenRate:
    """The mean rate of the last two minutes, by the run's own clock; longer where a run logs more rarely.

    It falls, and in the end is 0, while a run is silent: one that hangs has no rate.
    """

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()  # time, tokens
        self._longest_s = 0.0  # between two of them

    def take(self, tokens: float, logged_s: float, now_s: float) -> float | None:
        """The rate now, of a number that was logged at a time; None before a second one. Unix times."""
        points = self._points
        if points and tokens < points[-1][1]:  # it started over, or goes on from a checkpoint
            points.clear()
        if not points or (tokens > points[-1][1] and logged_s > points[-1][0]):
            self._append(logged_s, tokens)
        if len(points) < 2:
            return None
        (first_s, first), (last_s, last) = points[0], points[-1]
        silent_s = now_s - last_s
        if silent_s <= 2 * self._longest_s:
            return (last - first) / (last_s - first_s)
        if silent_s > max(WINDOW_S, 10 * self._longest_s):
            return 0.0
        return (last - first) / (now_s - first_s)

    def _append(self, logged_s: float, tokens: float) -> None:
        points = self._points
        points.append((logged_s, tokens))
        while len(points) > 2 and points[1][0] <= logged_s - WINDOW_S:
            points.popleft()
        times = [time_s for time_s, _ in points]
        self._longest_s = max((later - earlier for earlier, later in pairwise(times)), default=0.0)
