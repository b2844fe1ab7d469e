"""GPM as the agent sees it: a collector of its own beside the GPUs, out of the same frames."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from clusterwatt.clock import STALE_INTERVALS
from clusterwatt.driver.frames import Frame, GpmFrame
from clusterwatt.readings.agent import CollectorState
from clusterwatt.readings.base import Failure

NAME = "gpm"


class GpmState:
    """How GPM fares over all driver hosts. `heard` is called by the listener's thread."""

    def __init__(self, born_s: float, every_seconds: float, deadline_seconds: float) -> None:
        self._last_good_s = born_s
        self.use(every_seconds, deadline_seconds)
        self._frame: tuple[float, GpmFrame] | None = None
        self._offered: bool | None = None
        self._failures: collections.deque[Failure] = collections.deque(maxlen=1000)

    def use(self, every_seconds: float, deadline_seconds: float) -> None:
        """Go on by another cadence."""
        self._stale_s = STALE_INTERVALS * every_seconds
        self._deadline_s = deadline_seconds

    def heard(self, frame: Frame) -> None:
        """Take what a frame says of GPM."""
        gpm = frame.gpm
        if gpm is None:
            return
        self._frame = (frame.sent_s, gpm)
        if gpm.offered is not None:
            self._offered = gpm.offered
        if gpm.read_s is not None:
            self._last_good_s = max(self._last_good_s, gpm.read_s)
        self._failures.extend(gpm.failures)

    def take_failures(self) -> list[Failure]:
        """Failures since the last call."""
        return [self._failures.popleft() for _ in range(len(self._failures))]

    def state(self, now_s: float) -> Iterator[CollectorState]:
        """Up while any GPU's GPM answers; nothing where no GPU offers it, nor before one has said."""
        if self._frame is None:
            return
        sent_s, gpm = self._frame
        fresh = now_s - sent_s <= self._stale_s
        stuck_s = now_s - gpm.call_since_s if gpm.call_since_s is not None else 0.0
        if self._offered is False or (self._offered is None and stuck_s <= self._deadline_s):
            return
        yield CollectorState(
            collector=NAME,
            up=float(fresh and gpm.read_s is not None and now_s - gpm.read_s <= self._stale_s),
            age_seconds=max(0.0, now_s - self._last_good_s),
            stuck_seconds=stuck_s if stuck_s > self._deadline_s else 0.0,
        )
