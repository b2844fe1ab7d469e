"""The thread of the driver host that waits for XIDs.

It alone touches the event set: it registers the GPUs that it is told of, waits, and gives the set back before
the driver is let go, because NVML must not be shut down while a thread waits (`stop` says whether it does).
"""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from clusterwatt.clock import Clock
from clusterwatt.log import ChangeLog
from clusterwatt.nvml.device import Device
from clusterwatt.nvml.errors import DriverError, GenerationOver
from clusterwatt.nvml.events import EventSet, NotOffered, Xid
from clusterwatt.nvml.session import Session
from clusterwatt.readings.gpu import DriverXid

log = logging.getLogger("clusterwatt.driver.events")

WAIT_MS = 500  # also the longest that it takes to leave, and to register a new GPU
BACK_OFF_S = 1.0  # a wait that fails would fail again at once, for ever


def heard_now(event: Xid, clock: Clock) -> DriverXid:
    """An event of the driver with the time at which it is heard: the driver gives none."""
    return DriverXid(
        uuid=event.uuid,
        xid=event.xid,
        wall_s=clock.wall_s(),
        monotonic_s=clock.monotonic_s(),
        gpu_instance=event.gpu_instance,
        compute_instance=event.compute_instance,
    )


class Watch(Protocol):
    """Hears of XIDs."""

    watched: tuple[str, ...]

    def watch(self, devices: Iterable[Device]) -> None:
        """Hear of the XIDs of these GPUs and no others."""
        ...

    def take(self) -> tuple[DriverXid, ...]:
        """What has come since the last call, oldest first."""
        ...

    def stop(self, within_s: float) -> bool:
        """Hear of nothing more; whether the driver was left within the time."""
        ...


class EventWatch:
    """Waits for the XIDs of all GPUs; `watch`, `take` and `stop` are called by other threads."""

    def __init__(self, session: Session, clock: Clock, deadline_s: float) -> None:
        self._events = EventSet(session)
        self._clock = clock
        self._deadline_s = deadline_s
        self._log = ChangeLog(log, clock)
        self._handles: Mapping[str, Any] = {}
        self._followed: Mapping[str, Any] = {}  # those of the last attempt to register
        self._found: collections.deque[DriverXid] = collections.deque(maxlen=10_000)
        self._registered = threading.Event()  # the first GPUs, or it could not be done
        self._leave = threading.Event()
        self._thread: threading.Thread | None = None
        self.watched: tuple[str, ...] = ()

    def watch(self, devices: Iterable[Device]) -> None:
        """Wait for the XIDs of these GPUs and no others; to be told again at each look for GPUs.

        A registration that failed is tried again then. The first time it waits for the registration, within
        the deadline of a call: what was never watched has no zero on the page.
        """
        self._handles = {device.uuid: device.handle for device in devices}
        if self._thread is None and self._handles:
            self._thread = threading.Thread(target=self._run, name="xids", daemon=True)
            self._thread.start()
            self._registered.wait(self._deadline_s)

    def take(self) -> tuple[DriverXid, ...]:
        """What has come since the last call, oldest first."""
        return tuple(self._found.popleft() for _ in range(len(self._found)))

    def stop(self, within_s: float) -> bool:
        """Ask the thread to leave and wait for it; whether it has left the driver."""
        self._leave.set()
        if self._thread is not None:
            self._thread.join(within_s)
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        while not self._leave.is_set():
            try:
                self._step()
            except (GenerationOver, NotOffered) as end:
                log.debug("no XIDs from the driver: %s", end)
                break  # the set is not given back: there is nobody to take it
            except DriverError as error:
                self._log.bad("", error.reason, f"waiting for XIDs failed, trying again: {error}")
                self._start_again()
            except Exception:
                log.exception("a bug of the agent, please report it")
                self._start_again()
        else:
            self._events.close()
        self.watched = ()
        self._registered.set()

    def _step(self) -> None:
        handles = self._handles
        if not handles:
            self._leave.wait(WAIT_MS / 1000)  # a set without GPUs would not wait
            return
        if handles is not self._followed:
            self._followed = handles
            for uuid, why in self._events.follow(handles).items():
                self._log.bad(uuid, why, f"no XIDs from GPU {uuid}, trying again: {why}")
            self.watched = self._events.registered
            self._registered.set()
        event = self._events.wait(WAIT_MS)
        self._log.good("", "waiting for XIDs works again")
        if event is not None:
            self._found.append(heard_now(event, self._clock))

    def _start_again(self) -> None:
        """A fresh set after a pause: a wait on one with a lost GPU fails for its neighbours too."""
        self._events.close()
        self._followed, self.watched = {}, ()
        self._registered.set()
        self._leave.wait(BACK_OFF_S)
