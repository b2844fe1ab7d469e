"""XIDs from the driver's event set: through the real binding, out of the host, into the agent, each once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.config.model import Driver, Simulate
from clusterwatt.driver.client import DriverClient
from clusterwatt.driver.frames import HostSettings
from clusterwatt.driver.host import Host
from clusterwatt.nvml.session import Session
from clusterwatt.readings.gpu import DriverXid
from clusterwatt.simulate.faults import Faults
from clusterwatt.simulate.gpu import simulated_uuid
from clusterwatt.simulate.nvml import SimulatedLibrary, install, uninstall
from tests.clocks import FakeClock

SETTINGS = HostSettings(1.0, 30.0, 0.3, 5.0, Simulate(profile="h100"))
LOST, NOT_SUPPORTED, NO_PERMISSION, UNKNOWN = 15, 3, 4, 999
WAIT = "nvmlEventSetWait_v2"
REGISTER = "nvmlDeviceRegisterEvents"
DEADLINE_S = 10.0


class Bench:
    """A host over a simulated driver; gathers the XIDs of all frames."""

    def __init__(self, gpus: int = 4, profile: str = "h100") -> None:
        self.clock = FakeClock()
        self.faults = Faults()
        self.library = SimulatedLibrary(profile, gpus, 1, self.clock.wall_s, self.faults)
        install(self.library)
        self.host = Host(SETTINGS, Session(simulated=True, clock=self.clock), self.clock)
        self.xids: list[DriverXid] = []
        self.watched: tuple[str, ...] = ()

    def tick(self) -> None:
        frame = self.host.tick()
        self.xids.extend(frame.xids)
        self.watched = frame.xids_watched
        self.clock.advance(1.0)

    def until(self, reached: Callable[[], bool]) -> None:
        began_s = time.monotonic()
        while True:
            self.tick()
            if reached():
                return
            assert time.monotonic() - began_s < DEADLINE_S, (self.xids, self.watched)
            threading.Event().wait(0.01)

    def until_watched(self, *boards: int) -> None:
        wanted = {simulated_uuid(1, board) for board in boards}
        self.until(lambda: set(self.watched) == wanted)

    def told(self) -> list[tuple[int, int]]:
        """Board and code of every XID so far."""
        boards = {simulated_uuid(1, board): board for board in range(16)}
        return [(boards[xid.uuid], xid.xid) for xid in self.xids]


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.faults.clear()
    bench.host.close()
    uninstall()


def test_every_gpu_is_watched_and_an_xid_is_told_once_with_its_gpu(bench: Bench) -> None:
    bench.until_watched(0, 1, 2, 3)
    now_s = bench.clock.wall_s()
    bench.library.inject_xid(2, 48)
    bench.until(lambda: bool(bench.xids))
    for _ in range(5):
        bench.tick()
    assert bench.told() == [(2, 48)]
    (xid,) = bench.xids
    assert (xid.gpu_instance, xid.compute_instance) == (None, None)
    assert abs(xid.wall_s - now_s) < 600.0  # the clock of this test runs on with each tick


def test_the_first_frame_with_gpus_says_that_they_are_watched(bench: Bench) -> None:
    bench.tick()
    assert set(bench.watched) == {simulated_uuid(1, board) for board in range(4)}


def test_a_registration_that_hangs_delays_no_more_than_one_frame(bench: Bench) -> None:
    bench.faults.hang(REGISTER)
    began_s = time.monotonic()
    for _ in range(5):
        bench.tick()
    assert time.monotonic() - began_s < 2.0
    assert bench.watched == ()


def test_a_burst_comes_whole_and_in_order(bench: Bench) -> None:
    bench.until_watched(0, 1, 2, 3)
    codes = [(board, code) for code in (13, 31, 43, 45) for board in range(4)]
    for board, code in codes:
        bench.library.inject_xid(board, code)
    bench.until(lambda: len(bench.xids) == len(codes))
    assert bench.told() == codes


def test_an_xid_of_a_mig_instance_names_board_and_instances(bench: Bench) -> None:
    bench.until_watched(0, 1, 2, 3)
    bench.library.inject_xid(1, 94, instance=9)
    bench.until(lambda: bool(bench.xids))
    (xid,) = bench.xids
    assert xid.uuid == simulated_uuid(1, 1)
    assert (xid.gpu_instance, xid.compute_instance) == (9, 0)


def test_a_gpu_that_cannot_be_registered_costs_no_other(bench: Bench) -> None:
    bench.faults.fail(REGISTER, NOT_SUPPORTED, gpu=1)
    bench.until_watched(0, 2, 3)
    bench.library.inject_xid(3, 63)
    bench.until(lambda: bool(bench.xids))
    assert bench.told() == [(3, 63)]


def test_a_registration_that_failed_is_tried_again(bench: Bench) -> None:
    rule = bench.faults.fail(REGISTER, UNKNOWN, gpu=1)
    bench.until_watched(0, 2, 3)
    bench.faults.clear(rule)
    bench.until_watched(0, 1, 2, 3)


def test_only_types_that_the_driver_has_are_asked_for(bench: Bench) -> None:
    """An old driver refuses a mask with a type that it does not know."""
    asked: list[int] = []
    original = pynvml.nvmlDeviceRegisterEvents

    def register(handle: object, types: int, events: object) -> None:
        asked.append(types)
        original(handle, types, events)

    pynvml.nvmlDeviceRegisterEvents = register
    try:
        bench.until_watched(0, 1, 2, 3)
    finally:
        pynvml.nvmlDeviceRegisterEvents = original
    assert asked == [pynvml.nvmlEventTypeXidCriticalError] * 4


def test_a_card_without_xid_events_is_not_watched(bench: Bench) -> None:
    bench.faults.change("nvmlDeviceGetSupportedEventTypes", 0x1, gpu=0)
    bench.until_watched(1, 2, 3)


def test_a_gpu_that_appears_later_is_registered_then(bench: Bench) -> None:
    bench.faults.vanished = {2}
    bench.until_watched(0, 1, 3)
    bench.faults.vanished = set()
    bench.until_watched(0, 1, 2, 3)
    bench.library.inject_xid(2, 31)
    bench.until(lambda: bool(bench.xids))
    assert bench.told() == [(2, 31)]


def test_a_wait_that_fails_for_a_lost_gpu_is_begun_anew_for_the_others(bench: Bench) -> None:
    bench.until_watched(0, 1, 2, 3)
    lost = bench.faults.lose(1)
    bench.faults.fail(WAIT, LOST, calls=1)
    bench.until_watched(0, 2, 3)
    bench.library.inject_xid(0, 74)
    bench.until(lambda: bool(bench.xids))
    bench.faults.clear(lost)
    bench.until_watched(0, 1, 2, 3)
    bench.library.inject_xid(1, 79)
    bench.until(lambda: len(bench.xids) == 2)
    assert bench.told() == [(0, 74), (1, 79)]
    assert len(bench.library.event_sets) == 1


def test_an_xid_that_comes_when_its_gpu_is_lost_already_says_whose_it_is(bench: Bench) -> None:
    bench.until_watched(0, 1, 2, 3)
    bench.faults.lose(1)
    bench.until_watched(0, 2, 3)
    bench.library.inject_xid(1, 79)
    bench.until(lambda: bool(bench.xids))
    assert bench.told() == [(1, 79)]


def test_a_wait_that_fails_for_ever_is_not_repeated_without_a_pause(bench: Bench) -> None:
    bench.until_watched(0, 1, 2, 3)
    rule = bench.faults.fail(WAIT, UNKNOWN)
    began_s = time.monotonic()
    bench.until(lambda: time.monotonic() - began_s > 1.5)
    assert 1 <= rule.hits <= 3


def test_a_driver_without_event_sets_is_asked_once(bench: Bench) -> None:
    rule = bench.faults.fail("nvmlEventSetCreate", NOT_SUPPORTED)
    bench.until(lambda: rule.hits > 0)
    for _ in range(10):
        bench.tick()
    assert rule.hits == 1
    assert bench.watched == ()


def test_a_generation_that_is_over_is_not_waited_for(bench: Bench) -> None:
    bench.until_watched(0, 1, 2, 3)
    rule = bench.faults.fail(WAIT, 9)
    bench.until(lambda: bench.watched == ())
    assert rule.hits == 1
    assert bench.host._events.stop(0.0)  # the thread has ended


def test_the_driver_is_never_shut_down_while_a_thread_waits(bench: Bench) -> None:
    bench.until_watched(0, 1, 2, 3)
    waiting: list[int] = []
    original = pynvml.nvmlShutdown

    def shutdown() -> None:
        waiting.append(len(bench.library.event_sets))
        original()

    pynvml.nvmlShutdown = shutdown
    try:
        bench.host.close()
    finally:
        pynvml.nvmlShutdown = original
    assert waiting == [0]  # the set was given back before
    assert not bench.library.initialized


def test_a_wait_that_hangs_leaves_the_driver_as_it_is(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterwatt.driver.host.LEAVE_WITHIN_S", 0.1)
    bench.until_watched(0, 1, 2, 3)
    rule = bench.faults.hang(WAIT)
    assert rule.hanging.wait(DEADLINE_S)
    bench.host.close()
    assert bench.library.initialized


def test_waiting_costs_two_calls_a_second_whatever_the_number_of_gpus() -> None:
    bench = Bench(gpus=8)
    calls: list[str] = []
    original = pynvml.nvmlEventSetWait_v2

    def wait(events: object, timeout_ms: int) -> object:
        calls.append(WAIT)
        return original(events, timeout_ms)

    pynvml.nvmlEventSetWait_v2 = wait
    try:
        bench.until_watched(*range(8))
        calls.clear()
        began_s = time.monotonic()
        bench.until(lambda: time.monotonic() - began_s > 1.2)
        assert 1 <= len(calls) <= 4
    finally:
        pynvml.nvmlEventSetWait_v2 = original
        bench.host.close()
        uninstall()


class Agent:
    """The agent's end, with a real driver host and a file of faults."""

    def __init__(self, faults: Path) -> None:
        self.faults = faults
        settings = HostSettings(
            0.2, 30.0, 0.15, 5.0, Simulate(profile="h100", gpus=4, faults_file=str(faults))
        )
        self.client = DriverClient(settings, Driver(), SystemClock())
        self.xids: list[DriverXid] = []

    def until(self, reached: Callable[[], bool]) -> None:
        began_s = time.monotonic()
        while not reached():
            self.client.supervise()
            self.xids.extend(self.client.take_xids())
            assert time.monotonic() - began_s < 30.0, self.xids
            threading.Event().wait(0.05)

    def spoke_since(self, monotonic_s: float) -> bool:
        frame = self.client._frame
        return frame is not None and frame.sent_s > monotonic_s

    def inject(self, *xids: tuple[int, int]) -> None:
        new = self.faults.with_suffix(".new")
        new.write_text(
            json.dumps({"xids": [{"gpu": gpu, "xid": xid} for gpu, xid in xids]}), encoding="utf-8"
        )
        new.replace(self.faults)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path / "faults.json")
    yield agent
    pid = agent.client.pid
    agent.client.stop(5.0)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_an_xid_of_the_faults_file_reaches_the_agent_once_also_over_a_restart_of_the_host(
    agent: Agent,
) -> None:
    agent.until(lambda: len(agent.client.xids_watched) == 4)
    agent.inject((3, 79))
    agent.until(lambda: len(agent.xids) == 1)
    first = agent.client.pid
    assert first is not None
    agent.faults.unlink()
    os.kill(first, signal.SIGKILL)
    agent.until(lambda: agent.client.pid not in (None, first))
    killed_s = time.monotonic()
    agent.until(lambda: agent.spoke_since(killed_s) and len(agent.client.xids_watched) == 4)
    agent.inject((0, 31))
    agent.until(lambda: len(agent.xids) == 2)
    assert [(xid.uuid, xid.xid) for xid in agent.xids] == [
        (simulated_uuid(1, 3), 79),
        (simulated_uuid(1, 0), 31),
    ]
