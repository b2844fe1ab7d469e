"""Work that would hold up the event loop, done once for each snapshot on one thread beside it."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from clusterwatt.readings.snapshot import Snapshot

T = TypeVar("T")

Job = Callable[[], None]


class Press:
    """One daemon thread that does jobs in the order in which they come."""

    def __init__(self, name: str = "press") -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def do(self, make: Callable[[], T]) -> asyncio.Future[T]:
        """Call `make` on the thread; the future belongs to the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                made = make()
            except Exception as error:  # goes to whoever awaits the future
                report(future.set_exception, error)
            else:
                report(future.set_result, made)

        def report(settle: Callable[[Any], None], outcome: object) -> None:
            try:
                loop.call_soon_threadsafe(settle, outcome)
            except RuntimeError:  # the loop has been closed in the meantime: nobody waits any more
                return

        self._jobs.put(job)
        return future

    def stop(self) -> None:
        """End the thread when it has done what it was given."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class Edition:
    """A snapshot and what has been made of it so far, each thing made at most once."""

    def __init__(self, snapshot: Snapshot, press: Press) -> None:
        self.snapshot = snapshot
        self.counted = (
            False  # whether its series are in the totals of the site: one page counts, of two formats
        )
        self._press = press
        self._made: dict[Hashable, asyncio.Future[Any]] = {}

    async def get(self, name: Hashable, make: Callable[[], T]) -> T:
        """What is known by that name: the first to ask has it made, all others wait for the same."""
        future: asyncio.Future[T] | None = self._made.get(name)
        if future is None:
            future = self._made[name] = self._press.do(make)
        return await asyncio.shield(future)  # a client that leaves does not take it from the others
