"""The agent wired together, in this process: what a reload keeps and what it changes, roots that are none."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from clusterwatt import sdnotify
from clusterwatt.app import Agent, StartError, check_root, host_settings
from clusterwatt.clock import SystemClock
from clusterwatt.config.model import (
    Collector,
    Collectors,
    Config,
    Driver,
    Expose,
    GpuCollector,
    Ledger,
    Limits,
    Log,
    Node,
    Simulate,
)
from clusterwatt.driver import pci
from clusterwatt.readings.agent import CollectorDuration, ConfigReload, HostPids
from clusterwatt.readings.base import Reading, by_type
from clusterwatt.readings.gpu import GpuMode
from clusterwatt.readings.host import CpuTime
from clusterwatt.readings.node_exporter import NodeFamily
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.readings.work import SchedulerNode
from tests.machines import ROOTS, put

NO_GPU = Collectors(gpu=GpuCollector(enabled=False))


@pytest.fixture
def agent() -> Iterator[Agent]:
    agent = Agent(Config(collectors=NO_GPU), SystemClock())
    yield agent
    agent.stop()


def tick(agent: Agent) -> Snapshot:
    snapshots: list[Snapshot] = []

    async def once() -> None:
        agent.site.on_publish(snapshots.append)
        await agent.pipeline.tick()
        await agent.site.page()

    asyncio.run(once())
    return snapshots[-1]


def passes(snapshot: Snapshot, collector: str) -> float:
    return next(d.passes for d in snapshot.of(CollectorDuration) if d.collector == collector)


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_without_a_gpu_part_there_is_no_word_of_a_driver(agent: Agent) -> None:
    snapshot = tick(agent)
    assert snapshot.of(CpuTime)
    assert not [kind for kind in snapshot.readings if kind.__name__.startswith(("Driver", "Gpu"))]


def test_a_reload_keeps_what_it_does_not_touch(agent: Agent) -> None:
    tick(agent)
    kept, replaced = agent._sources["cpu"][1], agent._sources["memory"][1]
    collectors = msgspec.structs.replace(NO_GPU, memory=Collector(every_seconds=2.0))
    agent.apply(Config(collectors=collectors))
    assert agent._sources["cpu"][1] is kept
    assert agent._sources["memory"][1] is not replaced
    assert passes(tick(agent), "memory") == 2.0  # its counters go on


def test_a_collector_that_is_switched_off_leaves_the_page(agent: Agent) -> None:
    assert tick(agent).of(CpuTime)
    agent.apply(Config(collectors=msgspec.structs.replace(NO_GPU, cpu=Collector(enabled=False))))
    assert not tick(agent).of(CpuTime)


def test_a_reload_changes_the_profile_of_the_next_page(agent: Agent) -> None:
    async def body() -> bytes:
        await agent.pipeline.tick()
        return (await agent.site.page()).body

    assert b"clusterwatt_memory_free_bytes" in asyncio.run(body())
    agent.apply(Config(collectors=NO_GPU, limits=Limits(profile="minimal")))
    assert b"clusterwatt_memory_free_bytes" not in asyncio.run(body())


def test_readings_for_the_page_of_node_exporter_exist_only_while_it_is_on(agent: Agent) -> None:
    assert not tick(agent).of(NodeFamily)
    agent.apply(Config(collectors=NO_GPU, expose=Expose(node_exporter_names=True)))
    names = {family.name for family in tick(agent).of(NodeFamily)}
    assert {"node_load1", "node_network_up", "node_uname_info"} <= names  # of each of its collectors
    agent.apply(Config(collectors=NO_GPU))
    assert not tick(agent).of(NodeFamily)


def test_a_refused_reload_leaves_everything_as_it_was_and_shows(agent: Agent, tmp_path: Path) -> None:
    with pytest.raises(StartError):
        agent.apply(Config(collectors=NO_GPU, node=Node(root=str(tmp_path))))
    agent.reload_failed()
    snapshot = tick(agent)
    assert snapshot.of(CpuTime)
    assert snapshot.of(ConfigReload) == (ConfigReload(success=0.0),)


def test_g08_a_root_tells_whether_the_hosts_pids_are_seen(agent: Agent, tmp_path: Path) -> None:
    put(tmp_path, "/proc/stat", "cpu 1 1 1 1\n")
    put(tmp_path, "/proc/1/stat", "1 (agent) S 0 1 1 0 -1 4194560 0 0 0 0 0 0\n")
    agent.apply(Config(collectors=NO_GPU, node=Node(root=str(tmp_path))))
    assert tick(agent).of(HostPids) == (HostPids(0.0),)
    agent.apply(Config(collectors=NO_GPU, node=Node(root=str(ROOTS / "h100-ib"))))
    assert tick(agent).of(HostPids) == (HostPids(1.0),)


def test_the_driver_host_looks_for_processes_below_the_root_unless_they_are_made_up() -> None:
    mounted = Node(root="/host")
    assert host_settings(Config(node=mounted)).root == "/host"
    assert host_settings(Config(node=mounted, simulate=Simulate(profile="h100"))).root == ""
    assert host_settings(Config(node=mounted, simulate=Simulate(replay_file="x.zip"))).root == ""


def test_reloads_leak_no_descriptors_and_no_threads(agent: Agent) -> None:
    def reload(seconds: float) -> None:
        collector = Collector(every_seconds=seconds)
        agent.apply(Config(collectors=msgspec.structs.replace(NO_GPU, cpu=collector, memory=collector)))
        tick(agent)

    reload(1.5)
    before = len(open_descriptors())
    for round_ in range(10):
        reload(2.0 + round_)
    assert len(open_descriptors()) <= before


def test_two_agents_do_not_answer_at_one_release_flag(tmp_path: Path) -> None:
    flag, other = str(tmp_path / "run/flag"), str(tmp_path / "run/other")
    config = Config(driver=Driver(release_file=flag))
    first = Agent(config, SystemClock())
    try:
        with pytest.raises(
            StartError, match=rf"driver\.release_file: {flag}: another agent \(pid {os.getpid()}\)"
        ):
            Agent(config, SystemClock())
        Agent(config, SystemClock(), keeps_ledger=False).stop()  # a page beside it
        first.apply(Config(driver=Driver(release_file=other)))
        ledger = Ledger(path=str(tmp_path / "ledger.db"))
        second = Agent(Config(driver=Driver(release_file=flag), ledger=ledger), SystemClock())
        try:
            with pytest.raises(StartError, match="another agent"):
                second.apply(Config(driver=Driver(release_file=other), ledger=ledger))
            assert second.config.driver.release_file == flag
        finally:
            second.stop()
    finally:
        first.stop()
    Agent(config, SystemClock()).stop()


def test_a_simulated_agent_keeps_out_of_the_files_of_the_nodes_own() -> None:
    """What it writes is not of this node, and who wants this node's driver does not mean it."""
    simulated, own = Simulate(profile="h100", gpus=1), Config()
    agent = Agent(Config(simulate=simulated), SystemClock())
    try:
        for config in (
            agent.config,
            Config(simulate=simulated),
            msgspec.structs.replace(own, simulate=simulated),
        ):
            agent.apply(config)
            used = agent.config
            kept = (used.ledger.path, used.recorder.directory, used.driver.release_file)
            assert len({Path(path).parent for path in kept}) == 1
            assert not {*kept} & {own.ledger.path, own.recorder.directory, own.driver.release_file}
        named = msgspec.structs.replace(own.driver, release_file="/elsewhere/flag")
        agent.apply(Config(simulate=simulated, driver=named))
        assert agent.config.driver.release_file == "/elsewhere/flag"
    finally:
        agent.stop()
    assert not Path(kept[0]).parent.exists()


