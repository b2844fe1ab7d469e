"""One tick: start what is due, gather, measure, publish an immutable snapshot.

The first snapshot of a tick is published as soon as everything that was started has answered, at the latest
after a short while: a slow source must not age the others. What answers later is published when it comes.
Nothing here opens a file or a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from clusterwatt.bookkeeping import Bookkeeping
from clusterwatt.clock import Clock, next_point_s
from clusterwatt.driver.client import DriverClient
from clusterwatt.learnt import Learnt
from clusterwatt.measuring import Meters
from clusterwatt.readings.base import ByType, Reading, by_type
from clusterwatt.readings.gpu_measured import HardwareEvent
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.source import Source
from clusterwatt.worker import Countdown

log = logging.getLogger("clusterwatt.pipeline")

CLOSE_AFTER = 0.1  # of an interval: kernel counters then are at most 1.1 intervals old when scraped
LATE_UNTIL = 0.9
FAILURES_IN_A_ROW = 3
# Sources of who holds what, or a simulation in their place.
ALLOCATION = frozenset({"slurm", "kubernetes", "container", "process", "simulated_jobs"})


def _nobody_waits() -> None:
    """Of a source that answers at once."""


class Pipeline:
    """Holds the sources and the meters, and publishes a snapshot at each tick."""

    def __init__(
        self,
        sources: Sequence[Source],
        driver: DriverClient | None,
        clock: Clock,
        publish: Callable[[Snapshot], None],
        *,
        every_s: float = 1.0,
        about_agent: Callable[[], Iterable[Reading]] = tuple,
        books: Bookkeeping | None = None,
        learnt: Learnt | None = None,
    ) -> None:
        self._sources = sources
        self._driver = driver
        self._clock = clock
        self._publish_to = publish
        self._every_s = every_s
        self._about_agent = about_agent
        self._meters = Meters(clock, learnt)
        self._books = books
        self._event_takers: list[Callable[[HardwareEvent], None]] = []
        self._number = 0
        self.last_tick_s: float | None = None

    def use(self, sources: Sequence[Source], driver: DriverClient | None) -> None:
        """Go on with other sources from the next tick; meters and totals stay."""
        self._sources = sources
        self._driver = driver

    def on_event(self, take: Callable[[HardwareEvent], None]) -> None:
        """Call `take` with each XID and SXid, once, before the snapshot that counts it is published.

        It runs within the tick, so it must not wait for anything.
        """
        self._event_takers.append(take)

    async def run(self, stop: asyncio.Event) -> None:
        """Tick on a fixed grid until told to stop.

        A tick that fails is logged and the next goes on; raises the error after three in a row.
        """
        failed = 0
        while not stop.is_set():
            next_s = next_point_s(self._clock.monotonic_s(), self._every_s)
            try:
                await self.tick()
                failed = 0
            except Exception:
                failed += 1
                log.exception("tick failed")
                if failed == FAILURES_IN_A_ROW:
                    raise
            try:
                await asyncio.wait_for(stop.wait(), max(0.0, next_s - self._clock.monotonic_s()))
            except asyncio.TimeoutError:
                continue

    async def tick(self) -> None:
        """Start what is due and publish what came, again whenever something comes late."""
        started_s = self._clock.monotonic_s()
        if self._driver is not None:
            self._driver.supervise()
        answered = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # a call that hung came back after the end of the loop
                loop.call_soon_threadsafe(answered.set)

        # Every source and the driver count once: when they answer, or here when they were not started.
        countdown = Countdown(len(self._sources) + 1, wake)
        for source in self._sources:
            if not source.start(started_s, countdown.tick):
                countdown.tick()
        if self._driver is None or not self._driver.expect_frame(countdown.tick):
            countdown.tick()
        await self._until(answered, started_s + CLOSE_AFTER * self._every_s)
        late_s = min(started_s + LATE_UNTIL * self._every_s, next_point_s(started_s, self._every_s))
        countdown.eager = True
        missing = countdown.left
        self._publish()
        while missing > 0 and (countdown.left < missing or await self._until(answered, late_s)):
            answered.clear()
            missing = countdown.left
            self._publish()
        self.last_tick_s = self._clock.monotonic_s()

    def tick_at_once(self) -> None:
        """A tick that waits for nothing: for sources and a driver host that answer when they are started."""
        now_s = self._clock.monotonic_s()
        for source in self._sources:
            source.start(now_s, _nobody_waits)
        self._publish()
        self.last_tick_s = now_s

    async def _until(self, event: asyncio.Event, deadline_s: float) -> bool:
        if event.is_set():
            return True
        try:
            await asyncio.wait_for(event.wait(), max(0.0, deadline_s - self._clock.monotonic_s()))
        except asyncio.TimeoutError:
            return False
        return True

    def _publish(self) -> None:
        now_s = self._clock.monotonic_s()
        parts: dict[type[Reading], tuple[Any, ...]] = {}
        read_s: dict[type[Reading], float] = {}
        for source in self._sources:
            fresh = source.fresh(now_s)
            for kind, found in fresh.items():  # several sources may have readings of one type
                parts[kind] = parts.get(kind, ()) + found
            read_s.update(dict.fromkeys(fresh, source.read_s))
        if self._books is not None:
            self._meters.go_on_with(self._books.signals)
        if self._driver is not None:
            said = self._driver.parts()
            held = None if self._books is None else self._books.held_uuids  # as of the last tick
            parts.update(self._meters.measure_gpus(said, self._driver, held))
        other_ratio = 0.0 if self._books is None else self._books.other_ratio
        parts.update(by_type(self._meters.measure_node(parts, read_s, other_ratio)))
        parts.update(by_type(self._meters.measure_xids(parts, self._driver)))
        events = self._meters.take_events()
        self._tell_of(events)
        loose: list[Reading] = list(self._about_agent())
        if self._books is not None:
            loose.extend(self._booked(self._books, parts, events, now_s))
        for source in self._sources:
            loose.extend(source.state(now_s))
        if self._driver is not None:
            loose.append(self._driver.state())
            loose.extend(self._driver.gpm.state(now_s))
        loose.extend(self._meters.accounts())
        parts.update(by_type(loose))
        self._number += 1
        self._publish_to(
            Snapshot(tick=self._number, wall_s=self._clock.wall_s(), monotonic_s=now_s, readings=parts)
        )

    def _booked(
        self, books: Bookkeeping, parts: ByType, events: Sequence[HardwareEvent], now_s: float
    ) -> list[Reading]:
        sources = {
            source.name: source.answers(now_s) for source in self._sources if source.name in ALLOCATION
        }
        every_s = self._every_s if self._driver is None else self._driver.every_seconds
        return books.take(parts, sources, events, now_s=now_s, every_s=every_s)

    def _tell_of(self, events: Sequence[HardwareEvent]) -> None:
        for event in events:
            for take in self._event_takers:
                try:
                    take(event)
                except Exception:  # one taker must not keep the others, or the page, from an XID
                    log.exception("a bug of the agent, please report it")
