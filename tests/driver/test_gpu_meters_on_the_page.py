"""From the driver to the snapshot: peaks, seconds of video engines, and counter against power readings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from clusterwatt.readings.gpu import GpuEngines
from clusterwatt.readings.gpu_measured import GpuEnergyDeviation, GpuPeak
from tests.driver.node import Node
from tests.makers import maker

ENCODER = "nvmlDeviceGetEncoderUtilization"


NodeOf = Callable[..., Node]


@pytest.fixture
def node_of() -> Iterator[NodeOf]:
    yield from maker(partial(Node, gpus=1))


def test_counter_and_power_readings_of_a_good_gpu_agree(node_of: NodeOf) -> None:
    node = node_of().tick(100)
    assert node.of(GpuEnergyDeviation) is None
    found = node.tick(60).of(GpuEnergyDeviation)
    assert found.deviation_ratio == pytest.approx(1.0, abs=0.02)


def test_a_sensor_that_states_too_little_shows(node_of: NodeOf) -> None:
    node = node_of("a100")
    node.faults.change("nvmlDeviceGetFieldValues", 100_000, field=186)  # mW
    found = node.tick(160).of(GpuEnergyDeviation)
    assert found.deviation_ratio > 1.2


def test_seconds_of_an_engine_go_on_in_the_next_driver_host(node_of: NodeOf) -> None:
    node = node_of()
    node.faults.change(ENCODER, [50, 166_000])
    before = node.tick(35).of(GpuEngines).encoder_busy_seconds
    assert 10.0 <= before <= 17.5
    node.host.close()
    node.host = node.new_host()
    after = node.tick(35).of(GpuEngines).encoder_busy_seconds
    assert before + 10.0 <= after <= before + 17.5


def test_a_board_that_is_cut_into_instances_has_no_peak(node_of: NodeOf) -> None:
    node = node_of(gpus=2).tick(2)
    for board in (0, 1):
        assert {peak.precision: peak.flops for peak in node.every(GpuPeak, board)}["bf16"] == 989.5e12
    node.library.configure_mig(0, ["3g.40gb"])
    node.tick(70)
    assert node.every(GpuPeak, 0) == []
    assert node.every(GpuPeak, 1) != []