def test_a_simulated_agent_says_how_its_ledger_is_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    agent = Agent(Config(simulate=Simulate(profile="h100", gpus=1)), SystemClock())
    try:
        assert caplog.text.count(f"`clusterwatt jobs --ledger {agent.config.ledger.path}`") == 1
    finally:
        agent.stop()


def test_a_reload_changes_the_log_and_keeps_the_driver_client() -> None:
    simulated = Simulate(profile="h100", gpus=1)
    agent = Agent(Config(simulate=simulated), SystemClock())
    try:
        driver = agent.driver
        agent.apply(Config(simulate=simulated, log=Log(level="warning")))
        assert agent.driver is driver
        assert logging.getLogger().level == logging.WARNING
        agent.apply(Config(simulate=Simulate(profile="a100", gpus=1)))
        assert agent.driver is not driver  # other GPUs: those of before are not missed
    finally:
        agent.stop()


@pytest.mark.parametrize("content", [None, "file", "empty"])
def test_a_root_without_proc_is_refused_with_a_remedy(tmp_path: Path, content: str | None) -> None:
    root = tmp_path / "host"
    if content == "file":
        root.write_text("")
    elif content == "empty":
        root.mkdir()
    with pytest.raises(StartError, match=r"node\.root .*mount the host's root there"):
        check_root(str(root))


