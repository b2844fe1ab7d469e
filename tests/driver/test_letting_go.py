"""Letting go of the driver: the flag, the agent's side of it, and the command that waits for it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from clusterwatt import cli
from clusterwatt.clock import SystemClock
from clusterwatt.config.model import Driver, Simulate
from clusterwatt.driver import holding, release_command
from clusterwatt.driver.client import DriverClient
from clusterwatt.driver.frames import HostSettings
from clusterwatt.driver.holding import (
    HOLD,
    Answer,
    ReleaseFlag,
    answer,
    ask,
    last_answer,
    may_hold_driver,
    withdraw,
)
from clusterwatt.driver.host import Host
from clusterwatt.driver.release_command import RefusedError
from clusterwatt.nvml.session import Session
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuMemory
from clusterwatt.readings.gpu_measured import DriverDown, DriverUp, GpuDown, GpuUp
from clusterwatt.simulate.faults import Faults
from clusterwatt.simulate.gpu import simulated_uuid
from clusterwatt.simulate.nvml import SimulatedLibrary, install, uninstall
from tests.clocks import FakeClock
from tests.driver.fake_host import UUID

FAKE_HOST = Path(__file__).with_name("fake_host.py")
DEADLINE_S = 30.0
OTHER = "GPU-bbbbbbbb-0000-0000-0000-00000000000b"


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    return tmp_path / "run" / "driver-release"


# --- the flag ----------------------------------------------------------------------------------------


def test_an_empty_file_asks_for_the_whole_driver(flag: Path) -> None:
    look = ReleaseFlag(str(flag)).look
    assert look() == HOLD
    flag.parent.mkdir()
    flag.touch()
    assert look().everything
    flag.unlink()
    assert look() == HOLD


def test_uuids_ask_for_these_gpus(flag: Path) -> None:
    flag.parent.mkdir()
    flag.write_text(f"{UUID}\n\n  {OTHER}")
    assert ReleaseFlag(str(flag)).look().uuids == {UUID, OTHER}
    assert not ReleaseFlag(str(flag)).look().everything


def test_a_flag_that_cannot_be_read_asks_for_everything(flag: Path) -> None:
    flag.mkdir(parents=True)
    assert ReleaseFlag(str(flag)).look().everything


def test_a_flag_without_a_path_is_never_set() -> None:
    assert ReleaseFlag("").look() == HOLD


def test_requests_add_up_and_are_withdrawn_one_by_one(flag: Path) -> None:
    assert ask(flag, UUID).uuids == {UUID}
    assert ask(flag, OTHER).uuids == {UUID, OTHER}
    assert withdraw(flag, UUID).uuids == {OTHER}
    assert withdraw(flag, OTHER) == HOLD  # an empty file would ask for everything
    assert not flag.exists()
    assert ask(flag).everything
    assert ask(flag, UUID).everything
    assert withdraw(flag) == HOLD


def test_each_state_of_the_flag_has_its_own_stamp(flag: Path) -> None:
    assert ask(flag).stamp != ask(flag).stamp


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({}, None),
        ({"nvidia.com/gpu-driver-upgrade-state": "upgrade-required"}, None),
        ({"nvidia.com/gpu-driver-upgrade-state": "cordon-required"}, None),
        ({"nvidia.com/gpu-driver-upgrade-state": "wait-for-jobs-required"}, None),
        ({"nvidia.com/gpu-driver-upgrade-state": "pod-deletion-required"}, "driver_upgrade"),
        ({"nvidia.com/gpu-driver-upgrade-state": "drain-required"}, "driver_upgrade"),
        ({"nvidia.com/gpu-driver-upgrade-state": "pod-restart-required"}, "driver_upgrade"),
        ({"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}, None),
        ({"nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"}, None),
        ({"nvidia.com/mig.config.state": "pending"}, "mig_change"),
        ({"nvidia.com/mig.config.state": "success"}, None),
        ({"nvidia.com/gpu.deploy.dcgm-exporter": "true"}, None),
        ({"nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-driver-upgrade"}, "paused_for_driver_upgrade"),
        ({"nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change"}, "paused_for_mig_change"),
        ({"example.com/gpu.deploy.dcgm": "paused-for-mig-change"}, None),
    ],
)
def test_labels_of_the_gpu_operator(labels: dict[str, str], reason: str | None) -> None:
    assert may_hold_driver({"kubernetes.io/hostname": "node-1", **labels}) == reason


# --- the agent ---------------------------------------------------------------------------------------

MakeClient = Callable[..., DriverClient]


@pytest.fixture
def client_of(flag: Path) -> Iterator[MakeClient]:
    clients: list[DriverClient] = []
    pids: set[int] = set()

    def make(
        behaviour: str,
        *,
        kill_hung: bool = False,
        labels: Callable[[], Mapping[str, str]] = dict,
        answers: bool = True,
    ) -> DriverClient:
        client = DriverClient(
            HostSettings(0.05, 30.0, 0.04, 5.0, Simulate(), release_file=str(flag)),
            Driver(silent_seconds=60.0, grace_seconds=0.3, kill_hung=kill_hung, release_file=str(flag)),
            SystemClock(),
            command=(sys.executable, str(FAKE_HOST), behaviour),
            labels=labels,
            answers=answers,
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        if client.pid is not None:
            pids.add(client.pid)
        client.stop(0.5)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def until(client: DriverClient, reached: Callable[[], object]) -> None:
    began_s, tick = time.monotonic(), threading.Event()
    while not reached():
        client.supervise()
        tick.wait(0.02)
        assert time.monotonic() - began_s < DEADLINE_S, client.parts()


def of(client: DriverClient, kind: type[Reading]) -> list[Reading]:
    return list(client.parts().get(kind, ()))


def up(client: DriverClient) -> bool:
    return of(client, DriverUp) == [DriverUp(up=1.0, gpus_visible=1.0, gpus_expected=0.0)]


def test_a_released_driver_is_down_for_that_reason_and_no_process_is_left(
    client_of: MakeClient, flag: Path
) -> None:
    client = client_of("steady")
    until(client, lambda: up(client))
    first = client.pid
    assert first is not None
    ask(flag)
    client.supervise()
    assert of(client, DriverDown) == [DriverDown(reason="released")]
    assert of(client, GpuUp) == [GpuUp(gpu="0", uuid=UUID, up=0.0)]
    assert of(client, GpuDown) == [GpuDown(gpu="0", uuid=UUID, reason="permission")]
    assert of(client, GpuMemory) == []
    assert client.state().up == 0.0
    until(client, lambda: client.pid is None)
    assert not psutil.pid_exists(first)
    said = last_answer(flag)
    assert said == Answer(os.getpid(), "released", flag.stat().st_mtime_ns)
    for _ in range(50):  # longer than the pause before a host that has ended is replaced
        client.supervise()
        threading.Event().wait(0.02)
    assert client.pid is None
    assert client.restarts == 0


def test_the_gpu_operator_gets_the_driver_when_it_announces_an_upgrade(
    client_of: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    labels: dict[str, str] = {}
    client = client_of("steady", labels=lambda: labels)
    until(client, lambda: up(client))
    first = client.pid
    labels["nvidia.com/gpu-driver-upgrade-state"] = "pod-deletion-required"
    until(client, lambda: client.pid is None)
    assert of(client, DriverDown) == [DriverDown(reason="released")]
    assert "driver_upgrade" in caplog.text
    labels["nvidia.com/gpu-driver-upgrade-state"] = "upgrade-done"
    until(client, lambda: up(client))
    assert client.pid != first


def test_a_driver_that_is_taken_up_again_has_a_fresh_host(client_of: MakeClient, flag: Path) -> None:
    client = client_of("steady")
    until(client, lambda: up(client))
    first = client.pid
    ask(flag)
    until(client, lambda: client.pid is None)
    withdraw(flag)
    until(client, lambda: up(client))
    assert client.pid not in (None, first)
    said = last_answer(flag)
    assert said is not None
    assert (said.state, said.host_pids, said.stamp) == ("held", [client.pid], 0)


def test_with_the_flag_set_at_the_start_the_driver_is_never_touched(
    client_of: MakeClient, flag: Path
) -> None:
    ask(flag)
    client = client_of("steady")
    client.supervise()
    assert client.pid is None
    assert of(client, DriverDown) == [DriverDown(reason="released")]


def test_a_host_that_does_not_leave_is_named_and_not_killed(client_of: MakeClient, flag: Path) -> None:
    client = client_of("stubborn")
    until(client, lambda: client.spoke)
    ask(flag)
    began_s = time.monotonic()
    until(client, lambda: time.monotonic() - began_s > 1.0)  # the grace is 0.3 s
    said = last_answer(flag)
    assert said is not None
    assert (said.state, said.host_pids) == ("leaving", [client.pid])
    assert client.pid is not None
    assert psutil.pid_exists(client.pid)


def test_a_host_that_does_not_leave_is_killed_where_that_is_allowed(
    client_of: MakeClient, flag: Path
) -> None:
    client = client_of("stubborn", kill_hung=True)
    until(client, lambda: client.spoke)
    ask(flag)
    until(client, lambda: client.pid is None)
    assert of(client, DriverDown) == [DriverDown(reason="released")]


def test_without_a_request_nothing_is_written(client_of: MakeClient, flag: Path) -> None:
    client = client_of("steady")
    until(client, lambda: up(client))
    assert not flag.parent.exists()


def test_a_release_by_signal_without_a_place_for_the_flag_lasts_until_restart(client_of: MakeClient) -> None:
    client = client_of("steady")
    until(client, lambda: up(client))
    client.release_until_restart()
    until(client, lambda: client.pid is None)
    assert of(client, DriverDown) == [DriverDown(reason="released")]


# --- more than one agent ----------------------------------------------------------------------------


def test_one_agent_answers_at_a_flag_and_the_next_is_told_whose_it_is(flag: Path) -> None:
    first = holding.claim(flag)
    assert first is not None
    with pytest.raises(holding.ClaimedError) as claimed:
        holding.claim(flag)
    said = str(claimed.value)
    assert said.startswith(f"driver.release_file: {flag}: another agent (pid {os.getpid()}) answers there; ")
    assert "name another file" in said
    os.close(first)
    second = holding.claim(flag)
    assert second is not None
    os.close(second)


def test_where_nothing_may_be_written_nobody_answers_and_nobody_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert holding.claim(tmp_path / "file" / "driver-release") is None


def test_a_page_printed_beside_the_agent_answers_nothing(client_of: MakeClient, flag: Path) -> None:
    """`clusterwatt once` would say "released" of itself while the agent still leaves."""
    ask(flag)
    client = client_of("steady", answers=False)
    client.supervise()
    assert of(client, DriverDown) == [DriverDown(reason="released")]
    assert last_answer(flag) is None


def test_a_reload_may_name_another_flag(client_of: MakeClient, flag: Path) -> None:
    other = flag.with_name("other")
    client = client_of("steady")
    until(client, lambda: up(client))
    settings = HostSettings(0.05, 30.0, 0.04, 5.0, Simulate(), release_file=str(other))
    client.reconfigure(settings, Driver(silent_seconds=60.0, release_file=str(other)))
    ask(other)
    until(client, lambda: client.pid is None)
    assert of(client, DriverDown) == [DriverDown(reason="released")]
    said = last_answer(other)
    assert said is not None
    assert said.state == "released"


# --- one GPU -----------------------------------------------------------------------------------------


def test_a_gpu_whose_uuid_is_listed_is_asked_for_nothing(flag: Path) -> None:
    clock, faults = FakeClock(), Faults()
    install(SimulatedLibrary("h100", 2, 1, clock.wall_s, faults))
    settings = HostSettings(1.0, 30.0, 2.0, 5.0, Simulate(profile="h100"), release_file=str(flag))
    host = Host(settings, Session(simulated=True, clock=clock), clock)
    try:
        host.tick()
        clock.advance(1.0)
        uuid = simulated_uuid(1, 1)
        ask(flag, uuid)
        calls = faults.change("nvmlDeviceGetM*", 0, gpu=1, skip_calls=10**9)
        for _ in range(5):
            frame = host.tick()
            clock.advance(1.0)
        first, second = frame.devices
        assert (first.reason, second.uuid, second.reason) == ("", uuid, "released")
        assert first.readings
        assert second.readings == ()
        assert frame.gpm is not None
        assert {reading.uuid for reading in frame.gpm.readings} == {first.uuid}
        assert calls.hits == 0
        withdraw(flag, uuid)
        frame = host.tick()
        assert frame.devices[1].readings
        assert calls.hits > 0
    finally:
        host.close()
        uninstall()


# --- the command -------------------------------------------------------------------------------------


@contextlib.contextmanager
def ticking(client: DriverClient) -> Iterator[None]:
    """Tick beside the test, as an agent does."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.02):
            client.supervise()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_the_command_says_when_it_has_taken_effect(client_of: MakeClient, flag: Path) -> None:
    client = client_of("steady")
    until(client, lambda: up(client))
    with ticking(client):
        said = release_command.release(flag, None, DEADLINE_S, SystemClock())
        assert said == "released: no process of the agent has the driver open"
        assert of(client, DriverDown) == [DriverDown(reason="released")]
        assert release_command.status(flag) == [
            f"asked for: release of the driver ({flag})",
            f"agent {os.getpid()}: released",
        ]
        said = release_command.resume(flag, None, DEADLINE_S, SystemClock())
        assert said == "resumed: the agent reads the driver again"
        assert release_command.status(flag) == [
            f"asked for: nothing ({flag} does not exist)",
            f"agent {os.getpid()}: held, driver host {client.pid}",
        ]


