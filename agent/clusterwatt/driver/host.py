"""The driver host: the one process that loads NVML. Started by `driver.client`, one frame a cadence.

The main thread never calls the driver: it keeps time and writes frames, so the agent hears from a host whose
driver hangs. One thread opens the session and looks for devices, one thread reads each GPU. A call that does
not come back costs its own thread: nothing is queued behind it, the other GPUs go on.

The host ends by itself when its NVML generation is over (driver unloaded, replaced, library and kernel module
at odds): only a fresh process loads a fresh library.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import IO

import msgspec

from clusterwatt.clock import Clock, SystemClock
from clusterwatt.collectors.gpu import GpuReader
from clusterwatt.driver.frames import (
    DeviceFrame,
    DriverState,
    Frame,
    HostReading,
    HostSettings,
    read_message,
    write_message,
)
from clusterwatt.nvml.errors import DeviceTrouble, DriverUnavailable, GenerationOver
from clusterwatt.nvml.session import Device, Enumeration, Session
from clusterwatt.readings import Failure
from clusterwatt.worker import Countdown, Outcome, Worker

log = logging.getLogger("clusterwatt.driver.host")

FIRST_RETRY_S = 1.0
SEARCH_EVERY_S = 10.0
LEAVE_WITHIN_S = 2.0


class Pass(msgspec.Struct, frozen=True):
    """How the newest pass over a GPU ended: its readings and their time, or the reason why there are none."""

    read_s: float = 0.0
    readings: tuple[HostReading, ...] = ()
    reason: str = ""


class Slot:
    """One GPU, its thread, and its newest pass. The pass is replaced whole, so no lock is needed."""

    def __init__(self, device: Device, reader: GpuReader, clock: Clock) -> None:
        self.device = device
        self.reader = reader
        self.worker = Worker(f"gpu-{device.gpu}", clock)
        self.newest = Pass()
        self.failures: collections.deque[Failure] = collections.deque(maxlen=1000)
        self.over = ""  # why the generation is over, when this GPU's calls said so

    def take(self, outcome: Outcome[tuple[list[HostReading], list[Failure]]]) -> None:
        """Keep how a pass ended; runs on the GPU's own thread."""
        error = outcome.error
        if outcome.result is not None:
            readings, failures = outcome.result
            self.failures.extend(failures)
            self.newest = Pass(read_s=outcome.started_s, readings=tuple(readings))
        elif isinstance(error, GenerationOver):
            self.over = error.reason
        else:
            reason = error.reason if isinstance(error, DeviceTrouble) else "unknown"
            if not isinstance(error, DeviceTrouble):
                log.error("GPU %s: %r", self.device.gpu, error, exc_info=error)
            self.trouble(reason, str(error))

    def trouble(self, reason: str, detail: str) -> None:
        """Note that the GPU gave nothing, and why."""
        self.failures.append(Failure(item=self.device.uuid, reason=reason, detail=detail))
        self.newest = Pass(read_s=self.newest.read_s, reason=reason)

    def frame(self) -> DeviceFrame:
        """What goes out now; failures go out once."""
        newest = self.newest
        return DeviceFrame(
            gpu=self.device.gpu,
            uuid=self.device.uuid,
            reason=newest.reason,
            read_s=newest.read_s,
            call_since_s=self.worker.busy_since_s,
            readings=newest.readings,
            failures=tuple(self.failures.popleft() for _ in range(len(self.failures))),
        )


