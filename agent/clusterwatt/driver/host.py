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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from clusterwatt.clock import Clock, SystemClock, next_point_s
from clusterwatt.collectors.gpu import GpuReader
from clusterwatt.collectors.gpu_mig import InstancePass, Instances
from clusterwatt.driver.events import EventWatch, Watch
from clusterwatt.driver.frames import (
    DeviceFrame,
    DriverState,
    Frame,
    FrameWriter,
    HostSettings,
    read_message,
)
from clusterwatt.driver.gpm_host import GpmPart
from clusterwatt.driver.holding import ReleaseFlag
from clusterwatt.log import configure
from clusterwatt.node_pids import NodePids
from clusterwatt.nvml.call_times import CallTime, CallTimes
from clusterwatt.nvml.device import Device
from clusterwatt.nvml.errors import DeviceTrouble, DriverError, DriverUnavailable, GenerationOver
from clusterwatt.nvml.gpm import Target
from clusterwatt.nvml.session import Enumeration, Session, Versions
from clusterwatt.readings.base import Failure
from clusterwatt.readings.gpu import Group
from clusterwatt.worker import Countdown, MakeWorker, Outcome, Runs, Worker

log = logging.getLogger("clusterwatt.driver.host")

FIRST_RETRY_S = 1.0
SEARCH_EVERY_S = 10.0
LEAVE_WITHIN_S = 2.0
CALL_TIMES_EVERY_S = 10.0
SLOW_SHARE = 0.5  # of the deadline: a call that takes longer is made less often


class Pass(msgspec.Struct, frozen=True):
    """How the newest pass over a GPU ended: its readings and their time, or the reason why there are none."""

    read_s: float = 0.0
    groups: tuple[Group, ...] = ()
    reason: str = ""
    instances: tuple[InstancePass, ...] = ()  # of MIG; as they were last while there is a reason


class Answer(msgspec.Struct, frozen=True):
    """What the driver's thread found: versions when it opened the session, GPUs when it looked for them."""

    versions: Versions | None = None
    found: Enumeration | None = None


GpuPass = tuple[tuple[Group, ...], list[Failure], tuple[InstancePass, ...]]


class Slot:
    """One GPU, its MIG instances, its thread, and its newest pass.

    The pass is replaced whole, so no lock is needed.
    """

    def __init__(self, device: Device, reader: GpuReader, instances: Instances, worker: Runs) -> None:
        self.device = device
        self.reader = reader
        self.instances = instances
        self.worker = worker
        self.newest = Pass()
        self.failures: collections.deque[Failure] = collections.deque(maxlen=1000)
        self.absent = ""  # why the driver does not list it any more
        self.over = ""  # why the generation is over, when this GPU's calls said so
        self.released = False  # the operator wants it left alone

    def read(self) -> GpuPass:
        """Read the GPU, then its instances; on the GPU's own thread. Raises as `GpuReader.read`."""
        if self.instances.look():
            self.reader.read_anew()
        groups, failures = self.reader.read()
        instances = self.instances.read()
        return groups, failures + self.instances.take_failures(), instances

    def take(self, outcome: Outcome[GpuPass]) -> None:
        """Keep how a pass ended; runs on the GPU's own thread."""
        error = outcome.error
        if outcome.result is not None:
            groups, failures, instances = outcome.result
            self.failures.extend(failures)
            self.newest = Pass(read_s=outcome.started_s, groups=groups, instances=instances)
        elif isinstance(error, GenerationOver):
            self.over = error.reason
        else:
            reason = error.reason if isinstance(error, DeviceTrouble) else "unknown"
            if not isinstance(error, DeviceTrouble) and self.newest.reason != reason:
                log.error("GPU %s: a bug of the agent, please report it", self.device.gpu, exc_info=error)
            self.trouble(reason, str(error))

    def trouble(self, reason: str, detail: str) -> None:
        """Note that the GPU gave nothing, and why."""
        self.failures.append(Failure(item=self.device.uuid, reason=reason, detail=detail))
        self.newest = msgspec.structs.replace(self.newest, groups=(), reason=reason)

    @property
    def well(self) -> bool:
        """Whether the GPU has answered everything that was asked of it so far."""
        return self.may_be_read and not self.newest.reason

    @property
    def may_be_read(self) -> bool:
        """Whether the GPU is there, is not released, and no call on it is outstanding."""
        return self.worker.busy_since_s is None and not self.absent and not self.released

    def targets(self) -> Iterator[Target]:
        """The GPU and its instances as GPM is asked for them."""
        device = self.device
        yield Target(device.uuid, device.gpu, device.handle)
        for each in self.newest.instances:
            if each.gpu_instance is not None and not each.reason:
                yield Target(each.uuid, each.gpu, device.handle, each.gpu_instance, each.making)

    def frames(self) -> Iterator[DeviceFrame]:
        """What goes out now, of the GPU and of each instance; failures go out once."""
        newest = self.newest
        board = DeviceFrame(
            gpu=self.device.gpu,
            uuid=self.device.uuid,
            reason="released" if self.released else newest.reason,
            read_s=newest.read_s,
            call_since_s=self.worker.busy_since_s,
            groups=() if self.released else newest.groups,
            failures=tuple(self.failures.popleft() for _ in range(len(self.failures))),
        )
        yield board
        for each in newest.instances:
            yield msgspec.structs.replace(
                board,
                gpu=each.gpu,
                uuid=each.uuid,
                reason=board.reason or each.reason,
                groups=() if board.reason else each.groups,
                failures=(),
                parent_uuid=board.uuid,
            )