def test_the_command_names_the_process_that_does_not_let_go(client_of: MakeClient, flag: Path) -> None:
    client = client_of("stubborn")
    until(client, lambda: client.spoke)
    with ticking(client), pytest.raises(RefusedError, match=f"driver host {client.pid} still has the driver"):
        release_command.release(flag, None, 0.5, SystemClock())
    assert flag.exists()


def test_without_an_agent_the_command_says_so(flag: Path) -> None:
    with pytest.raises(
        RefusedError,
        match=r"no agent has answered .* is its driver.release_file .*\? One with .* stands until",
    ):
        release_command.release(flag, None, 0.01, SystemClock())
    assert ReleaseFlag(str(flag)).look().everything
    assert release_command.status(flag)[-1].startswith("agent: has not answered")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    answer(flag, Answer(ended.pid, "released", flag.stat().st_mtime_ns))
    with pytest.raises(RefusedError, match="no agent has answered"):
        release_command.release(flag, None, 0.01, SystemClock())
    assert release_command.status(flag)[-1].startswith("agent: does not run")
    with pytest.raises(RefusedError, match="no agent has answered"):
        release_command.resume(flag, None, 0.01, SystemClock())
    assert release_command.resume(flag, None, 0.01, SystemClock()) == "nothing was released"


def test_a_gpu_that_there_is_not_is_said_at_once_with_those_that_there_are_and_no_request_stays(
    client_of: MakeClient, flag: Path
) -> None:
    client = client_of("steady")
    until(client, lambda: up(client))
    began_s = time.monotonic()
    with ticking(client), pytest.raises(RefusedError) as refused:
        release_command.release(flag, OTHER, 2 * DEADLINE_S, SystemClock())
    assert str(refused.value) == f"this node has no GPU {OTHER}; it has {UUID}"
    assert time.monotonic() - began_s < DEADLINE_S
    assert not flag.exists()


