"""One daemon thread that makes one blocking call at a time.

A call on hardware can hang for ever (a dead mount, a driver in trouble), and a thread inside the kernel
cannot be ended. So each blocking source has a thread of its own, no second call is queued behind one that
has not come back, and the thread is a daemon: the process can exit without it. `ThreadPoolExecutor` and
`asyncio.to_thread` join their threads at exit and would hang with them.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from clusterwatt.clock import Clock

log = logging.getLogger("clusterwatt.worker")

T = TypeVar("T")


class Outcome(msgspec.Struct, Generic[T], frozen=True):
    """How one call ended: its result, or the exception it raised."""

    result: T | None
    error: Exception | None
    started_s: float
    ended_s: float


class Runs(Protocol):
    """Makes calls one after another; at most one is outstanding."""

    @property
    def busy_since_s(self) -> float | None:
        """Monotonic time at which the outstanding call was started; None while there is none."""
        ...

    def start(self, call: Callable[[], T], done: Callable[[Outcome[T]], None]) -> bool:
        """Start `call` and report its outcome to `done`; False while an earlier one is outstanding."""
        ...

    def stop(self, last: Callable[[], None] | None = None) -> None:
        """Make no further call but `last`."""
        ...


MakeWorker = Callable[[str, Clock], Runs]


class AtOnce:
    """Makes each call where it is started, for what answers at once, as simulated hardware does.

    Hundreds of simulated devices then need no thread, and a tick that has returned has everything.
    """

    busy_since_s: float | None = None

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock

    def start(self, call: Callable[[], T], done: Callable[[Outcome[T]], None]) -> bool:
        """Make the call and report its outcome; True."""
        started_s = self._clock.monotonic_s()
        result, error = None, None
        try:
            result = call()
        except Exception as raised:  # the caller decides what a failure means
            error = raised
        done(Outcome(result, error, started_s, self._clock.monotonic_s()))
        return True

    def stop(self, last: Callable[[], None] | None = None) -> None:
        """Make the last call."""
        if last is not None:
            last()


class Worker:
    """Runs calls one after another on its own thread; at most one is outstanding."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._busy_since_s: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"worker-{name}", daemon=True)
        self._thread.start()

    @property
    def busy_since_s(self) -> float | None:
        """Monotonic time at which the outstanding call was started; None while there is none."""
        return self._busy_since_s

    def start(self, call: Callable[[], T], done: Callable[[Outcome[T]], None]) -> bool:
        """Start `call` and report its outcome to `done`, on the worker's thread.

        Returns False, and does nothing, while an earlier call is outstanding. To be called from one thread
        only: there is no lock around the check.
        """
        if self._busy_since_s is not None:
            return False
        started_s = self._busy_since_s = self._clock.monotonic_s()

        def run() -> None:
            result, error = None, None
            try:
                result = call()
            except Exception as raised:  # the caller decides what a failure means
                error = raised
            self._busy_since_s = None
            try:
                done(Outcome(result, error, started_s, self._clock.monotonic_s()))
            except Exception:  # must not end the thread: its source would stand still for ever
                log.exception("%s: a bug of the agent, please report it", self._thread.name)

        self._calls.put(run)
        return True

    def stop(self, last: Callable[[], None] | None = None) -> None:
        """End the thread once its outstanding call, if any, has come back; no call may be started after.

        `last` is called on it before it ends.
        """
        if last is not None:
            self._calls.put(last)
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


class Countdown:
    """Calls `done` from the thread that brings the count to zero; when `eager`, from each that lowers it."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self.left = count
        self.eager = False
        self._done = done
        self._lock = threading.Lock()

    def tick(self) -> None:
        """Count down by one."""
        with self._lock:
            self.left -= 1
            call = self.left == 0 or self.eager
        if call:
            self._done()