class Host:
    """Opens the driver, finds its GPUs, reads them; one `tick` makes one frame."""

    def __init__(self, settings: HostSettings, session: Session, clock: Clock) -> None:
        self._settings = settings
        self._session = session
        self._clock = clock
        self._driver = Worker("driver", clock)
        self._state = DriverState(up=False, reason="starting")
        self._answering = self._state  # the state to go back to when a call that hung has come back
        self._retry_s = FIRST_RETRY_S
        self._open_at_s = 0.0
        self._searched_s = float("-inf")
        self._slots: dict[str, Slot] = {}
        self._count = 0
        self._leaving = ""
        self._answers: collections.deque[
            tuple[Callable[[Outcome[Enumeration | None]], None], Outcome[Enumeration | None]]
        ] = collections.deque()

    def tick(self) -> Frame:
        """Read every GPU that is not hanging, wait for them until the deadline, say what is known."""
        started_s = self._clock.monotonic_s()
        deadline_s = started_s + self._settings.deadline_seconds
        self._ask_driver(started_s, deadline_s)
        if self._state.up:
            self._read_gpus(deadline_s)
        over = next((slot.over for slot in self._slots.values() if slot.over), "")
        if over:
            self._end(over)
        return Frame(
            sent_s=self._clock.monotonic_s(),
            driver=self._state,
            gpus_visible=self._count,
            devices=tuple(slot.frame() for slot in self._slots.values()),
            leaving=self._leaving,
        )

    def close(self) -> None:
        """Let go of the driver, unless a call is outstanding: shutting down beside it is not allowed."""
        busy = [slot.worker.busy_since_s for slot in self._slots.values()]
        if not self._state.up or any(since is not None for since in busy):
            return
        done = threading.Event()
        if self._driver.start(self._session.close, lambda _: done.set()):
            done.wait(LEAVE_WITHIN_S)

    def _ask_driver(self, now_s: float, deadline_s: float) -> None:
        """Open the session, or look for devices, on the driver's thread; take what it answered so far."""
        if self._driver.busy_since_s is None:
            if not self._state.up and not self._answers:
                if now_s >= self._open_at_s:
                    self._call(self._open, self._opened, deadline_s)
            elif self._state.up:
                troubled = any(slot.newest.reason for slot in self._slots.values())
                thorough = troubled or now_s - self._searched_s >= SEARCH_EVERY_S
                self._call(lambda: self._search(thorough=thorough), self._searched, deadline_s)
        while self._answers:
            take, outcome = self._answers.popleft()
            take(outcome)
        since_s = self._driver.busy_since_s
        if since_s is not None and self._clock.monotonic_s() - since_s >= self._settings.deadline_seconds:
            self._state = DriverState(up=False, reason="hung")

    def _call(
        self,
        call: Callable[[], Enumeration | None],
        take: Callable[[Outcome[Enumeration | None]], None],
        deadline_s: float,
    ) -> None:
        """Make a call on the driver's thread and wait for it until the deadline; its answer is queued."""
        ended = threading.Event()

        def done(outcome: Outcome[Enumeration | None]) -> None:
            self._answers.append((take, outcome))
            ended.set()

        if self._driver.start(call, done):
            ended.wait(max(0.0, deadline_s - self._clock.monotonic_s()))

    def _open(self) -> Enumeration:
        self._session.open()
        return self._session.enumerate()

    def _search(self, *, thorough: bool) -> Enumeration | None:
        """Look for devices when their number changed or it is time to look closely; None: nothing changed."""
        if not thorough and self._session.count() == self._count:
            return None
        return self._session.enumerate()

    def _opened(self, outcome: Outcome[Enumeration | None]) -> None:
        error = outcome.error
        if outcome.result is not None:
            versions = self._session.versions()
            self._answering = DriverState(
                up=True, driver=versions.driver, nvml=versions.nvml, cuda=versions.cuda
            )
            self._state = self._answering
            self._retry_s = FIRST_RETRY_S
            self._adopt(outcome.result)
        elif isinstance(error, DriverUnavailable):
            self._unavailable(error.reason, str(error))
        elif isinstance(error, GenerationOver):
            self._end(error.reason)
        else:
            log.error("driver: %r", error, exc_info=error)
            self._unavailable("unknown", repr(error))

    def _unavailable(self, reason: str, detail: str) -> None:
        if reason == "version_mismatch":
            self._end(reason)  # this process keeps the old library mapped: only a fresh one can do better
            return
        if self._state.reason != reason:
            log.warning("driver does not answer: %s (%s); trying again", reason, detail)
        self._state = DriverState(up=False, reason=reason)
        self._open_at_s = self._clock.monotonic_s() + self._retry_s
        self._retry_s = min(self._retry_s * 2, self._settings.retry_seconds)

    def _searched(self, outcome: Outcome[Enumeration | None]) -> None:
        error = outcome.error
        if outcome.result is not None:
            self._adopt(outcome.result)
        elif isinstance(error, GenerationOver):
            self._end(error.reason)
            return
        elif error is not None:
            log.error("looking for GPUs failed: %s", error)
        self._state = self._answering

    def _adopt(self, found: Enumeration) -> None:
        """Give each new GPU a slot, a known one its new handle and index, a vanished one its reason."""
        self._searched_s = self._clock.monotonic_s()
        self._count = found.count
        present = {device.uuid for device in found.devices}
        for device in found.devices:
            slot = self._slots.get(device.uuid)
            if slot is None or (slot.newest.reason and slot.worker.busy_since_s is None):
                reader = GpuReader(device, self._clock, slow_seconds=self._settings.slow_seconds)
                if slot is None:
                    slot = self._slots[device.uuid] = Slot(device, reader, self._clock)
                slot.device, slot.reader = device, reader
        for uuid, slot in self._slots.items():
            if uuid not in present and not slot.newest.reason:
                slot.trouble(found.reasons.get(slot.device.gpu, "lost"), "not among the driver's devices")

    def _read_gpus(self, deadline_s: float) -> None:
        idle = [slot for slot in self._slots.values() if slot.worker.busy_since_s is None]
        if not idle:
            return
        all_done = threading.Event()
        countdown = Countdown(len(idle), all_done.set)
        for slot in idle:

            def done(
                outcome: Outcome[tuple[list[HostReading], list[Failure]]], slot: Slot = slot
            ) -> None:
                slot.take(outcome)
                countdown.tick()

            slot.worker.start(slot.reader.read, done)
        all_done.wait(max(0.0, deadline_s - self._clock.monotonic_s()))

    def _end(self, reason: str) -> None:
        if not self._leaving:
            log.warning("driver generation is over: %s; this host ends", reason)
        self._leaving = reason
        self._state = DriverState(up=False, reason=reason)


