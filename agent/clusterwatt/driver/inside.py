"""A driver host inside the agent's process, without threads: for a simulated driver, which never hangs.

It makes a frame when it is told to, so that many nodes can live in one process (`clusterwatt.fleet`).
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from clusterwatt.clock import Clock
from clusterwatt.driver.client import Heard
from clusterwatt.driver.events import heard_now
from clusterwatt.driver.frames import HostSettings
from clusterwatt.driver.host import SLOW_SHARE, Host
from clusterwatt.nvml.call_times import CallTimes
from clusterwatt.nvml.device import Device
from clusterwatt.nvml.errors import DriverError
from clusterwatt.nvml.events import EventSet
from clusterwatt.nvml.session import Session
from clusterwatt.readings.gpu import DriverXid
from clusterwatt.worker import AtOnce


class HostInside:
    """One driver host; `tick` makes it speak. `binding`: a module `pynvml` of its own, with its library."""

    def __init__(
        self, settings: HostSettings, heard: Heard, clock: Clock, binding: ModuleType, pid: int
    ) -> None:
        self.pid = pid
        self._heard = heard
        times = CallTimes()
        session = Session(
            simulated=True,
            clock=clock,
            took=times.took,
            slow_s=SLOW_SHARE * settings.deadline_seconds,
            binding=binding,
        )
        self._host = Host(settings, session, clock, times, make_worker=AtOnce, make_watch=EventsAtOnce)
        self._ended = False

    def tick(self) -> None:
        """Read the driver and say what it said."""
        if self._ended:
            return
        frame = self._host.tick()
        self._heard(self, frame)
        if frame.leaving:
            self._end()

    @property
    def exit_status(self) -> int | None:
        """0 once it has ended."""
        return 0 if self._ended else None

    def listen(self) -> None:
        """It speaks when it is told to."""

    def ask_to_leave(self) -> None:
        """End."""
        self._end()

    def kill(self) -> None:
        """End."""
        self._end()

    def wait(self, timeout_s: float) -> bool:
        """It has ended when it was asked to."""
        return self._ended

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._host.close()


class EventsAtOnce:
    """Looks for XIDs when it is asked, where `EventWatch` waits for them on a thread."""

    def __init__(self, session: Session, clock: Clock, deadline_s: float) -> None:
        self._events = EventSet(session)
        self._clock = clock
        self.watched: tuple[str, ...] = ()

    def watch(self, devices: Iterable[Device]) -> None:
        """Hear of the XIDs of these GPUs and no others."""
        try:
            self._events.follow({device.uuid: device.handle for device in devices})
        except DriverError:  # tried again at the next look for GPUs
            self._events.close()
        self.watched = self._events.registered

    def take(self) -> tuple[DriverXid, ...]:
        """What has come since the last call, oldest first."""
        found = []
        try:
            while self.watched and (event := self._events.wait(0)) is not None:
                found.append(heard_now(event, self._clock))
        except DriverError:
            self._events.close()
            self.watched = ()
        return tuple(found)

    def stop(self, within_s: float) -> bool:
        """Give the event set back."""
        self._events.close()
        self.watched = ()
        return True