def test_systemd_hears_of_readiness_and_of_each_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        systemd.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        sdnotify.notify("READY=1")
        assert systemd.recv(100) == b"READY=1"
    sdnotify.notify("WATCHDOG=1")  # nobody listens any more: not our trouble
    monkeypatch.delenv("NOTIFY_SOCKET")
    sdnotify.notify("WATCHDOG=1")


def test_a_gpu_that_is_on_the_bus_is_expected_unless_a_number_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by the agent after a boot at which one was not found any more."""
    on_bus = [pci.Bus(driven=7, unbound=1), pci.Bus(driven=8), pci.Bus(driven=7)]
    monkeypatch.setattr("clusterwatt.app.pci.gpus", lambda _: on_bus.pop(0))
    ledger = msgspec.structs.replace(Config().ledger, path=str(tmp_path / "ledger.db"))
    config = Config(ledger=ledger, collectors=NO_GPU)
    for _ in range(3):
        agent = Agent(config, SystemClock())
        try:
            assert agent._gpus_expected(config) == 8
            assert agent._gpus_expected(msgspec.structs.replace(config, node=Node(gpus_expected=4))) == 4
            some = msgspec.structs.replace(config, node=Node(gpus_expected_from_bus=False))
            assert agent._gpus_expected(some) == 0  # of a container that was given some of them
            assert agent._gpus_expected(Config(simulate=Simulate(profile="h100"))) == 0
        finally:
            agent.stop()
            assert agent._learnt._worker is not None
            agent._learnt._worker._thread.join(10)
    assert on_bus == []


def test_the_schedulers_number_of_gpus_stands_behind_the_configured_one_and_before_the_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterwatt.app.pci.gpus", lambda _: pci.Bus(driven=7))
    ledger = msgspec.structs.replace(Config().ledger, path=str(tmp_path / "ledger.db"))
    config = Config(ledger=ledger, collectors=NO_GPU)
    agent = Agent(config, SystemClock())

    def expected(*said: Reading, configured: int = 0) -> int:
        agent._known.take(Snapshot(0, 0.0, 0.0, by_type(said)))
        return agent._gpus_expected(msgspec.structs.replace(config, node=Node(gpus_expected=configured)))

    slurm = SchedulerNode("slurm", maintenance=False, gpus=8)
    try:
        assert expected() == 7
        assert expected(slurm) == 8
        assert expected(slurm, configured=4) == 4
        assert expected(SchedulerNode("kubernetes", maintenance=False)) == 7
        # What Slurm hands out there may be instances.
        assert expected(slurm, GpuMode("0", "GPU-a", "mig", 1.0)) == 7
        assert expected(slurm, GpuMode("0", "GPU-a", "mig", 0.0)) == 8
    finally:
        agent.stop()


def test_gpus_that_were_given_to_another_driver_are_not_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_bus = [pci.Bus(unbound=4), pci.Bus(foreign=4), pci.Bus(driven=8), pci.Bus(driven=4, foreign=4)]
    monkeypatch.setattr("clusterwatt.app.pci.gpus", lambda _: on_bus.pop(0))
    ledger = msgspec.structs.replace(Config().ledger, path=str(tmp_path / "ledger.db"))
    config = Config(ledger=ledger, collectors=NO_GPU)
    expected = []
    for _ in range(4):
        agent = Agent(config, SystemClock())
        expected.append(agent._gpus_expected(config))
        agent.stop()
        assert agent._learnt._worker is not None
        agent._learnt._worker._thread.join(10)
    assert expected == [4, 0, 8, 4]
