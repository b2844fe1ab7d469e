"""When a driver host is started, given up and replaced: rules without processes, so that they can be tested.

A host that ends (a crash, a changed driver) is followed by a fresh one: at once the first time, then after
pauses that double up to a minute. A host that runs but sends nothing is in trouble inside the driver. Killing
such a process has frozen GPUs, so it is asked to leave and, unless the operator allows SIGKILL, left alone:
one such leftover is tolerated beside a fresh host, and only so many replacements an hour. Beyond that the GPU
part stays off and says so, until a leftover ends or the hour is over.
"""

from __future__ import annotations

import enum

from clusterwatt.config.model import Driver

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
HEALTHY_AFTER_S = 60.0  # a host that ran for so long has earned a first, quick restart again
HOUR_S = 3600.0


class Order(enum.Enum):
    """What the client has to do now."""

    NOTHING = enum.auto()
    START = enum.auto()
    ASK_TO_LEAVE = enum.auto()
    KILL = enum.auto()
    ABANDON = enum.auto()  # leave the process running, stop listening to it


class Supervision:
    """State of one driver host at a time, and of what is left of its predecessors. All times monotonic."""

    def __init__(self, settings: Driver) -> None:
        self._settings = settings
        self._running = False
        self._started_s = 0.0
        self._heard_s = 0.0
        self._asked_to_leave_s: float | None = None
        self._killed = False
        self._start_at_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._replacements: list[float] = []
        self._leftovers = 0
        self.starts = 0
        self.off_reason = ""

    def use(self, settings: Driver) -> None:
        """Go on by other settings; what has happened stays."""
        self._settings = settings

    def started(self, now_s: float) -> None:
        """A host was started."""
        self._running, self._started_s, self._heard_s = True, now_s, now_s
        self.off_reason = ""
        self._asked_to_leave_s, self._killed = None, False
        self.starts += 1

    def heard(self, now_s: float) -> None:
        """A frame came from the running host."""
        self._heard_s = now_s

    def ended(self, now_s: float) -> None:
        """The running host has ended; plan the next start."""
        self._running = False
        if now_s - self._started_s >= HEALTHY_AFTER_S:
            self._pause_s = FIRST_PAUSE_S
        self._start_at_s = now_s + self._pause_s
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def leftover_ended(self) -> None:
        """An abandoned host has ended after all."""
        self._leftovers -= 1

    def order(self, now_s: float) -> Order:
        """What to do now; to be asked at every tick. The caller reports back through the other methods."""
        if self._running:
            return self._order_running(now_s)
        self._replacements = [then for then in self._replacements if now_s - then < HOUR_S]
        gave_up = len(self._replacements) > self._settings.max_replacements_per_hour
        self.off_reason = "gave_up" if gave_up else ""
        return Order.START if not gave_up and now_s >= self._start_at_s else Order.NOTHING

    def _order_running(self, now_s: float) -> Order:
        if self._asked_to_leave_s is None:
            if now_s - self._heard_s < self._settings.silent_seconds:
                return Order.NOTHING
            self._asked_to_leave_s = now_s
            self._replacements.append(now_s)
            return Order.ASK_TO_LEAVE
        if now_s - self._asked_to_leave_s < self._settings.grace_seconds:
            return Order.NOTHING
        if self._settings.kill_hung and not self._killed:
            self._killed = True
            self._asked_to_leave_s = now_s  # a killed process may still sit in the kernel: wait once more
            return Order.KILL
        if self._leftovers:
            self.off_reason = "hung"
            return Order.NOTHING
        self._leftovers += 1
        self.ended(now_s)
        return Order.ABANDON