def simulated_session(settings: HostSettings) -> None:
    """Put the simulated library below the binding."""
    from clusterwatt.simulate.faults import Faults
    from clusterwatt.simulate.nvml import SimulatedLibrary, install

    simulate = settings.simulate
    faults = Faults.from_file(simulate.faults_file) if simulate.faults_file else None
    install(SimulatedLibrary(simulate.profile, simulate.gpus, simulate.seed, time.time, faults))


def serve(host: Host, settings: HostSettings, out: IO[bytes], leave: threading.Event, clock: Clock) -> None:
    """Write a frame on each point of a fixed grid until told to leave or until the generation is over.

    The grid is that of the agent's ticks: whole multiples of the cadence on the common monotonic clock.
    """
    every_s = settings.every_seconds
    while not leave.is_set():
        frame = host.tick()
        write_message(out, frame)
        if frame.leaving:
            return
        now_s = clock.monotonic_s()
        leave.wait(every_s - now_s % every_s)


def main() -> None:
    """Serve frames on standard output until standard input ends, SIGTERM comes, or the driver changes."""
    leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the agent decides
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    message = read_message(sys.stdin.buffer)
    if message is None:
        return
    settings = msgspec.msgpack.decode(message, type=HostSettings)
    logging.basicConfig(level=settings.log_level.upper(), stream=sys.stderr)

    def watch_input() -> None:
        sys.stdin.buffer.read()
        leave.set()

    threading.Thread(target=watch_input, name="input", daemon=True).start()
    if settings.simulate.profile:
        simulated_session(settings)
    clock = SystemClock()
    host = Host(settings, Session(), clock)
    with contextlib.suppress(OSError):  # the agent has gone: nobody is left to tell
        serve(host, settings, sys.stdout.buffer, leave, clock)
    host.close()
    # Threads inside the driver cannot be joined; a normal exit would run into them.
    os._exit(0)


if __name__ == "__main__":
    main()
