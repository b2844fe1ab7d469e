"""Energy of the node by component: wraps, resets, gaps, and parts that are never added to the whole."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
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
        platform_s: float | None = None,
        gone: bool = False,
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
        for reading in self.meter.measure(
            energies,
            powers,
            (read_s, zones),
            (read_s if platform_s is None else platform_s, board),
            gpu_read_s={"GPU-a": read_s},
            gone={"GPU-a"} if gone else (),
        ):
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
        {"gpu": 65_000.0, "cpu": 20_000.0, "dram": 2_000.0, "platform": 100_000.0, "other": 70 * 130.0}
    )
    # For half a minute parts may be missing that have not answered yet.
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


def run(
    bench: Bench,
    seconds: int,
    *,
    every_s: int = 1,
    rest: Callable[[int], float] = lambda _: 200.0,
    load: Callable[[int], float] = lambda _: 600.0,
    driver: Callable[[int], bool] = lambda _: True,
    gone: Callable[[int], bool] = lambda _: False,
) -> None:
    """A GPU that draws `load`, a CPU that draws 100 W, and a whole with `rest` more, read each `every_s`.

    `driver`: it answers for the GPU. `gone`: it says that there is none.
    """
    gpu_joules, platform, platform_s = 1_000.0, 0.0, 0
    for second in range(seconds + 1):
        gpu_joules += load(second)
        if second % every_s == 0:
            platform, platform_s = load(second) + 100.0 + rest(second), second
        bench.feed(
            float(second),
            package=100.0 * second,
            platform=platform,
            platform_s=float(platform_s),
            gpu_joules=gpu_joules if driver(second) and not gone(second) else None,
            gone=gone(second),
        )


@pytest.mark.parametrize("every_s", [1, 10, 30, 120])
def test_a_bmc_that_is_read_seldom_gives_the_same_rest(every_s: int) -> None:
    """Loads that change between its readings are in the whole and in the parts of the same moments."""
    bench = Bench()
    run(bench, 7_200, every_s=every_s, load=lambda second: 650.0 if second // 47 % 2 else 120.0)
    assert bench.joules["other"] == pytest.approx(7_200 * 200.0, rel=0.06)
    assert bench.joules["other"] <= 7_200 * 200.0
    assert bench.watts["other"] == pytest.approx(200.0)


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.sampled_from([1, 30, 120]))
def test_noise_does_not_make_the_rest_grow(seed: int, every_s: int) -> None:
    """The whole and its parts are never read at quite the same moment."""
    noise = random.Random(seed)
    bench = Bench()
    run(bench, 130 * every_s, every_s=every_s, rest=lambda _: 200.0 + noise.uniform(-150.0, 150.0))
    measured_s = 130 * every_s - max(30, every_s)
    assert bench.joules["other"] == pytest.approx(measured_s * 200.0, rel=0.2)


def test_noise_about_nothing_comes_to_almost_nothing() -> None:
    noise = random.Random(1)
    bench = Bench()
    run(bench, 3_600, rest=lambda _: noise.uniform(-100.0, 100.0))
    assert bench.joules["other"] <= 3_600 * 3.0, "a ratchet would have 25 W or more"


@pytest.mark.parametrize("every_s", [1, 30])
@pytest.mark.parametrize("gap_s", [5, 40, 600])
def test_a_driver_that_does_not_answer_adds_nothing_to_the_rest(every_s: int, gap_s: int) -> None:
    bench = Bench()
    run(bench, 3_600, every_s=every_s, driver=lambda second: not 1_000 <= second < 1_000 + gap_s)
    measured_s = 3_600 - gap_s
    assert measured_s - 30 - 4 * every_s <= bench.joules["other"] / 200.0 <= 3_600
    assert bench.joules["other"] <= 200.0 * (measured_s if gap_s > 2 * every_s else 3_600)


def test_a_gpu_that_does_not_answer_is_no_part_of_the_rest() -> None:
    bench = Bench()
    run(bench, 100, driver=lambda second: second < 50)
    assert "other" not in bench.watts
    assert bench.joules["other"] <= 200.0 * 50, "as it stood when it was last shown"


@pytest.mark.parametrize("every_s", [1, 30])
def test_g05_a_gpu_that_is_gone_leaves_the_balance_of_the_others(every_s: int) -> None:
    """What is left in the node is measured: the rest goes on without a restart."""
    bench = Bench()
    run(
        bench,
        3_600,
        every_s=every_s,
        load=lambda second: 600.0 if second < 1_000 else 0.0,
        driver=lambda second: second < 1_000,
        gone=lambda second: second >= 1_040,  # for a while nobody knows what has become of it
    )
    assert bench.watts["other"] == pytest.approx(200.0)
    measured_s = 3_600 - 40
    assert measured_s - 30 - 5 * every_s <= bench.joules["other"] / 200.0 <= measured_s


@pytest.mark.parametrize("every_s", [1, 30])
def test_what_a_gpu_drew_while_it_was_gone_counts_once(every_s: int) -> None:
    """Its counter tells when it is back; until then the balance had it in the rest."""
    bench = Bench()
    run(
        bench,
        7_200,
        every_s=every_s,
        load=lambda second: 60.0 if 1_000 <= second < 2_000 else 600.0,
        gone=lambda second: 1_000 <= second < 2_000,
    )
    parts = bench.joules["gpu"] - 1_000.0 - 600.0 + bench.joules["cpu"] + bench.joules["other"]
    assert parts <= bench.joules["platform"] * (1 + 1e-9)
    assert bench.joules["other"] == pytest.approx(7_200 * 200.0, rel=0.05)


def test_a_gpu_that_is_back_owes_no_more_than_the_rest_has_had() -> None:
    bench = Bench()
    run(
        bench,
        3_600,
        load=lambda second: 300.0 if 1_000 <= second < 2_000 else 600.0,
        driver=lambda second: not 1_000 <= second < 1_990,  # hangs, and is gone for its last seconds only
        gone=lambda second: 1_990 <= second < 2_000,
    )
    assert bench.joules["other"] >= 200.0 * (3_600 - 1_000 - 40)


def test_a_gpu_that_goes_between_two_readings_of_the_bmc_does_not_fall_to_the_rest() -> None:
    """The mean of half a minute has it in it still."""
    bench = Bench()
    for second in range(121):
        there = second < 59
        bench.feed(
            float(second),
            platform=1_000.0 if second < 90 else 300.0,
            platform_s=float(second // 30 * 30),
            gpu_joules=700.0 * second if there else None,
            gone=not there,
        )
    assert bench.joules["other"] <= 60 * 300.0


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["there", "there", "silent", "gone"]),
            st.integers(1, 60),
            st.sampled_from([0.0, 60.0, 700.0]),
        ),
        max_size=8,
    ),
    st.sampled_from([1, 30]),
)
def test_however_a_gpu_comes_and_goes_the_parts_are_not_more_than_the_whole(
    stretches: list[tuple[str, int, float]], every_s: int
) -> None:
    states = [(state, watts) for state, seconds, watts in stretches for _ in range(seconds)]
    at_the_end = [("there", 60.0)] * (5 * len(states) + 50 * every_s)  # what is owed is paid by then
    states = [*([("there", 700.0)] * 100), *states, *at_the_end]
    bench = Bench()
    run(
        bench,
        len(states) - 1,
        every_s=every_s,
        load=lambda second: states[second][1],
        driver=lambda second: states[second][0] == "there",
        gone=lambda second: states[second][0] == "gone",
    )
    parts = bench.joules["gpu"] - 1_000.0 - states[0][1] + bench.joules["cpu"] + bench.joules["other"]
    slack = 800.0 * 2 * every_s * (2 * len(stretches) + 2)  # loads change between two readings of the whole
    assert parts <= bench.joules["platform"] + slack


def test_a_counter_that_is_read_faster_than_it_is_renewed_leaves_no_holes() -> None:
    bench = Bench()
    for tenth in range(601):
        bench.feed(tenth / 10, platform=1_000.0, gpu_joules=5_000.0 + 700.0 * (tenth // 4 * 4) / 10)
    assert bench.joules["other"] == pytest.approx(30 * 300.0, rel=0.1)


@pytest.mark.parametrize("every_s", [60, 61, 120, 600])
def test_a_bmc_is_integrated_however_seldom_it_is_read(every_s: int) -> None:
    bench = Bench()
    run(bench, 100 * every_s, every_s=every_s)
    assert bench.joules["platform"] == pytest.approx(900.0 * 100 * every_s, rel=0.011)


def test_nothing_is_integrated_across_a_gap_and_the_rest_goes_on_after_it() -> None:
    bench = Bench()
    for second in (*range(41), *range(1_000, 1_003)):
        bench.feed(float(second), platform=1_000.0, package=200.0 * second)
    assert bench.joules["platform"] == 42_000.0
    assert bench.joules["other"] == pytest.approx((10 + 2) * 800.0)


def test_a_driver_that_answers_later_than_the_bmc_does_not_put_its_gpus_into_the_rest() -> None:
    bench = Bench()
    run(bench, 130, driver=lambda second: second >= 20)
    assert bench.joules["other"] == pytest.approx(100 * 200.0)


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
    said = [
        r for r in meter.measure([], powers, (0.0, []), (0.0, []), gpu_read_s={}) if isinstance(r, NodePower)
    ]
    assert [(power.component, power.power_watts) for power in said] == [("gpu", 3_500.0)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.1, 1.0, 1.0, 1.0, 30.0, 300.0]),
            st.floats(0.0, 2_000.0),
            st.one_of(st.none(), st.floats(0.0, 20_000.0)),
            st.one_of(st.none(), st.floats(0.0, 10_000.0)),
        ),
        max_size=40,
    )
)
def test_no_component_ever_falls(steps: list[tuple[float, float, float | None, float | None]]) -> None:
    bench, now_s, before = Bench(), 0.0, dict[str, float]()
    package = gpu_joules = 0.0
    for seconds, package_watts, platform, gpu_watts in steps:
        now_s += seconds
        package = (package + package_watts * seconds) % RANGE_J
        gpu_joules += (gpu_watts or 0.0) * seconds
        gpu = None if gpu_watts is None else gpu_joules
        bench.feed(now_s, package=package, platform=platform, gpu_joules=gpu)
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
        gpu_read_s={"GPU-a": joules},
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
    said = [share_of_parts(meter, 10.0 + second, 0.5, board=True) for second in range(33)]
    assert said == [*[None] * 30, 0.0, 999.0, 2 * 999.0]


def test_joules_and_watts_of_a_gpu_say_when_power_stands_in_for_its_counter() -> None:
    meter = NodeMeter()

    def told(read_s: float, *totals: tuple[str, float]) -> tuple[dict[str, float], dict[str, float]]:
        readings = list(
            meter.measure(
                [GpuEnergy("0", "GPU-a", "gpu", method, joules) for method, joules in totals],
                [GpuPower("0", "GPU-a", "gpu", "average", 500.0)],
                (0.0, []),
                (read_s, []),
                gpu_read_s={"GPU-a": read_s},
            )
        )
        return (
            {each.method: each.energy_joules for each in readings if isinstance(each, NodeEnergy)},
            {each.method: each.power_watts for each in readings if isinstance(each, NodePower)},
        )

    assert told(1.0, ("counter", 500.0)) == ({"counter": 500.0}, {"counter": 500.0})
    both = ("counter", 500.0), ("integrated", 0.0)
    assert told(2.0, *both) == ({"counter": 500.0, "integrated": 0.0}, {"counter": 500.0})
    both = ("counter", 500.0), ("integrated", 1_000.0)
    assert told(3.0, *both) == ({"counter": 500.0, "integrated": 1_000.0}, {"integrated": 500.0})
    both = ("counter", 1_000.0), ("integrated", 1_000.0)
    assert told(4.0, *both) == ({"counter": 1_000.0, "integrated": 1_000.0}, {"counter": 500.0})
