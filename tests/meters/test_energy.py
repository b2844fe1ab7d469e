"""Joules and seconds of use: nothing is counted twice, nothing falls, nothing is invented."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.meters.energy import GpuMeter
from clusterwatt.readings.base import Failure
from clusterwatt.readings.gpu import GpuIntegrals, GpuPowerLimit
from clusterwatt.readings.gpu_measured import GpuBusy, GpuEnergy

A = "GPU-aaaaaaaa-0000-0000-0000-00000000000a"


def integrals(
    read_s: float,
    *,
    since_s: float = 0.0,
    busy: float | None = None,
    integral: float | None = None,
    counter: float | None = None,
) -> GpuIntegrals:
    return GpuIntegrals(
        gpu="0",
        uuid=A,
        since_s=since_s,
        read_s=read_s,
        busy_seconds=busy,
        power_integral_joules=integral,
        energy_counter_joules=counter,
    )


class Bench:
    """A meter and what it said at each step."""

    def __init__(self, limit_watts: float | None = None) -> None:
        self.meter = GpuMeter()
        self.limits = [] if limit_watts is None else [GpuPowerLimit("0", A, "max", limit_watts)]
        self.failures: list[str] = []
        self.energies: list[GpuEnergy] = []
        self.busy: list[GpuBusy] = []

    def feed(self, *steps: GpuIntegrals) -> Bench:
        for step in steps:
            for reading in self.meter.measure([step], self.limits):
                if isinstance(reading, Failure):
                    self.failures.append(reading.reason)
                elif isinstance(reading, GpuEnergy):
                    self.energies.append(reading)
                elif isinstance(reading, GpuBusy):
                    self.busy.append(reading)
        return self

    @property
    def joules(self) -> float:
        return self.energies[-1].energy_joules


def test_the_driver_counter_begins_at_zero_with_the_agent() -> None:
    bench = Bench().feed(*(integrals(float(s), counter=123_456.0 + 651.0 * s) for s in range(4)))
    assert [energy.energy_joules for energy in bench.energies] == [0.0, 651.0, 1302.0, 1953.0]
    assert {energy.method for energy in bench.energies} == {"counter"}


def test_g39_a_counter_that_steps_back_once_is_an_anomaly_not_a_fortune() -> None:
    steps = [
        integrals(10.0 * at, counter=millijoules / 1000)
        for at, millijoules in enumerate((3_000_262_144, 3_000_000_000, 3_000_500_000))
    ]
    bench = Bench(limit_watts=700.0).feed(*steps)
    assert bench.failures == ["counter_backwards"]
    joules = [energy.energy_joules for energy in bench.energies]
    assert joules == sorted(joules)
    assert joules[1] == 0.0
    assert 237.856 <= joules[2] <= 500.0


def test_g04_a_card_without_a_counter_is_integrated_and_says_so() -> None:
    bench = Bench().feed(*(integrals(10.0 * at, integral=450.0 * at) for at in range(361)))
    assert bench.joules == pytest.approx(162_000.0, rel=0.01)
    assert {energy.method for energy in bench.energies} == {"integrated"}


def test_g34_the_wall_clock_plays_no_part() -> None:
    bench = Bench().feed(integrals(100.0, counter=1000.0), integrals(110.0, counter=4000.0))
    assert bench.joules == 3000.0


def test_a_jump_that_the_card_cannot_draw_is_refused() -> None:
    bench = Bench(limit_watts=700.0).feed(
        integrals(0.0, counter=0.0), integrals(1.0, counter=1e15), integrals(2.0, counter=1e15 + 700)
    )
    assert bench.failures == ["counter_jump"]
    assert bench.joules == 700.0


def test_joules_that_the_counter_saw_across_a_gap_are_kept() -> None:
    bench = Bench(limit_watts=700.0).feed(integrals(0.0, counter=0.0), integrals(600.0, counter=390_000.0))
    assert bench.joules == 390_000.0


def test_a_counter_missed_once_is_not_a_card_without_one() -> None:
    bench = Bench().feed(
        integrals(0.0, integral=0.0),
        integrals(1.0, integral=650.0, counter=9000.0),
        integrals(2.0, integral=1300.0, counter=9651.0),
    )
    assert {energy.method for energy in bench.energies} == {"counter"}
    assert bench.joules == 651.0


def totals(bench: Bench, steps: int = 1) -> list[dict[str, float]]:
    """The totals of the newest steps by method, as far as the last has them."""
    said = bench.energies[-steps:]
    return [{energy.method: energy.energy_joules} for energy in said]


def test_while_the_counter_is_refused_power_stands_in_for_it_and_says_so() -> None:
    """A total that stands still would say that the GPU draws nothing."""
    bench = Bench().feed(*(integrals(float(at), integral=600.0 * at, counter=600.0 * at) for at in range(3)))
    bench.feed(*(integrals(float(at), integral=600.0 * at) for at in (3, 4)))
    assert totals(bench, 2) == [{"counter": 1_200.0}] * 2  # a read or two may fail
    bench.feed(integrals(5.0, integral=3_000.0))
    assert totals(bench, 2) == [{"counter": 1_200.0}, {"integrated": 0.0}]  # so that its rise is seen
    bench.feed(integrals(6.0, integral=3_600.0))
    assert totals(bench, 2) == [{"counter": 1_200.0}, {"integrated": 2_400.0}]
    bench.feed(*(integrals(float(at), integral=600.0 * at) for at in range(7, 25)))
    assert totals(bench, 2) == [{"counter": 1_200.0}, {"integrated": 13_200.0}]
    # The counter has seen one per cent more than the integral, which it has with it.
    bench.feed(integrals(25.0, integral=15_000.0, counter=15_138.0))
    assert totals(bench, 2) == [{"counter": 1_938.0}, {"integrated": 13_200.0}]
    bench.feed(integrals(26.0, integral=15_600.0, counter=15_738.0))
    assert totals(bench, 2) == [{"counter": 2_538.0}, {"integrated": 13_200.0}]


def test_what_was_integrated_is_not_taken_back_where_the_counter_has_less() -> None:
    bench = Bench().feed(integrals(0.0, integral=0.0, counter=0.0))
    bench.feed(*(integrals(float(at), integral=600.0 * at) for at in range(1, 11)))
    bench.feed(integrals(11.0, integral=6_600.0, counter=5_900.0))
    assert totals(bench, 2) == [{"counter": 0.0}, {"integrated": 6_000.0}]
    bench.feed(integrals(12.0, integral=7_200.0, counter=6_500.0))
    assert totals(bench, 2) == [{"counter": 600.0}, {"integrated": 6_000.0}]


def test_a_counter_that_misses_a_moment_is_not_stood_in_for() -> None:
    bench = Bench()
    for second in range(12):
        counter = None if second % 3 else 600.0 * second
        bench.feed(integrals(float(second), integral=600.0 * second, counter=counter))
    assert {energy.method for energy in bench.energies} == {"counter"}
    assert bench.joules == 9 * 600.0


def test_without_counter_and_power_there_is_no_total_and_the_counter_catches_up() -> None:
    bench = Bench().feed(*(integrals(float(at), integral=600.0 * at, counter=600.0 * at) for at in range(3)))
    bench.feed(*(integrals(3.0 + at, integral=1_200.0) for at in range(2)))
    assert len(bench.energies) == 5
    bench.feed(*(integrals(5.0 + at, integral=1_200.0) for at in range(20)))
    assert len(bench.energies) == 5
    bench.feed(integrals(25.0, integral=1_200.0, counter=15_000.0))
    assert (bench.joules, bench.energies[-1].method) == (15_000.0, "counter")


def test_a_card_without_a_counter_whose_power_is_refused_has_no_total() -> None:
    bench = Bench().feed(*(integrals(float(at), integral=300.0 * at) for at in range(6)))
    said = len(bench.energies)
    bench.feed(*(integrals(6.0 + at, integral=1_500.0) for at in range(10)))
    assert len(bench.energies) == said + 2
    bench.feed(integrals(16.0, integral=1_800.0))
    assert bench.joules == 1_800.0


def test_a_fresh_host_goes_on_where_the_old_one_ended() -> None:
    bench = Bench().feed(
        integrals(1.0, since_s=0.0, busy=1.0, counter=100.0),
        integrals(2.0, since_s=0.0, busy=2.0, counter=200.0),
        integrals(9.0, since_s=8.0, busy=0.5, counter=900.0),
        integrals(10.0, since_s=8.0, busy=1.5, counter=1000.0),
    )
    assert [busy.busy_seconds for busy in bench.busy] == [1.0, 2.0, 2.5, 3.5]
    assert bench.joules == 900.0


def test_on_a_superchip_the_counter_is_the_modules_and_the_gpus_share_is_integrated() -> None:
    meter = GpuMeter()
    for second in range(4):
        step = GpuIntegrals(
            "0",
            A,
            since_s=0.0,
            read_s=float(second),
            power_integral_joules=600.0 * second,
            energy_counter_joules=1_000.0 * second,
            energy_counter_scope="module",
        )
        said = [reading for reading in meter.measure([step], []) if isinstance(reading, GpuEnergy)]
    assert [(energy.scope, energy.method, energy.energy_joules) for energy in said] == [
        ("module", "counter", 3_000.0),
        ("gpu", "integrated", 1_800.0),
    ]


def test_the_same_reading_taken_twice_counts_once() -> None:
    step = integrals(1.0, busy=1.0, counter=100.0)
    bench = Bench().feed(integrals(0.0, busy=0.0, counter=0.0), step, step, step)
    assert bench.joules == 100.0
    assert bench.busy[-1].busy_seconds == 1.0


@given(
    st.lists(
        st.tuples(st.floats(0.1, 100.0), st.floats(0.0, 1e9), st.floats(0.0, 1e6), st.booleans()),
        max_size=50,
    )
)
def test_totals_never_fall_whatever_the_driver_says(
    steps: list[tuple[float, float, float, bool]],
) -> None:
    bench, now_s, since_s = Bench(limit_watts=700.0), 0.0, 0.0
    for seconds, counter, busy, fresh_host in steps:
        now_s += seconds
        since_s = now_s if fresh_host else since_s
        bench.feed(integrals(now_s, since_s=since_s, busy=busy, counter=counter))
    joules = [energy.energy_joules for energy in bench.energies]
    seconds_busy = [busy.busy_seconds or 0.0 for busy in bench.busy]
    assert joules == sorted(joules)
    assert seconds_busy == sorted(seconds_busy)
    assert bench.joules <= 700.0 * 1.2 * max(now_s, len(steps)) if bench.energies else True