def test_a_gpu_that_there_is_not_leaves_the_requests_of_others(client_of: MakeClient, flag: Path) -> None:
    ask(flag, "GPU-by-hand")
    client = client_of("steady")
    until(client, lambda: up(client))
    with ticking(client), pytest.raises(RefusedError, match="has no GPU"):
        release_command.release(flag, OTHER, DEADLINE_S, SystemClock())
    assert ReleaseFlag(str(flag)).look().uuids == {"GPU-by-hand"}
    until(client, lambda: (said := last_answer(flag)) and said.stamp == flag.stat().st_mtime_ns)
    assert f"agent {os.getpid()}: has no GPU GPU-by-hand" in release_command.status(flag)


def test_a_gpu_that_is_not_released_is_not_resumed(flag: Path) -> None:
    ask(flag, UUID)
    before = flag.stat().st_mtime_ns
    with pytest.raises(RefusedError, match=f"{OTHER} is not released; released are {UUID}"):
        release_command.resume(flag, OTHER, 0.01, SystemClock())
    assert flag.stat().st_mtime_ns == before


@pytest.mark.parametrize("text", ["", "0", "GPU-a b", "MIG-aaaaaaaa-0000-0000-0000-00000000000a"])
def test_what_is_no_uuid_asks_for_nothing(text: str, flag: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty one, as of a variable of a shell that is not set, would be the whole driver."""
    release = ["driver", "release", "--uuid", text, "--timeout", "0.1"]
    assert cli.main([*release, "--set", f"driver.release_file={flag}"]) == 2
    assert "expected the UUID of a GPU" in capsys.readouterr().err
    assert not flag.parent.exists()


def test_one_gpu_is_not_resumed_while_the_whole_driver_is_released(flag: Path) -> None:
    ask(flag)
    with pytest.raises(RefusedError, match="without --uuid"):
        release_command.resume(flag, UUID, 0.01, SystemClock())


# --- all of it ---------------------------------------------------------------------------------------


class RunningAgent:
    """An agent of its own process on a simulated driver."""

    def __init__(self, flag: Path) -> None:
        self.environment = {**os.environ, "CLUSTERWATT_DRIVER__RELEASE_FILE": str(flag)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "clusterwatt", "run", "--simulate", "h100", "--listen", "127.0.0.1:0"],
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        assert self.process.stderr is not None
        self._log: list[str] = []
        for line in self.process.stderr:
            self._log.append(line)
            if found := re.search(r"listening on (http://[^\"\s]+)", line):
                self.url = found[1].rstrip("/") + "/metrics"
                break
        else:
            raise AssertionError(self._log)
        self._listener = threading.Thread(target=self._log.extend, args=(self.process.stderr,), daemon=True)
        self._listener.start()

    def page(self) -> str:
        """The page; empty before the first tick."""
        try:
            with urllib.request.urlopen(self.url, timeout=DEADLINE_S) as reply:
                text: str = reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return ""
        return text

    def until(self, reached: Callable[[str], object]) -> str:
        began_s = time.monotonic()
        while not reached(page := self.page()):
            assert time.monotonic() - began_s < DEADLINE_S, page[:2000]
            threading.Event().wait(0.1)
        return page

    def command(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "clusterwatt", "driver", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=self.environment,
            timeout=2 * DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        self._listener.join(DEADLINE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()


@pytest.fixture
def agent(flag: Path) -> Iterator[RunningAgent]:
    agent = RunningAgent(flag)
    yield agent
    agent.stop()


def test_the_driver_is_free_while_everything_else_goes_on(agent: RunningAgent, flag: Path) -> None:
    uuid = re.escape(simulated_uuid(1, 2))
    agent.until(lambda page: "clusterwatt_driver_up 1.0" in page)
    assert len(agent.children()) == 1
    assert "NVML cannot let go of a single GPU" in agent.command("release", "--uuid", simulated_uuid(1, 2))
    page = agent.until(lambda page: re.search(rf'gpu_down_info\{{.*reason="permission",uuid="{uuid}"', page))
    assert "clusterwatt_gpus_visible 7.0" in page
    agent.command("resume", "--uuid", simulated_uuid(1, 2))
    agent.until(lambda page: "clusterwatt_gpus_visible 8.0" in page)
    agent.process.send_signal(signal.SIGUSR1)
    page = agent.until(lambda page: 'driver_down_info{reason="released"}' in page)
    assert "clusterwatt_driver_up 0.0" in page
    assert "clusterwatt_cpu_seconds_total" in page
    assert "clusterwatt_gpu_power_watts" not in page
    assert agent.command("release").startswith("released")
    assert agent.children() == []
    assert agent.command("resume").startswith("resumed")
    agent.until(lambda page: "clusterwatt_gpus_visible 8.0" in page)
    assert len(agent.children()) == 1
