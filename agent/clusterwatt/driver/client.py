"""The agent's end of the pipe to the driver host: starts it, listens to it, looks after it.

The agent never waits for the host. A thread reads its frames; `supervise`, called at every tick, starts and
replaces it; `parts` gives what is known now. A GPU once seen stays, with `GpuUp` 0 and the reason, also
while no host runs.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from clusterwatt.clock import STALE_INTERVALS, Clock
from clusterwatt.config.model import Driver
from clusterwatt.driver.call_totals import CallTotals
from clusterwatt.driver.frames import DeviceFrame, Frame, FrameReader, HostSettings, write_message
from clusterwatt.driver.gpm_agent import GpmState
from clusterwatt.driver.known import Known, remembered
from clusterwatt.driver.letting_go import LetGo
from clusterwatt.driver.supervision import Order, Supervision
from clusterwatt.readings.agent import CollectorState, DriverHost
from clusterwatt.readings.base import ByType, Failure, Joiner, Reading, by_type
from clusterwatt.readings.gpu import DriverXid, Group
from clusterwatt.readings.gpu_measured import DriverDown, DriverInfo, DriverUp, GpuDown, GpuUp

log = logging.getLogger("clusterwatt.driver")

HOST_COMMAND = (sys.executable, "-m", "clusterwatt.driver.host")
NOT_ALLOWED = "permission"  # of the agreed reasons the one that says: nothing is wrong, we may not ask


class DriverHostEnd(Protocol):
    """A driver host as the client has it: a child process, or one inside this process."""

    pid: int

    @property
    def exit_status(self) -> int | None:
        """Exit status once it has ended and everything it said was heard; negative for a signal."""
        ...

    def listen(self) -> None:
        """Begin to listen."""
        ...

    def ask_to_leave(self) -> None:
        """Ask it to make no further call and to end."""
        ...

    def kill(self) -> None:
        """End it by force."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; whether it came."""
        ...


Heard = Callable[[DriverHostEnd, Frame], None]
MakeHost = Callable[[HostSettings, Heard], DriverHostEnd]


