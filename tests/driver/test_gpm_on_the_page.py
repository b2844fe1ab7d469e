"""From the driver to the snapshot: activity, its signal, GPM that goes, and utilisation that lies.

Host, client and pipeline as in the agent, in one process and under one clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clusterwatt.config.model import Driver, Simulate
from clusterwatt.driver.client import DriverClient
from clusterwatt.driver.frames import HostSettings
from clusterwatt.driver.host import Host
from clusterwatt.nvml.session import Session
from clusterwatt.pipeline import Pipeline
from clusterwatt.readings.agent import CollectorErrors, CollectorState
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuPcieTraffic
from clusterwatt.readings.gpu_measured import GpuActivity, GpuActivitySignal, GpuBusy, GpuUtilizationSuspect
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.simulate.gpu import ProcessEntry, simulated_uuid
from clusterwatt.simulate.nvml import SimulatedLibrary, install, uninstall
from tests.clocks import FakeClock

SAMPLE, UTILIZATION = "nvmlGpmSampleGet", "nvmlDeviceGetUtilizationRates"
NO_PERMISSION = 4
PATIENT_S, HASTY_S = 30.0, 1.5  # only what hangs ever waits for a deadline


class Node:
    """Everything that the agent has of the GPUs, but no processes and no page."""

    def __init__(
        self, profile: str = "h100", gpus: int = 3, *, deadline_s: float = PATIENT_S, **options: Any
    ) -> None:
        self.clock = FakeClock()
        self.library = SimulatedLibrary(profile, gpus, 1, self.clock.wall_s, **options)
        self.faults = self.library.faults
        install(self.library)
        settings = HostSettings(1.0, 30.0, deadline_s, 5.0, Simulate(profile="h100"))
        self.host = Host(settings, Session(simulated=True, clock=self.clock), self.clock)
        self.client = DriverClient(settings, Driver(), self.clock)
        self.client.supervise = lambda: None  # type: ignore[method-assign]  # the host is in this process
        self.snapshots: list[Snapshot] = []
        self.pipeline = Pipeline([], self.client, self.clock, self._publish)

    def _publish(self, snapshot: Snapshot) -> None:
        self.snapshots[:] = [snapshot]

    def tick(self, times: int = 1) -> Node:
        for _ in range(times):
            self.clock.advance(1.0)
            self.client._heard(None, self.host.tick())  # type: ignore[arg-type]  # no process is the one it has
            asyncio.run(self.pipeline.tick())
        return self

    def of(self, kind: type[Reading], board: int = 0) -> Any:
        """The GPU's reading of a type; None when there is none."""
        uuid = simulated_uuid(1, board)
        return next((r for r in self.snapshots[-1].of(kind) if r.uuid == uuid), None)  # type: ignore[attr-defined]  # of GPUs

    def activity_s(self, board: int = 0) -> float | None:
        reading = self.of(GpuActivity, board)
        return None if reading is None else reading.activity_seconds

    def signal(self, board: int = 0) -> str | None:
        reading = self.of(GpuActivitySignal, board)
        return None if reading is None else reading.signal

    def suspect(self, board: int) -> float | None:
        reading = self.of(GpuUtilizationSuspect, board)
        return None if reading is None else reading.suspect

    def errors(self) -> dict[tuple[str, str], float]:
        return {(e.collector, e.reason): e.errors for e in self.snapshots[-1].of(CollectorErrors)}

    def gpm_up(self) -> float | None:
        states = {state.collector: state.up for state in self.snapshots[-1].of(CollectorState)}
        return states.get("gpm")


NodeOf = Callable[..., Node]


@pytest.fixture
def node_of() -> Iterator[NodeOf]:
    made: list[Node] = []

    def make(*arguments: Any, **options: Any) -> Node:
        made.append(Node(*arguments, **options))
        return made[-1]

    yield make
    for node in made:
        node.faults.clear()
        node.host.close()
    uninstall()


def test_activity_is_what_the_sms_did(node_of: NodeOf) -> None:
    node = node_of().tick(3)
    first, start_s = node.activity_s(), node.clock.wall_s()
    node.tick(120)
    sm, end_s = node.library.gpu(0).signals.sm, node.clock.wall_s()
    worked_s = sm.integral(end_s) - sm.integral(start_s)
    assert node.activity_s() - first == pytest.approx(worked_s, rel=0.01)  # type: ignore[operator]
    assert node.activity_s(2) == 0.0
    assert [node.signal(board) for board in range(3)] == ["sm"] * 3
    assert node.gpm_up() == 1.0
    assert node.errors() == {}


