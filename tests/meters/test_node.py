"""Energy of the node by component: wraps, resets, gaps, and parts that are never added to the whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.meters import node
from clusterwatt.meters.node import NodeMeter
from clusterwatt.readings.base import Failure
from clusterwatt.readings.gpu import GpuPower
from clusterwatt.readings.gpu_measured import GpuEnergy
from clusterwatt.readings.host import BoardPower, EnergyZone, NodeEnergy, NodePower, PowerFeed

RANGE_J = 262_143.328850


class Bench:
    """A meter, and what it said last."""

    def __init__(self) -> None:
        self.meter = NodeMeter()
        self.joules: dict[str, float] = {}
        self.watts: dict[str, float] = {}
        self.methods: dict[str, str] = {}
        self.failures: list[str] = []

    def feed(
        self,
        read_s: float,
        *,
        package: float | None = None,
        dram: float | None = None,
        platform: float | None = None,
        gpu_joules: float | None = None,
        gpu_watts: float | None = None,
        range_joules: float | None = RANGE_J,
    ) -> Bench:
        zones = [
            EnergyZone(zone, component, joules, range_joules)
            for zone, component, joules in (("package-0", "cpu", package), ("package-0/dram", "dram", dram))
            if joules is not None
        ]
        board = [] if platform is None else [BoardPower("power_meter/x", "platform", "average", platform)]
        energies = [] if gpu_joules is None else [GpuEnergy("0", "GPU-a", "gpu", "counter", gpu_joules)]
        powers = [] if gpu_watts is None else [GpuPower("0", "GPU-a", "gpu", "average", gpu_watts)]
        self.watts = {}
        for reading in self.meter.measure(energies, powers, (read_s, zones), (read_s, board)):
            if isinstance(reading, NodeEnergy):
                self.joules[reading.component] = reading.energy_joules
                self.methods[reading.component] = reading.method
            elif isinstance(reading, NodePower):
                self.watts[reading.component] = reading.power_watts
            elif isinstance(reading, Failure):
                self.failures.append(reading.reason)
        return self


def test_the_first_reading_is_a_baseline() -> None:
    assert Bench().feed(0.0, package=120_000.0).joules == {"cpu": 0.0}


def test_g13_a_counter_that_wraps_goes_on() -> None:
    bench = Bench().feed(0.0, package=262_143.0).feed(1.0, package=0.671150)
    assert bench.joules["cpu"] == pytest.approx(1.0, abs=1e-6)
    assert bench.failures == []


def test_a_counter_that_falls_without_a_known_range_adds_nothing() -> None:
    bench = Bench().feed(0.0, package=500.0, range_joules=None).feed(1.0, package=1.0, range_joules=None)
    bench.feed(2.0, package=101.0, range_joules=None)
    assert bench.joules["cpu"] == 100.0
    assert bench.failures == ["counter_backwards"]


def test_a_register_that_began_anew_is_no_fortune() -> None:
    bench = Bench().feed(0.0, package=100.0).feed(1.0, package=0.0)  # kexec, suspend: not a wrap
    assert bench.joules["cpu"] == 0.0
    assert bench.failures == ["counter_jump"]


def test_a_failed_read_is_no_sample_and_loses_nothing() -> None:
    bench = Bench().feed(0.0, package=100.0).feed(1.0).feed(2.0, package=500.0)
    assert bench.joules["cpu"] == 400.0
    assert bench.watts["cpu"] == 200.0


def test_the_same_reading_taken_in_two_ticks_counts_once() -> None:
    bench = Bench().feed(0.0, package=0.0).feed(1.0, package=100.0).feed(1.0, package=100.0)
    assert bench.joules["cpu"] == 100.0
    assert bench.watts["cpu"] == 100.0


def test_platform_power_is_integrated_and_other_is_what_the_parts_do_not_explain() -> None:
    bench = Bench()
    for second in range(101):
        bench.feed(
            float(second),
            package=200.0 * second,
            dram=20.0 * second,
            platform=1_000.0,
            gpu_joules=650.0 * second,
            gpu_watts=650.0,
        )
    assert bench.joules == pytest.approx(
        {"gpu": 65_000.0, "cpu": 20_000.0, "dram": 2_000.0, "platform": 100_000.0, "other": 13_000.0}
    )
    assert bench.watts == pytest.approx(
        {"gpu": 650.0, "cpu": 200.0, "dram": 20.0, "platform": 1_000.0, "other": 130.0}
    )
    assert bench.methods == {
        "gpu": "counter",
        "cpu": "counter",
        "dram": "counter",
        "platform": "integrated",
        "other": "estimated",
    }


def test_a_platform_that_is_read_seldom_gives_the_same_rest() -> None:
    bench, meter = Bench(), Bench()
    for second in range(101):
        platform_s = second // 10 * 10
        bench.feed(float(second), package=200.0 * second)
        list(
            meter.meter.measure(
                [],
                [],
                (float(second), [EnergyZone("package-0", "cpu", 200.0 * second, RANGE_J)]),
                (float(platform_s), [BoardPower("m", "platform", "average", 500.0)]),
            )
        )
    last = meter.meter.measure(
        [],
        [],
        (100.0, [EnergyZone("package-0", "cpu", 20_000.0, RANGE_J)]),
        (100.0, [BoardPower("m", "platform", "average", 500.0)]),
    )
    other = next(
        reading.energy_joules
        for reading in last
        if isinstance(reading, NodeEnergy) and reading.component == "other"
    )
    assert other == pytest.approx(30_000.0, rel=0.01)


def test_nothing_is_integrated_across_a_gap_and_the_rest_goes_on_after_it() -> None:
    bench = Bench().feed(0.0, platform=1_000.0, package=0.0).feed(1.0, platform=1_000.0, package=200.0)
    bench.feed(1_000.0, platform=1_000.0, package=200_000.0)  # the platform was not measured meanwhile
    bench.feed(1_001.0, platform=1_000.0, package=200_200.0)
    assert bench.joules["platform"] == 2_000.0
    assert bench.joules["other"] == pytest.approx(1_600.0)


def test_a_part_that_is_not_measured_now_has_no_series_and_goes_on_afterwards() -> None:
    bench = Bench()
    for second in range(3):
        bench.feed(float(second), gpu_joules=600.0 * second, gpu_watts=600.0, package=100.0 * second)
    bench.joules.clear()
    bench.feed(3.0)  # the driver hangs, the zones cannot be read
    assert bench.joules == {}
    assert bench.watts == {}
    bench.feed(4.0, gpu_joules=2_400.0, gpu_watts=600.0, package=400.0)
    assert bench.joules == {"gpu": 2_400.0, "cpu": 400.0}


def test_g05_power_of_the_node_is_that_of_the_gpus_that_answer() -> None:
    meter = NodeMeter()
    powers = [
        GpuPower(str(n), f"GPU-{n}", "gpu", kind, 500.0) for n in range(7) for kind in ("instant", "average")
    ]
    said = [r for r in meter.measure([], powers, (0.0, []), (0.0, [])) if isinstance(r, NodePower)]
    assert [(power.component, power.power_watts) for power in said] == [("gpu", 3_500.0)]


@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 300.0), st.floats(0.0, RANGE_J), st.one_of(st.none(), st.floats(0.0, 20_000.0))
        ),
        max_size=40,
    )
)
def test_no_component_ever_falls(steps: list[tuple[float, float, float | None]]) -> None:
    bench, now_s, before = Bench(), 0.0, dict[str, float]()
    for seconds, package, platform in steps:
        now_s += seconds
        bench.feed(now_s, package=package, platform=platform)
        assert all(bench.joules[component] >= joules for component, joules in before.items())
        before = dict(bench.joules)


def test_feeds_are_what_is_configured() -> None:
    assert list(node.power_feeds({"B": 0.5, "A": 0.5}, {"A": 20_000.0})) == [
        PowerFeed(feed="A", feed_ratio=0.5, capacity_watts=20_000.0),
        PowerFeed(feed="B", feed_ratio=0.5, capacity_watts=None),
    ]


def share_of_parts(meter: NodeMeter, joules: float, ratio: float, *, board: bool = False) -> float | None:
    """Joules of `other`, with a GPU that has used `joules`."""
    sensors = [BoardPower("power1", "platform", "average", 1_000.0)] if board else []
    readings = meter.measure(
        [GpuEnergy("0", "GPU-a", "gpu", "counter", joules)],
        [],
        (0.0, []),
        (joules, sensors),
        other_ratio=ratio,
    )
    found = [r for r in readings if isinstance(r, NodeEnergy) and r.component == "other"]
    return found[0].energy_joules if found else None


def test_without_a_meter_of_the_whole_other_is_the_configured_share_of_the_parts() -> None:
    meter = NodeMeter()
    assert share_of_parts(meter, 100.0, 0.1) == pytest.approx(10.0)
    assert share_of_parts(meter, 200.0, 0.2) == pytest.approx(30.0)  # what was before stays as it was
    assert share_of_parts(meter, 300.0, 0.0) is None
    assert share_of_parts(meter, 400.0, 0.1) == pytest.approx(40.0)


def test_a_meter_of_the_whole_stands_before_the_configured_share() -> None:
    meter = NodeMeter()
    first = share_of_parts(meter, 0.0, 0.5, board=True)
    second = share_of_parts(meter, 10.0, 0.5, board=True)
    assert first == 0.0
    assert second == pytest.approx(10_000.0 - 10.0)
