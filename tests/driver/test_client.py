"""The agent's end of the pipe, with real processes that crash, fall silent, refuse to leave."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.config.model import Driver, Simulate
from clusterwatt.driver.client import DriverClient, DriverHostEnd
from clusterwatt.driver.frames import DeviceFrame, DriverState, Frame, HostSettings
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuMemory
from clusterwatt.readings.gpu_measured import DriverDown, DriverInfo, DriverUp, GpuDown, GpuUp
from tests.driver.fake_host import UUID

SETTINGS = HostSettings(0.05, 30.0, 0.04, 5.0, Simulate(profile="h100"))
PATIENT = Driver()
QUICK = Driver(silent_seconds=1.5, grace_seconds=0.5)  # for hosts that are silent on purpose
FAKE_HOST = Path(__file__).with_name("fake_host.py")
DEADLINE_S = 20.0

MakeClient = Callable[..., DriverClient]


@pytest.fixture
def client_of() -> Iterator[MakeClient]:
    """Makes clients of a misbehaving host; every process is ended afterwards, the stubborn ones by force."""
    clients: list[DriverClient] = []
    pids: set[int] = set()

    def make(behaviour: str, driver: Driver = PATIENT) -> DriverClient:
        client = DriverClient(
            SETTINGS,
            driver,
            SystemClock(),
            gpus_expected=lambda: 8,
            command=(sys.executable, str(FAKE_HOST), behaviour),
        )
        clients.append(client)
        original = client._start

        def start(now_s: float) -> None:
            original(now_s)
            if client.pid is not None:
                pids.add(client.pid)

        client._start = start  # type: ignore[method-assign]  # to know every process for the clean-up
        return client

    yield make
    for client in clients:
        client.stop(0.5)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def supervise_until(
    client: DriverClient, reached: Callable[[], object], deadline_s: float = DEADLINE_S
) -> float:
    """Tick as the pipeline does until something is so; returns the seconds that it took."""
    began_s = time.monotonic()
    tick = threading.Event()
    while not reached():
        client.supervise()
        tick.wait(0.02)
        assert time.monotonic() - began_s < deadline_s, client.parts()
    return time.monotonic() - began_s


def of(client: DriverClient, kind: type[Reading]) -> list[Reading]:
    return list(client.parts().get(kind, ()))


def up(client: DriverClient) -> bool:
    return of(client, DriverUp) == [DriverUp(up=1.0, gpus_visible=1.0, gpus_expected=8.0)]


def test_before_the_first_frame_everything_is_down_and_says_so(client_of: MakeClient) -> None:
    client = client_of("steady")
    assert of(client, DriverUp) == [DriverUp(up=0.0, gpus_visible=0.0, gpus_expected=8.0)]
    assert of(client, DriverDown) == [DriverDown(reason="starting")]
    assert client.state().up == 0.0


def test_readings_come_and_simulation_is_marked(client_of: MakeClient) -> None:
    client = client_of("steady")
    supervise_until(client, lambda: up(client))
    assert of(client, DriverInfo) == [DriverInfo(driver="1.2.3", nvml="", cuda="", simulated="true")]
    assert of(client, GpuUp) == [GpuUp(gpu="0", uuid=UUID, up=1.0)]
    assert of(client, GpuMemory)
    assert client.state().up == 1.0


def test_kill_9_of_the_host_is_mended_within_three_seconds(client_of: MakeClient) -> None:
    client = client_of("steady")
    supervise_until(client, lambda: up(client))
    first = client.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    seconds = supervise_until(client, lambda: up(client) and client.pid not in (None, first))
    assert seconds < 3.0
    assert client.restarts == 1


def test_a_gpu_once_seen_stays_with_zero_while_no_host_runs(client_of: MakeClient) -> None:
    client = client_of("crash")
    supervise_until(client, lambda: of(client, GpuUp))
    supervise_until(client, lambda: not up(client))
    assert of(client, GpuUp) == [GpuUp(gpu="0", uuid=UUID, up=0.0)]
    assert of(client, GpuDown) == [GpuDown(gpu="0", uuid=UUID, reason="unknown")]
    assert of(client, GpuMemory) == []
    assert of(client, DriverDown) == [DriverDown(reason="crashed")]


def test_a_silent_host_is_asked_to_leave_and_replaced(client_of: MakeClient) -> None:
    client = client_of("silent", QUICK)
    supervise_until(client, lambda: client.pid)
    first = client.pid
    supervise_until(client, lambda: client.pid not in (None, first))
    assert client.restarts == 1


def test_a_host_that_does_not_leave_is_left_alone_and_not_killed(client_of: MakeClient) -> None:
    client = client_of("stubborn", QUICK)
    supervise_until(client, lambda: client.pid)
    first = client.pid
    assert first is not None
    supervise_until(client, lambda: client.pid not in (None, first))
    os.kill(first, 0)  # still there
    second = client.pid
    supervise_until(client, lambda: of(client, DriverDown) == [DriverDown(reason="hung")])
    assert client.pid in (None, second)  # never a third beside two that hang


def test_sigkill_follows_when_it_is_allowed(client_of: MakeClient) -> None:
    client = client_of("stubborn", Driver(silent_seconds=1.5, grace_seconds=0.5, kill_hung=True))
    supervise_until(client, lambda: client.pid)
    first = client.pid
    assert first is not None
    supervise_until(client, lambda: client.pid not in (None, first))
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_a_host_that_never_speaks_is_replaced_too(client_of: MakeClient) -> None:
    client = client_of("mute", QUICK)
    supervise_until(client, lambda: client.restarts == 1)


def test_a_stream_that_is_no_frame_ends_the_host(client_of: MakeClient) -> None:
    client = client_of("garbage")
    supervise_until(client, lambda: client.restarts == 1)


def test_g07_a_version_mismatch_is_named_while_hosts_come_and_go(client_of: MakeClient) -> None:
    client = client_of("leaves")
    supervise_until(client, lambda: client.restarts >= 1)
    supervise_until(client, lambda: of(client, DriverDown) == [DriverDown(reason="version_mismatch")])


def test_a_command_that_cannot_be_started_is_a_driver_that_is_down(client_of: MakeClient) -> None:
    client = DriverClient(SETTINGS, QUICK, SystemClock(), command=("/nonexistent/host",))
    client.supervise()
    assert of(client, DriverDown) == [DriverDown(reason="crashed")]


def test_the_next_frame_is_announced(client_of: MakeClient) -> None:
    client, arrived = client_of("steady"), threading.Event()
    assert not client.expect_frame(arrived.set)  # nothing to wait for before the first
    supervise_until(client, lambda: up(client))
    assert client.expect_frame(arrived.set)
    assert arrived.wait(DEADLINE_S)


def test_a_silent_host_that_has_spoken_is_hung_and_not_starting(client_of: MakeClient) -> None:
    client = client_of("silent", Driver(silent_seconds=60.0))
    supervise_until(client, lambda: up(client))
    supervise_until(client, lambda: not up(client))
    assert of(client, DriverDown) == [DriverDown(reason="hung")]
    assert client.state().up == 0.0


def test_other_settings_keep_gpus_and_supervision_and_block_nobody(client_of: MakeClient) -> None:
    client = client_of("steady")
    supervise_until(client, lambda: up(client))
    first = client.pid
    slower = msgspec.structs.replace(SETTINGS, every_seconds=0.1)
    began_s = time.monotonic()
    client.reconfigure(slower, PATIENT)
    assert time.monotonic() - began_s < 0.1
    assert [gpu.uuid for gpu in of(client, GpuUp) if isinstance(gpu, GpuUp)] == [UUID]
    supervise_until(client, lambda: client.pid not in (None, first))
    supervise_until(client, lambda: up(client))
    assert client.restarts == 1


def test_the_same_settings_again_disturb_nothing(client_of: MakeClient) -> None:
    client = client_of("steady")
    supervise_until(client, lambda: up(client))
    first = client.pid
    client.reconfigure(SETTINGS, PATIENT)
    supervise_until(client, lambda: up(client))
    assert client.pid == first


@pytest.mark.parametrize(("board", "told"), [("released", "permission"), ("timeout", "timeout")])
def test_instances_that_a_fresh_host_cannot_find_share_their_boards_reason(
    client_of: MakeClient, board: str, told: str
) -> None:
    """A board that is released or hangs is not asked for its instances: nobody knows that they are lost."""
    client = client_of("never started")
    process = client._process = Mock(spec=DriverHostEnd)
    now_s = SystemClock().monotonic_s()
    group = (GpuMemory(gpu="0", uuid=UUID, used_bytes=1.0),)
    found = DeviceFrame("0", UUID, "", now_s, None, (group,), ())
    instance = DeviceFrame("0:0", "MIG-1", "", now_s, None, (group,), (), UUID)
    client._heard(process, Frame(now_s, DriverState(up=True), 1, (found, instance)))
    assert of(client, GpuDown) == []
    silent = DeviceFrame("0", UUID, board, now_s, None, (), ())
    client._heard(process, Frame(now_s, DriverState(up=True), 1, (silent,)))
    assert of(client, GpuDown) == [
        GpuDown(gpu="0", uuid=UUID, reason=told),
        GpuDown(gpu="0:0", uuid="MIG-1", reason=told),
    ]


def test_the_agent_itself_does_not_load_the_binding() -> None:
    loaded = "import sys, clusterwatt.running; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False, timeout=DEADLINE_S).returncode == 0
