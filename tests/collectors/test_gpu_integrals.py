"""Joules and seconds of use: what the driver states as a momentary value, summed over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from clusterwatt.collectors.gpu_integrals import Integral
from clusterwatt.readings.gpu import GpuIntegrals, GpuPower
from clusterwatt.simulate.work import Cycle, Flat, mean
from tests.collectors.gpus import Everywhere, Watch, only
from tests.nvml.drivers import Bench

FIELDS = "nvmlDeviceGetFieldValues"
SAMPLES = "nvmlDeviceGetSamples"


# --- the sum itself --------------------------------------------------------------------------------------


def test_a_momentary_value_is_joined_by_lines_an_average_holds_for_its_interval() -> None:
    moment, average = Integral(1.0), Integral(1.0)
    for now_s, value in ((0.0, 100.0), (1.0, 300.0), (2.0, 300.0)):
        moment.add(value, now_s, averaged=False)
        average.add(value, now_s, averaged=True)
    assert moment.total == 200.0 + 300.0
    assert average.total == 300.0 + 300.0


def test_nothing_is_known_before_the_first_sample_and_nothing_is_summed_at_it() -> None:
    integral = Integral(1.0)
    assert integral.total is None
    integral.add(100.0, 5.0, averaged=False)
    assert integral.total == 0.0


@pytest.mark.parametrize(("gap_s", "joules"), [(1.0, 100.0), (3.0, 300.0), (3.2, 0.0), (60.0, 0.0)])
def test_a_gap_of_three_intervals_is_bridged_a_longer_one_is_not(gap_s: float, joules: float) -> None:
    integral = Integral(1.0)
    integral.add(100.0, 0.0, averaged=False)
    integral.add(100.0, gap_s, averaged=False)
    assert integral.total == pytest.approx(joules)
    integral.add(100.0, gap_s + 1.0, averaged=False)
    assert integral.total == pytest.approx(joules + 100.0)


# --- power -----------------------------------------------------------------------------------------------


def integrals(watch: Watch, times: int = 1) -> GpuIntegrals:
    found: GpuIntegrals = only(GpuIntegrals, watch.tick(times))
    return found


def kinds(watch: Watch) -> set[tuple[str, str]]:
    return {(power.scope, power.kind) for power in watch.tick() if isinstance(power, GpuPower)}


@pytest.mark.parametrize("fields", [True, False])
def test_g04_a_card_without_energy_counter_has_its_power_integrated(fields: bool) -> None:
    bench = Bench("t4").open()
    bench.faults.fail("nvmlDeviceGetTotalEnergyConsumption", 3)
    bench.faults.fail(FIELDS, 3, field=83)
    bench.faults.change("nvmlDeviceGetPowerUsage", 45_000)
    if fields:
        bench.faults.change(FIELDS, 45_000, field=186)
    else:
        bench.faults.fail(FIELDS, 3, field=186)
    watch = Watch(bench, every_seconds=10.0)
    watch.read()
    found = integrals(watch, 360)
    assert found.power_integral_joules == pytest.approx(162_000, rel=0.01)
    assert found.energy_counter_joules is None
    assert watch.failures == []


@pytest.mark.parametrize("card", ["a100", "h100", "b200", "l40s", "t4", "rtx4080"])
def test_integrated_power_is_the_drivers_own_energy(card: str) -> None:
    """A training step: power moves between idle and load within seconds."""
    bench = Bench(card, work=Everywhere(Cycle((7.0, 2.0), (1.0, 0.1)))).open()
    watch = Watch(bench)
    first = only(GpuIntegrals, watch.read())
    last = integrals(watch, 900)
    counted = last.energy_counter_joules - first.energy_counter_joules
    assert last.power_integral_joules == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_g34_a_step_of_the_wall_clock_is_no_energy_and_no_use(step_s: float) -> None:
    bench = Bench("a100", work=Everywhere(Flat(0.5))).open()
    bench.faults.change(FIELDS, 300_000, field=186)
    watch = Watch(bench, every_seconds=10.0)
    watch.read()
    before = integrals(watch)
    bench.clock.step_wall(step_s)
    after = integrals(watch)
    assert after.power_integral_joules - before.power_integral_joules == 3000.0  # type: ignore[operator]
    assert 0.0 <= after.busy_seconds - before.busy_seconds <= 10.0  # type: ignore[operator]
    later = integrals(watch, 10)
    assert later.busy_seconds - after.busy_seconds == pytest.approx(50.0, abs=10.0)  # type: ignore[operator]


def test_power_that_could_not_be_read_is_no_sample() -> None:
    bench = Bench("a100").open()
    bench.faults.change(FIELDS, 300_000, field=186)
    watch = Watch(bench)
    watch.read()
    assert integrals(watch).power_integral_joules == 300.0
    failing = bench.faults.fail(FIELDS, 999, field=186)
    assert integrals(watch, 2).power_integral_joules == 300.0  # nothing is known yet of these two seconds
    bench.faults.clear(failing)
    bench.faults.change(FIELDS, 300_000, field=186)
    assert integrals(watch).power_integral_joules == 1200.0


@pytest.mark.parametrize(
    ("capability", "kind"),
    [((7, 5), "instant"), ((8, 0), "instant"), ((8, 6), "average"), ((8, 9), "average"), ((9, 0), "average")],
)
def test_power_of_the_old_call_is_called_what_it_is(capability: tuple[int, int], kind: str) -> None:
    """An average from Ampere on, momentary on GA100 and what is older (nvml.h)."""
    bench = Bench("t4").open()
    bench.faults.fail(FIELDS, 3, field=185)
    bench.faults.fail(FIELDS, 3, field=186)
    bench.faults.change("nvmlDeviceGetCudaComputeCapability", list(capability))
    assert kinds(Watch(bench)) == {("gpu", kind)}


@pytest.mark.parametrize("card", ["a100", "h100", "l40s", "t4"])
def test_the_old_call_is_not_made_where_the_fields_say_more(card: str) -> None:
    bench = Bench(card).open()
    watch = Watch(bench)
    watch.tick(10)
    assert bench.library.calls["nvmlDeviceGetPowerUsage"] == 0
    assert ("gpu", "instant") in kinds(watch)


def test_power_of_the_moment_is_joined_by_lines() -> None:
    bench = Bench("h100").open()
    bench.faults.change(FIELDS, 100_000, field=186)
    watch = Watch(bench)
    watch.read()
    bench.faults.clear()
    bench.faults.change(FIELDS, 300_000, field=186)
    assert integrals(watch).power_integral_joules == 200.0


def test_the_average_alone_is_integrated_as_an_average() -> None:
    bench = Bench("h100").open()
    bench.faults.fail(FIELDS, 3, field=186)
    bench.faults.change(FIELDS, 500_000, field=185)
    watch = Watch(bench)
    watch.read()
    assert integrals(watch, 10).power_integral_joules == 5000.0


def test_energy_comes_from_the_call_where_the_field_is_missing() -> None:
    bench = Bench("h100").open()
    bench.faults.fail(FIELDS, 3, field=83)
    bench.faults.change("nvmlDeviceGetTotalEnergyConsumption", 3_000_262_144)
    assert integrals(Watch(bench)).energy_counter_joules == 3_000_262.144


@pytest.mark.parametrize(("card", "scope"), [("h100", "module"), ("b200", "gpu"), ("a100", "gpu")])
def test_the_counter_of_a_grace_hopper_counts_the_module(card: str, scope: str) -> None:
    """It is told by its module power, which no other Hopper has."""
    bench = Bench(card).open()
    bench.faults.change(FIELDS, 450_000, field=186)  # in all scopes
    watch = Watch(bench)
    assert integrals(watch).energy_counter_scope == scope
    assert ("module", "instant") in kinds(watch)


# --- use -------------------------------------------------------------------------------------------------

# Kernels of 0.4 s with pauses of 0.9 s: a reading of 1/6 s once a second sees an arbitrary part of it.
BURSTS = Cycle((0.4, 0.9), (1.0, 0.0))


def test_seconds_of_use_are_exact_where_the_card_fills_its_ring_buffer() -> None:
    bench = Bench("h100", work=Everywhere(BURSTS)).open()
    watch = Watch(bench)
    watch.read()
    start_s = bench.clock.wall_s()
    busy = integrals(watch, 600).busy_seconds
    truth = 600 * mean(BURSTS, start_s, bench.clock.wall_s())
    assert busy == pytest.approx(truth, abs=1.0)


def test_seconds_of_use_come_from_the_gauge_where_there_is_no_ring_buffer() -> None:
    bench = Bench("h100").open()
    bench.faults.fail(SAMPLES, 3)
    bench.faults.change("nvmlDeviceGetUtilizationRates", {"gpu": 25, "memory": 10})
    watch = Watch(bench)
    watch.read()
    found = integrals(watch, 600)
    assert found.busy_seconds == pytest.approx(150.0)
    assert found.memory_busy_seconds == pytest.approx(60.0)


def test_seconds_of_use_move_at_every_tick_and_begin_at_zero() -> None:
    watch = Watch(Bench("h100", work=Everywhere(Flat(1.0))).open())
    assert only(GpuIntegrals, watch.read()).busy_seconds == 0.0
    seconds = [integrals(watch).busy_seconds for _ in range(5)]
    assert seconds == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0])


def test_a_ring_buffer_that_falls_silent_is_replaced_by_the_gauge_and_taken_up_again() -> None:
    bench = Bench("h100", work=Everywhere(Flat(1.0))).open()
    watch = Watch(bench)
    watch.read()
    watch.tick(10)
    silence = bench.faults.fail(SAMPLES, 6)
    assert integrals(watch, 100).busy_seconds == pytest.approx(110.0, abs=0.01)
    bench.faults.clear(silence)
    assert integrals(watch, 100).busy_seconds == pytest.approx(210.0, abs=0.01)


def test_a_sample_that_comes_every_other_tick_stands_for_both() -> None:
    bench = Bench("h100", work=Everywhere(Flat(0.0))).open()
    watch = Watch(bench, every_seconds=0.5)
    _answer_samples(lambda newest_s: [(int(newest_s) * 1_000_000, 80)], bench)
    watch.read()
    assert integrals(watch, 200).busy_seconds == pytest.approx(80.0, abs=1.0)


def test_samples_of_the_time_before_are_not_counted() -> None:
    """The first answer holds the last seconds before the agent came; the GPU was busy then."""
    bench = Bench("h100", work=Everywhere(Cycle((60.0, 1e9), (1.0, 0.0)))).open()
    bench.clock.step_wall(1_600_000_000.0 + 60.0 - bench.clock.wall_s())
    watch = Watch(bench)
    watch.read()
    assert integrals(watch, 10).busy_seconds == pytest.approx(0.0, abs=0.2)


def test_a_ring_buffer_that_fills_later_does_not_bring_the_past_with_it() -> None:
    bench = Bench("h100", work=Everywhere(Cycle((60.0, 1e9), (1.0, 0.0)))).open()
    bench.clock.step_wall(1_600_000_000.0 + 60.0 - bench.clock.wall_s())  # busy until now, then idle
    silence = bench.faults.fail(SAMPLES, 6)
    watch = Watch(bench)
    watch.read()
    before = integrals(watch, 5).busy_seconds
    bench.faults.clear(silence)
    assert integrals(watch, 5).busy_seconds == before


def test_use_never_exceeds_the_time_that_passed() -> None:
    bench = Bench("h100", work=Everywhere(Flat(1.0))).open()
    watch = Watch(bench)
    watch.read()
    watch.tick(5)
    bench.clock.advance(20.0)  # the host was stopped: nothing is known of this time
    assert integrals(watch).busy_seconds == pytest.approx(5.0)


def test_a_ratio_beyond_one_is_no_sample() -> None:
    bench = Bench("h100", work=Everywhere(Flat(0.0))).open()
    watch = Watch(bench)
    _answer_samples(lambda newest_s: [(int(newest_s * 1e6), 0xFFFFFFFF)], bench)
    watch.read()
    assert integrals(watch, 10).busy_seconds == 0.0


def _answer_samples(answer: Callable[[float], list[tuple[int, int]]], bench: Bench) -> None:
    def samples(handle: object, kind: Any, since: Any, value_type: Any, count: Any, array: Any) -> int:
        new = [(stamp, value) for stamp, value in answer(bench.clock.wall_s()) if stamp > since.value]
        if not new:
            return 6
        for place, (stamp, value) in enumerate(new):
            array[place].timeStamp, array[place].sampleValue.uiVal = stamp, value
        value_type._obj.value, count._obj.value = 1, len(new)
        return 0

    pynvml._nvmlGetFunctionPointer_cache[SAMPLES] = samples