class Host:
    """Opens the driver, finds its GPUs, reads them; one `tick` makes one frame.

    `make_worker`, `make_watch`: who makes the calls on each GPU, and who waits for XIDs.
    """

    def __init__(
        self,
        settings: HostSettings,
        session: Session,
        clock: Clock,
        times: CallTimes | None = None,
        *,
        make_worker: MakeWorker = Worker,
        make_watch: Callable[[Session, Clock, float], Watch] = EventWatch,
    ) -> None:
        self._make_worker = make_worker
        self._settings = settings
        self._session = session
        self._clock = clock
        self._flag = ReleaseFlag(settings.release_file)
        self._times = times
        self._times_at_s = 0.0
        self._driver = make_worker("driver", clock)
        self._events = make_watch(session, clock, settings.deadline_seconds)
        self._gpm = GpmPart(session, clock, settings.every_seconds, make_worker)
        self._answers: collections.deque[Outcome[Answer]] = collections.deque()
        self._failures: collections.deque[Failure] = collections.deque(maxlen=100)  # of the driver as a whole
        self._versions: Versions | None = None  # known while the session is open
        self._reason = "starting"
        self._retry_s = FIRST_RETRY_S
        self._open_at_s = 0.0
        self._searched_s = 0.0
        self._slots: dict[str, Slot] = {}
        self._count = 0
        self._leaving = ""

    def tick(self) -> Frame:
        """Read every GPU that is not hanging, wait for them until the deadline, say what is known."""
        deadline_s = self._clock.monotonic_s() + self._settings.deadline_seconds
        self._ask_driver(deadline_s)
        if self._versions is not None:
            self._read_gpus(deadline_s)
            targets = [target for slot in self._slots.values() if slot.well for target in slot.targets()]
            if self._settings.gpm:
                self._gpm.sample(targets, deadline_s)
        over = next((slot.over for slot in self._slots.values() if slot.over), self._gpm.over)
        if over:
            self._end(over)
        return Frame(
            sent_s=self._clock.monotonic_s(),
            driver=self._driver_state(),
            gpus_visible=self._count,
            devices=tuple(frame for slot in self._slots.values() for frame in slot.frames()),
            leaving=self._leaving,
            xids=self._events.take(),
            xids_watched=self._events.watched,
            gpm=self._gpm.frame() if self._settings.gpm else None,
            calls=self._call_times(),
            failures=tuple(self._failures.popleft() for _ in range(len(self._failures))),
            search_since_s=self._driver.busy_since_s,
        )

    def _call_times(self) -> tuple[CallTime, ...]:
        """How long driver calls have taken; now and then, and in the last frame."""
        now_s = self._clock.monotonic_s()
        if self._times is None or (now_s < self._times_at_s and not self._leaving):
            return ()
        self._times_at_s = now_s + CALL_TIMES_EVERY_S
        return self._times.so_far()

    def close(self) -> None:
        """Let go of the driver, unless a call is outstanding: shutting down beside it is not allowed."""
        left = self._events.stop(LEAVE_WITHIN_S) and self._gpm.close(LEAVE_WITHIN_S)
        if self._versions is None or not left or any(self._hangs(s.worker) for s in self._slots.values()):
            return
        done = threading.Event()
        if self._driver.start(self._session.close, lambda _: done.set()):
            done.wait(LEAVE_WITHIN_S)

    def _driver_state(self) -> DriverState:
        """The driver answers while it is open and not everything that was asked of it hangs."""
        versions = self._versions
        workers = [slot.worker for slot in self._slots.values()] or [self._driver]
        if self._leaving:
            return DriverState(up=False, reason=self._leaving)
        if all(self._hangs(worker) for worker in workers):
            return DriverState(up=False, reason="hung")
        if versions is None:
            return DriverState(up=False, reason=self._reason)
        return DriverState(up=True, driver=versions.driver, nvml=versions.nvml, cuda=versions.cuda)

    def _hangs(self, worker: Runs) -> bool:
        since_s = worker.busy_since_s
        return since_s is not None and (
            self._clock.monotonic_s() - since_s >= self._settings.deadline_seconds
        )

    def _ask_driver(self, deadline_s: float) -> None:
        """Open the session, or look for GPUs, on the driver's thread; take what it has answered."""
        now_s = self._clock.monotonic_s()
        if self._driver.busy_since_s is None and not self._answers:
            if self._versions is not None:
                troubled = any(slot.newest.reason for slot in self._slots.values())
                thorough = troubled or now_s - self._searched_s >= SEARCH_EVERY_S
                self._call(lambda: self._search(thorough=thorough), deadline_s)
            elif now_s >= self._open_at_s:
                self._call(self._open, deadline_s)
        while self._answers:
            self._take(self._answers.popleft())

    def _call(self, call: Callable[[], Answer], deadline_s: float) -> None:
        """Make a call on the driver's thread and wait for it until the deadline; its answer is queued."""
        ended = threading.Event()

        def done(outcome: Outcome[Answer]) -> None:
            self._answers.append(outcome)
            ended.set()

        if self._driver.start(call, done):
            ended.wait(max(0.0, deadline_s - self._clock.monotonic_s()))

    def _open(self) -> Answer:
        self._session.open()
        return Answer(self._session.versions(), self._session.enumerate())

    def _search(self, *, thorough: bool) -> Answer:
        """Look for GPUs when their number changed or it is time to look closely."""
        if not thorough and self._session.count() == self._count:
            return Answer()
        return Answer(found=self._session.enumerate())

    def _take(self, outcome: Outcome[Answer]) -> None:
        answer, error = outcome.result, outcome.error
        if answer is not None:
            if answer.versions is not None:
                self._versions, self._retry_s = answer.versions, FIRST_RETRY_S
            if answer.found is not None:
                self._adopt(answer.found)
        elif isinstance(error, GenerationOver):
            self._end(error.reason)
        elif self._versions is None:
            known = isinstance(error, DriverUnavailable)
            self._unavailable(
                error.reason if isinstance(error, DriverUnavailable) else "unknown", error, known
            )
        else:
            reason = error.reason if isinstance(error, DriverError) else "unknown"
            self._failures.append(Failure(item="driver", reason=reason, detail=str(error)))

    def _unavailable(self, reason: str, error: Exception | None, known: bool) -> None:
        if reason == "version_mismatch":
            self._end(reason)  # this process keeps the old library mapped: only a fresh one can do better
            return
        if self._reason != reason:
            log.warning(
                "driver does not answer: %s (%s); trying again",
                reason,
                error,
                exc_info=None if known else error,
            )
        self._reason = reason
        self._open_at_s = self._clock.monotonic_s() + self._retry_s
        self._retry_s = min(self._retry_s * 2, self._settings.retry_seconds)

    def _adopt(self, found: Enumeration) -> None:
        """Give each new GPU a slot, and one that is not there any more its reason."""
        self._searched_s = self._clock.monotonic_s()
        self._count = found.count
        self._events.watch(found.devices)
        for device in found.devices:
            if device.uuid not in self._slots:
                clock, every_s = self._clock, self._settings.every_seconds
                slow_s = self._settings.slow_seconds
                pids = NodePids(self._settings.root) if self._settings.root else None
                reader = GpuReader(device, clock, every_seconds=every_s, slow_seconds=slow_s, pids=pids)
                instances = Instances(device, clock, every_seconds=every_s, slow_seconds=slow_s, pids=pids)
                worker = self._make_worker(f"gpu-{device.gpu}", clock)
                self._slots[device.uuid] = Slot(device, reader, instances, worker)
        present = {device.uuid for device in found.devices}
        for uuid, slot in self._slots.items():
            slot.absent = "" if uuid in present else found.reasons.get(slot.device.gpu, "lost")
            if slot.absent:
                slot.trouble(slot.absent, "not among the driver's devices")

    def _read_gpus(self, deadline_s: float) -> None:
        released = self._flag.look().uuids
        for slot in self._slots.values():
            slot.released = slot.device.uuid in released
        idle = [slot for slot in self._slots.values() if slot.may_be_read]
        all_done = threading.Event()
        countdown = Countdown(len(idle) + 1, all_done.set)
        for slot in idle:

            def done(outcome: Outcome[GpuPass], slot: Slot = slot) -> None:
                slot.take(outcome)
                countdown.tick()

            slot.worker.start(slot.read, done)
        countdown.tick()
        all_done.wait(max(0.0, deadline_s - self._clock.monotonic_s()))

    def _end(self, reason: str) -> None:
        if not self._leaving:
            log.warning("driver generation is over: %s; this host ends", reason)
        self._leaving = reason