class HostProcess:
    """One child process and the thread that listens to it."""

    def __init__(
        self,
        command: Sequence[str],
        settings: HostSettings,
        heard: Heard,
    ) -> None:
        self._heard = heard
        self._popen = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=True
        )
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):  # already dead: the listener will see the end
            write_message(self._popen.stdin, settings)
        self.pid = self._popen.pid
        self._listener = threading.Thread(target=self._listen, name="driver-listener", daemon=True)

    def listen(self) -> None:
        """Begin to listen; apart from the start, so that the owner knows the process before it speaks."""
        self._listener.start()

    @property
    def exit_status(self) -> int | None:
        """Exit status once the process has ended and everything it said was read; negative for a signal."""
        return None if self._listener.is_alive() else self._popen.poll()

    def ask_to_leave(self) -> None:
        """Close its input, which forbids further driver calls, and send SIGTERM."""
        self._close_input()
        with contextlib.suppress(ProcessLookupError):
            self._popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.kill()

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; whether it came."""
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._listener.join(timeout_s)
        return True

    def _listen(self) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as pipe:
            frames = FrameReader(pipe)
            while True:
                try:
                    frame = frames.read()
                    if frame is None:
                        break
                    self._heard(self, frame)
                except ValueError as error:
                    log.error("driver host sent what is no frame (%s); it will be replaced", error)
                    self._popen.terminate()
                    break
        # The pipe ends with the process, unless it hangs in the kernel while it exits.
        self._popen.wait()
        self._close_input()

    def _close_input(self) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):
            self._popen.stdin.close()


class DriverClient:
    """Keeps a driver host running and tells what it said last.

    `gpus_expected`: how many GPUs there should be; 0: nothing is stated. `make_host`: starts a host; None: a
    child process of `command`. `labels`: those of the Kubernetes node, by which the GPU operator asks for the
    driver. `answers`: to the operator who asks for it; False for a process that runs beside the agent.
    """

    name = "gpu"

    def __init__(
        self,
        settings: HostSettings,
        driver: Driver,
        clock: Clock,
        *,
        gpus_expected: Callable[[], int] = int,
        command: Sequence[str] = HOST_COMMAND,
        make_host: MakeHost | None = None,
        labels: Callable[[], Mapping[str, str]] = dict,
        answers: bool = True,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._make_host = make_host or (lambda settings, heard: HostProcess(command, settings, heard))
        self._gpus_expected = gpus_expected
        self._supervision = Supervision(driver)
        self._process: DriverHostEnd | None = None
        self._leftover: DriverHostEnd | None = None
        self._frame: Frame | None = None
        self._said_more = False
        self._known: dict[str, Known] = {}  # replaced whole: the listener's thread does it
        self._failures: collections.deque[Failure] = collections.deque(maxlen=1000)
        self._xids: collections.deque[DriverXid] = collections.deque(maxlen=10_000)
        self._born_s = clock.monotonic_s()
        self._last_good_s: float | None = None
        self.gpm = GpmState(self._born_s, settings.every_seconds, settings.deadline_seconds)
        self._end_reason = ""
        self._arrived: collections.deque[Callable[[], None]] = collections.deque()
        self._let_go = LetGo(driver, clock, labels, answers=answers)
        self._calls = CallTotals()
        self._joiner = Joiner()

    @property
    def every_seconds(self) -> float:
        """Seconds between two frames."""
        return self._settings.every_seconds

    @property
    def pid(self) -> int | None:
        """Process id of the driver host; None while none runs."""
        return None if self._process is None else self._process.pid

    @property
    def spoke(self) -> bool:
        """Whether any host has sent a frame yet."""
        return self._frame is not None

    @property
    def restarts(self) -> int:
        """How often a host was started after the first."""
        return max(0, self._supervision.starts - 1)

    def state(self) -> CollectorState:
        """How the GPU part fares: up while the driver answers, and one of its GPUs where it has had any.

        The age is that of the newest reading of a GPU.
        """
        now_s = self._clock.monotonic_s()
        frame = self._fresh_frame(now_s)
        age_s = now_s - (self._born_s if self._last_good_s is None else self._last_good_s)
        answers = not self._known or age_s <= STALE_INTERVALS * self.every_seconds
        calls = [] if frame is None else [frame.search_since_s, *(d.call_since_s for d in frame.devices)]
        stuck_s = now_s - min((since_s for since_s in calls if since_s is not None), default=now_s)
        return CollectorState(
            collector=self.name,
            up=float(frame is not None and frame.driver.up and answers),
            age_seconds=age_s,
            stuck_seconds=stuck_s if stuck_s > self._settings.deadline_seconds else 0.0,
        )

    def expect_frame(self, arrived: Callable[[], None]) -> bool:
        """Call `arrived`, from another thread, at the next frame; False when none is to be expected soon."""
        frame = self._frame
        heard_s = self._born_s if frame is None else frame.sent_s
        soon = (
            self._process is not None
            and self._clock.monotonic_s() - heard_s < STALE_INTERVALS * self.every_seconds
        )
        self._arrived.clear()
        if soon:
            self._arrived.append(arrived)
        return soon

    def supervise(self) -> None:
        """Start, replace or leave alone, as the rules say; never blocks."""
        now_s = self._clock.monotonic_s()
        if self._leftover is not None and self._leftover.exit_status is not None:
            self._leftover = None
            self._supervision.leftover_ended()
        process = self._process
        if process is not None:
            status = process.exit_status
            if status is not None:
                self._ended(status, now_s)
                process = None
        released = self._let_go.wanted()
        if released:
            self._frame = None  # what the host has said is not kept up any more
            self._let_go.see_off(process, now_s)
        order = Order.NOTHING if released else self._supervision.order(now_s)
        if order is Order.START:
            self._start(now_s)
        elif order is not Order.NOTHING and self._process is not None:
            self._replace(order, self._process)
        self._let_go.answer([p.pid for p in (self._process, self._leftover) if p is not None], self._frame)

    def release_until_restart(self) -> None:
        """Let go of the driver for as long as this process runs: the flag could not be written."""
        self._let_go.for_good = True

    def parts(self) -> ByType:
        """Everything known now: state of driver and GPUs, and the readings that are not stale."""
        now_s = self._clock.monotonic_s()
        frame = self._fresh_frame(now_s)
        devices = {} if frame is None else {device.uuid: device for device in frame.devices}
        up = frame is not None and frame.driver.up
        boards = [device for device in devices.values() if not device.parent_uuid]
        visible = sum(1 for board in boards if not self._down_reason(board, now_s)) if up else 0
        all_found = up and frame is not None and len(boards) >= frame.gpus_visible
        expected = float(self._gpus_expected())
        own: list[Reading] = [DriverUp(up=float(up), gpus_visible=float(visible), gpus_expected=expected)]
        if frame is not None and up:
            own.append(
                DriverInfo(
                    driver=frame.driver.driver,
                    nvml=frame.driver.nvml,
                    cuda=frame.driver.cuda,
                    simulated=self._settings.simulate.label,
                )
            )
        else:
            own.append(DriverDown(reason=self._driver_down_reason(frame)))
        own.append(DriverHost(restarts=float(self.restarts)))
        own.extend(self._calls.readings)
        groups: list[Group] = []
        for uuid, (gpu, parent_uuid) in self._known.items():
            device, parent = devices.get(uuid), devices.get(parent_uuid)
            if device is not None:
                reason = self._down_reason(device, now_s)
            elif parent is not None and (shared := self._down_reason(parent, now_s)):
                reason = shared  # an instance that a fresh host cannot ask its GPU for
            else:  # a host that began without it; where it has found all that there are, it is not there
                reason = "lost" if all_found else self._absent_reason
            own.append(GpuUp(gpu=gpu, uuid=uuid, up=0.0 if reason else 1.0))
            if reason:
                own.append(GpuDown(gpu=gpu, uuid=uuid, reason=reason))
            elif device is not None:
                groups.extend(device.groups)
        if up and frame is not None and frame.gpm is not None:
            own.extend(frame.gpm.readings)
        return {**by_type(own), **self._joiner.by_type(groups)}

    def take_failures(self) -> list[Failure] | None:
        """Failures reported since the last call; None when no frame has come since."""
        if not self._said_more:
            return None
        self._said_more = False
        return [self._failures.popleft() for _ in range(len(self._failures))]

    def take_xids(self) -> list[DriverXid]:
        """XID events since the last call, each once."""
        return [self._xids.popleft() for _ in range(len(self._xids))]

    @property
    def xids_watched(self) -> tuple[str, ...]:
        """UUIDs of the GPUs whose XIDs the driver tells."""
        return () if self._frame is None else self._frame.xids_watched

    def reconfigure(self, settings: HostSettings, driver: Driver) -> None:
        """Go on under other settings. A host that must know of them is asked to leave, and the next has them.

        GPUs, totals and the count of replacements stay.
        """
        self._supervision.use(driver)
        self._let_go.use(driver)
        self.gpm.use(settings.every_seconds, settings.deadline_seconds)
        before, self._settings = self._settings, settings
        if self._process is not None and before != settings:
            self._end_reason = "restarting"
            self._process.ask_to_leave()

    def retire(self) -> None:
        """Ask the host to end, and wait for nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.ask_to_leave()

    def stop(self, timeout_s: float) -> None:
        """End the host gently; one that does not end within the time is left behind, never killed."""
        process, self._process = self._process, None
        if process is not None:
            process.ask_to_leave()
            if not process.wait(timeout_s):
                log.warning("driver host %d does not end; it is left behind", process.pid)

    def _heard(self, process: DriverHostEnd, frame: Frame) -> None:
        """Take a frame; runs on the listener's thread."""
        if process is not self._process or self._let_go.since_s is not None:
            return  # said by a host that was given up, or that is on its way out
        self._supervision.heard(self._clock.monotonic_s())
        self._known = remembered(self._known, frame.devices)
        for device in frame.devices:
            if device.groups and (self._last_good_s is None or device.read_s > self._last_good_s):
                self._last_good_s = device.read_s
            self._failures.extend(device.failures)
            self._failures.extend(self._hanging(device.uuid, device.call_since_s, frame.sent_s))
        self._failures.extend(frame.failures)
        self._failures.extend(self._hanging("driver", frame.search_since_s, frame.sent_s))
        self._xids.extend(frame.xids)
        self.gpm.heard(frame)
        self._calls.heard(frame.calls)
        if frame.leaving:
            self._end_reason = frame.leaving
        elif frame.driver.up:
            self._end_reason = ""
        self._frame, self._said_more = frame, True
        with contextlib.suppress(IndexError):  # nobody waits
            self._arrived.popleft()()

    def _hanging(self, item: str, since_s: float | None, now_s: float) -> Iterator[Failure]:
        if since_s is not None and now_s - since_s >= self._settings.deadline_seconds:
            yield Failure(item=item, reason="timeout", detail="a driver call has not come back")

    def _fresh_frame(self, now_s: float) -> Frame | None:
        frame = self._frame
        stale = frame is None or now_s - frame.sent_s > STALE_INTERVALS * self.every_seconds
        return None if stale else frame

    def _start(self, now_s: float) -> None:
        self._supervision.started(now_s)
        self._calls.fresh_host()
        try:
            process = self._process = self._make_host(self._settings, self._heard)
            process.listen()
        except OSError as error:
            log.error("driver host cannot be started: %s", error)
            self._end_reason = "crashed"
            self._supervision.ended(now_s)

    def _ended(self, status: int, now_s: float) -> None:
        self._process = None
        self._supervision.ended(now_s)
        if not self._end_reason and self._let_go.since_s is None:
            self._end_reason = "crashed"
            log.warning("driver host ended with status %d; a fresh one will be started", status)

    def _replace(self, order: Order, process: DriverHostEnd) -> None:
        if order is Order.ASK_TO_LEAVE:
            self._end_reason = "hung"
            log.error("driver host %d is silent: no further calls, asked to leave", process.pid)
            process.ask_to_leave()
        elif order is Order.KILL:
            log.error("driver host %d did not leave: killed, as driver.kill_hung allows", process.pid)
            process.kill()
        elif order is Order.ABANDON:
            log.error("driver host %d cannot be ended; it is left alone, a fresh one takes over", process.pid)
            self._leftover, self._process = process, None

    @property
    def _absent_reason(self) -> str:
        """Why a GPU is not known of: the agent may not ask, or no host says anything."""
        return "unknown" if self._let_go.since_s is None else NOT_ALLOWED

    def _down_reason(self, device: DeviceFrame, now_s: float) -> str:
        if device.reason:
            return NOT_ALLOWED if device.reason == "released" else device.reason
        return "timeout" if now_s - device.read_s > STALE_INTERVALS * self.every_seconds else ""

    def _driver_down_reason(self, fresh_frame: Frame | None) -> str:
        if self._let_go.since_s is not None:
            return "released"
        if self._supervision.off_reason:
            return self._supervision.off_reason
        if fresh_frame is not None and fresh_frame.driver.reason:
            return fresh_frame.driver.reason
        if self._process is not None and self._frame is not None and not self._end_reason:
            return "hung"  # it has spoken, and is silent
        return self._end_reason or "starting"
