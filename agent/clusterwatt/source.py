"""A collector with its thread, its cadence and its account: what it said last, and how it fared."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator

from clusterwatt.clock import EARLY, STALE_INTERVALS, Clock, next_point_s
from clusterwatt.collectors import Closing, Collector
from clusterwatt.log import ChangeLog
from clusterwatt.readings.agent import CollectorDuration, CollectorErrors, CollectorState
from clusterwatt.readings.base import ByType, Failure, Reading, by_type
from clusterwatt.worker import MakeWorker, Outcome, Worker

log = logging.getLogger("clusterwatt.collectors")

WHOLE = ""  # the item of a failure of the source itself, whose last word or substitute is handed on


def reason_of(error: BaseException) -> str:
    """The short word for a failed pass: a label value, so from a small set."""
    if isinstance(error, PermissionError):
        return "permission"
    if isinstance(error, OSError):
        return "timeout" if error.errno == errno.ETIMEDOUT else "io_error"
    return "bug"


class Account:
    """Passes and failures of one collector; lives on over a reload of the configuration.

    Belongs to the collector's thread, but for `readings`, which may be asked by another.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.errors: dict[str, int] = {}
        self.passes = 0
        self.duration_s = 0.0
        self.failing = False
        self._log = ChangeLog(log, clock, tells_causes=True)
        self._failing_items: frozenset[str] = frozenset()

    def pass_failed(self, error: BaseException) -> None:
        """Count and log a pass that gave nothing."""
        reason = reason_of(error)
        self._count(reason)
        self.failing = True
        self._log.bad(WHOLE, reason, f"{self.name}: {error}")
        if reason == "bug":
            log.error("%s: a bug of the agent, please report it", self.name, exc_info=error)

    def without_failures(self, readings: Iterable[Reading]) -> list[Reading]:
        """Take a pass that came back: count and log the failures in it, give back the rest.

        It was good unless one of them is of the source itself.
        """
        rest, failing = [], set()
        for reading in readings:
            if type(reading) is Failure:  # `isinstance` asks a metaclass: six times as long, for each reading
                failing.add(reading.item)
                if reading.ongoing:
                    continue
                self._count(reading.reason)
                where = ": ".join(part for part in (self.name, reading.item) if part)
                text = f"{where}: {reading.reason} {reading.detail}".rstrip()
                self._log.bad(reading.item, reading.reason, text)
            else:
                rest.append(reading)
        for item in self._failing_items - failing - {WHOLE}:
            self._log.good(item, f"{self.name}: {item}: well again")
        self._failing_items = frozenset(failing)
        if self.failing and WHOLE not in failing:
            self._log.good(WHOLE, f"{self.name}: reads again")
        self.failing = WHOLE in failing
        return rest

    def readings(self) -> Iterator[Reading]:
        """The account as readings."""
        if self.passes:
            yield CollectorDuration(
                collector=self.name, duration_sum_seconds=self.duration_s, passes=float(self.passes)
            )
        for reason, count in list(self.errors.items()):
            yield CollectorErrors(collector=self.name, reason=reason, errors=float(count))

    def _count(self, reason: str) -> None:
        self.errors[reason] = self.errors.get(reason, 0) + 1


class Source:
    """Runs one collector on its own thread. A hanging call costs this source, never another."""

    def __init__(
        self,
        collector: Collector,
        every_s: float,
        clock: Clock,
        account: Account,
        make_worker: MakeWorker = Worker,
    ) -> None:
        self.name = collector.name
        self.account = account
        self._collector = collector
        self._every_s = every_s
        self._clock = clock
        self._worker = make_worker(collector.name, clock)
        self._born_s = clock.monotonic_s()
        self._next_s = self._born_s
        self._newest: tuple[float, ByType] | None = None
        self._good_s = self._born_s

    def start(self, now_s: float, answered: Callable[[], None]) -> bool:
        """Start a pass if one is due and none is outstanding; `answered` is called on the source's thread."""
        if now_s < self._next_s - EARLY * self._every_s or self._worker.busy_since_s is not None:
            return False

        def done(outcome: Outcome[list[Reading]]) -> None:
            self._take(outcome)
            answered()

        self._next_s = next_point_s(now_s, self._every_s)
        return self._worker.start(lambda: list(self._collector.collect()), done)

    def close(self) -> None:
        """End the source's thread; what it still reads is thrown away."""
        self._worker.stop(self._collector.close if isinstance(self._collector, Closing) else None)

    @property
    def read_s(self) -> float:
        """Monotonic time at which the newest good pass began; when the source was made, before the first."""
        return self._born_s if self._newest is None else self._newest[0]

    def fresh(self, now_s: float) -> ByType:
        """Readings of the newest good pass; nothing once they are older than three intervals."""
        if self._newest is None or now_s - self._newest[0] > STALE_INTERVALS * self._every_s:
            return {}
        return self._newest[1]

    def answers(self, now_s: float) -> bool:
        """Whether a good pass has ended within three intervals, be it one with nothing to tell."""
        newest = self._newest
        return newest is not None and now_s - newest[0] <= STALE_INTERVALS * self._every_s

    def state(self, now_s: float) -> Iterator[Reading]:
        """How the source fares; nothing for one that never had anything to read."""
        yield from self.account.readings()
        newest = self._newest
        busy_since_s = self._worker.busy_since_s
        stuck_s = now_s - busy_since_s if busy_since_s is not None else 0.0
        if newest is not None and not newest[1] and not self.account.errors and stuck_s <= self._every_s:
            return
        age_s = now_s - self._good_s
        good = newest is not None and not self.account.failing and age_s <= STALE_INTERVALS * self._every_s
        yield CollectorState(
            collector=self.name,
            up=float(good),
            age_seconds=max(0.0, age_s),
            stuck_seconds=stuck_s if stuck_s > self._every_s else 0.0,
        )

    def _take(self, outcome: Outcome[list[Reading]]) -> None:
        """Keep a pass; runs on the source's thread. Single references are replaced, nothing is locked."""
        self.account.passes += 1
        self.account.duration_s += outcome.ended_s - outcome.started_s
        if outcome.result is None:
            self.account.pass_failed(outcome.error or RuntimeError("no result"))
            return
        self._newest = (outcome.started_s, by_type(self.account.without_failures(outcome.result)))
        if not self.account.failing:
            self._good_s = outcome.started_s