def stand_in(settings: HostSettings) -> None:
    """Put the simulated or the recorded library below the binding. Raises BundleError."""
    simulate = settings.simulate
    if simulate.replay_file:
        from clusterwatt.nvml import bundle, capture

        capture.put_below(capture.Replay(bundle.read(Path(simulate.replay_file))))
        return
    from clusterwatt.simulate.faults import Faults
    from clusterwatt.simulate.nvml import SimulatedLibrary, install

    faults = Faults.from_file(Path(simulate.faults_file)) if simulate.faults_file else None
    install(SimulatedLibrary(simulate.profile, simulate.gpus, simulate.seed, SystemClock().wall_s, faults))


def serve(host: Host, settings: HostSettings, out: IO[bytes], leave: threading.Event, clock: Clock) -> None:
    """Write a frame on each point of a fixed grid until told to leave or until the generation is over.

    The grid is that of the agent's ticks: whole multiples of the cadence on the common monotonic clock.
    """
    every_s = settings.every_seconds
    frames = FrameWriter(out)
    while not leave.is_set():
        next_s = next_point_s(clock.monotonic_s(), every_s)
        frame = host.tick()
        frames.write(frame)
        if frame.leaving:
            return
        leave.wait(max(0.0, next_s - clock.monotonic_s()))


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
    configure(settings.log_level, settings.log_format)

    def watch_input() -> None:
        sys.stdin.buffer.read()
        leave.set()

    threading.Thread(target=watch_input, name="input", daemon=True).start()
    simulate = settings.simulate
    if simulate.profile or simulate.replay_file:
        stand_in(settings)
    clock = SystemClock()
    times = CallTimes()
    session = Session(
        simulated=bool(simulate.profile),
        replayed=bool(simulate.replay_file),
        clock=clock,
        took=times.took,
        slow_s=SLOW_SHARE * settings.deadline_seconds,
        library_roots=settings.library_roots,
    )
    host = Host(settings, session, clock, times)
    with contextlib.suppress(OSError):  # the agent has gone: nobody is left to tell
        serve(host, settings, sys.stdout.buffer, leave, clock)
    host.close()
    # Threads inside the driver cannot be joined; a normal exit would run into them.
    os._exit(0)


if __name__ == "__main__":
    main()
