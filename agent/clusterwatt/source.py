"""A collector with its thread, its cadence and its account: what it said last, and how it fared."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from clusterwatt.clock import Clock
from clusterwatt.collectors import Collector
from clusterwatt.readings import (
    CollectorDuration,
    CollectorErrors,
    CollectorState,
    Failure,
    Reading,
)
from clusterwatt.worker import Outcome, Worker

log = logging.getLogger("clusterwatt.collectors")

STALE_INTERVALS = 3

ByType = Mapping[type[Reading], tuple[Any, ...]]


def by_type(readings: Iterable[Reading]) -> ByType:
    """Readings in their order, parted by type."""
    parts: dict[type[Reading], list[Reading]] = {}
    for reading in readings:
        parts.setdefault(type(reading), []).append(reading)
    return {kind: tuple(part) for kind, part in parts.items()}


def reason_of(error: BaseException) -> str:
    """The short word for a failed pass: a label value, so from a small set."""
    if isinstance(error, PermissionError):
        return "permission"
    if isinstance(error, OSError):
        return "timeout" if error.errno == errno.ETIMEDOUT else "io_error"
    return "bug"


class Account:
    """Passes and failures of one collector; lives on over a reload of the configuration."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors: dict[str, int] = {}
        self.passes = 0
        self.duration_s = 0.0

    def failed(self, reason: str) -> None:
        """Count a failure."""
        self.errors[reason] = self.errors.get(reason, 0) + 1

    def readings(self) -> Iterator[Reading]:
        """The account as readings."""
        if self.passes:
            yield CollectorDuration(
                collector=self.name, duration_sum_seconds=self.duration_s, passes=float(self.passes)
            )
        for reason, count in self.errors.items():
            yield CollectorErrors(collector=self.name, reason=reason, errors=float(count))


class Source:
    """Runs one collector on its own thread. A hanging call costs this source, never another."""

    def __init__(self, collector: Collector, every_s: float, clock: Clock, account: Account) -> None:
        self.name = collector.name
        self.account = account
        self._collector = collector
        self._every_s = every_s
        self._clock = clock
        self._worker = Worker(collector.name, clock)
        self._born_s = clock.monotonic_s()
        self._next_s = self._born_s
        self._newest: tuple[float, ByType] | None = None
        self._unreported: list[Failure] = []
        self._failing = False

    def start(self, now_s: float, answered: Callable[[], None]) -> bool:
        """Start a pass if one is due and none is outstanding; `answered` is called on the source's thread."""
        if now_s < self._next_s or self._worker.busy_since_s is not None:
            return False

        def done(outcome: Outcome[list[Reading]]) -> None:
            self._take(outcome)
            answered()

        started = self._worker.start(lambda: list(self._collector.collect()), done)
        # On the grid of the cadence, so that a late pass does not shift the ones after it.
        self._next_s += self._every_s * max(1, int((now_s - self._next_s) / self._every_s) + 1)
        return started

    def fresh(self, now_s: float) -> ByType:
        """Readings of the newest good pass; nothing once they are older than three intervals."""
        if self._newest is None or now_s - self._newest[0] > STALE_INTERVALS * self._every_s:
            return {}
        return self._newest[1]

    def state(self, now_s: float) -> Iterator[Reading]:
        """How the source fares; nothing for one that never had anything to read."""
        yield from self.account.readings()
        newest = self._newest
        if newest is not None and not newest[1] and not self.account.errors:
            return
        busy_since_s = self._worker.busy_since_s
        stuck_s = now_s - busy_since_s if busy_since_s is not None else 0.0
        age_s = now_s - (self._born_s if newest is None else newest[0])
        good = newest is not None and not self._failing and age_s <= STALE_INTERVALS * self._every_s
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
            error = outcome.error or RuntimeError("no result")
            reason = reason_of(error)
            self.account.failed(reason)
            if not self._failing:
                log.error("%s: %s", self.name, error, exc_info=error if reason == "bug" else None)
            self._failing = True
            return
        if self._failing:
            log.info("%s: reads again", self.name)
        self._failing = False
        failures = [reading for reading in outcome.result if isinstance(reading, Failure)]
        for failure in failures:
            self.account.failed(failure.reason)
        self._newest = (
            outcome.started_s,
            by_type(reading for reading in outcome.result if not isinstance(reading, Failure)),
        )