def test_a_card_without_gpm_is_measured_by_its_utilisation(node_of: NodeOf) -> None:
    node = node_of("a100").tick(60)
    assert node.signal() == "utilization"
    assert node.activity_s() == node.of(GpuBusy).busy_seconds
    assert node.gpm_up() is None
    assert node.errors() == {}


def test_gpm_that_goes_in_mid_run_is_missed_on_its_gpu_and_comes_back(node_of: NodeOf) -> None:
    node = node_of().tick(30)
    before, busy_s = node.activity_s(), node.of(GpuBusy).busy_seconds
    rule = node.faults.fail(SAMPLE, NO_PERMISSION, gpu=0)
    node.tick(40)
    assert (node.signal(), node.activity_s()) == (None, None)
    assert node.of(GpuBusy).busy_seconds > busy_s
    assert node.signal(1) == "sm"
    assert node.gpm_up() == 1.0
    assert node.errors()["gpm", "signal_lost"] > 0
    assert node.errors()["gpm", "permission"] == 40
    assert ("gpu", "permission") not in node.errors()
    node.faults.clear(rule)
    node.tick(12)
    assert node.signal() == "sm"
    assert before <= node.activity_s() <= before + 12  # type: ignore[operator]  # what was not measured is not there


def test_gpm_that_hangs_is_its_own_collector_down(node_of: NodeOf) -> None:
    node = node_of(deadline_s=HASTY_S).tick(30)
    node.faults.hang(SAMPLE)
    node.tick(6)
    assert node.gpm_up() == 0.0
    assert [node.signal(board) for board in range(3)] == [None] * 3
    states = {state.collector: state for state in node.snapshots[-1].of(CollectorState)}
    assert (states["gpu"].up, states["gpu"].stuck_seconds) == (1.0, 0.0)
    assert states["gpm"].stuck_seconds == 5.0
    assert node.errors() == {("gpm", "signal_lost"): 9.0}


def test_a_gpu_cut_into_instances_has_no_activity_and_finds_it_again(node_of: NodeOf) -> None:
    node = node_of().tick(30)
    node.library.configure_mig(0, ["3g.40gb", "1g.10gb"])
    node.tick(90)
    assert node.signal() is None
    assert node.errors()["gpm", "signal_lost"] > 0
    node.library.configure_mig(0, None)
    node.tick(90)
    assert node.signal() == "sm"


def test_a_utilisation_that_sticks_at_full_is_suspect_on_its_gpu_alone(node_of: NodeOf) -> None:
    """The free GPU says 100 % with nothing on it; a GPU at work says so truthfully."""
    node = node_of().tick(5)
    node.faults.change(UTILIZATION, {"gpu": 100, "memory": 0}, gpu=2)
    node.tick(601)
    assert [node.suspect(board) for board in range(3)] == [0.0, 0.0, 1.0]
    assert node.activity_s(2) == 0.0
    node.faults.clear()
    node.tick()
    assert node.suspect(2) == 0.0


def test_without_gpm_a_stuck_utilisation_is_suspect_while_no_process_holds_the_gpu(node_of: NodeOf) -> None:
    node = node_of("a100", gpus=4).tick(5)
    free = node.library.gpu(3)
    node.faults.change(UTILIZATION, {"gpu": 100, "memory": 0}, gpu=3)
    node.tick(602)
    assert node.suspect(3) == 1.0
    free.listed = [ProcessEntry(4711, 1 << 30, kind="mps")]
    node.tick(61)  # the list is read each minute
    assert node.suspect(3) == 0.0


def test_a_driver_that_counts_no_pcie_bytes_has_them_from_gpm(node_of: NodeOf) -> None:
    node = node_of(driver_version="535.183.06").tick(30)
    counted, then_s = node.library.gpu(0).counted, node.clock.wall_s()
    first = node.of(GpuPcieTraffic)
    node.tick(60)
    sent = (counted("pcie", node.clock.wall_s()) - counted("pcie", then_s)) * 3.938e9 * 16
    traffic = node.of(GpuPcieTraffic)
    assert traffic.transmit_bytes - first.transmit_bytes == pytest.approx(sent, rel=0.01)
    assert traffic.receive_bytes - first.receive_bytes == pytest.approx(sent / 2, rel=0.01)
