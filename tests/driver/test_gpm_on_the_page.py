"""From the driver to the snapshot: activity, its signal, GPM that goes, and utilisation that lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from clusterwatt.readings.agent import CollectorErrors, CollectorState
from clusterwatt.readings.gpu_links import GpuPcieTraffic
from clusterwatt.readings.gpu_measured import (
    GpuActivity,
    GpuActivitySignal,
    GpuBusy,
    GpuC2cTraffic,
    GpuUtilizationSuspect,
)
from clusterwatt.simulate.gpu import ProcessEntry
from tests.driver.node import Node
from tests.makers import maker

SAMPLE, UTILIZATION = "nvmlGpmSampleGet", "nvmlDeviceGetUtilizationRates"
NO_PERMISSION = 4
HASTY_S = 1.5


class Activity(Node):
    """With what it tells of how busy its GPUs are."""

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
        return {(e.collector, e.reason): e.errors for e in self.snapshot.of(CollectorErrors)}

    def gpm_up(self) -> float | None:
        states = {state.collector: state.up for state in self.snapshot.of(CollectorState)}
        return states.get("gpm")


NodeOf = Callable[..., Activity]


@pytest.fixture
def node_of() -> Iterator[NodeOf]:
    yield from maker(Activity)


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


def test_a_superchip_tells_what_crosses_the_link_to_its_cpu(node_of: NodeOf) -> None:
    node = node_of("gb200").tick(3)
    gpu, before, start_s = node.library.gpu(0), node.of(GpuC2cTraffic), node.clock.wall_s()
    node.tick(120)
    crossed_s = gpu.signals.pcie.integral(node.clock.wall_s()) - gpu.signals.pcie.integral(start_s)
    carried = gpu.card.c2c_links * gpu.card.c2c_mbps * 1e6 * crossed_s
    assert carried > 0
    after = node.of(GpuC2cTraffic)
    assert after.receive_bytes - before.receive_bytes == pytest.approx(carried, rel=0.01)
    assert after.transmit_bytes - before.transmit_bytes == pytest.approx(carried, rel=0.01)
    assert node.errors() == {}


def test_a_board_without_a_link_to_the_cpu_tells_of_none(node_of: NodeOf) -> None:
    assert node_of("b200").tick(60).of(GpuC2cTraffic) is None


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
    states = {state.collector: state for state in node.snapshot.of(CollectorState)}
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
