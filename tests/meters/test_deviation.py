"""Counter against integral: known after two minutes, of the last ten, and never over a break."""

from __future__ import annotations

import pytest

from clusterwatt.meters.deviation import DeviationMeter
from clusterwatt.readings.gpu import GpuIntegrals


class Bench:
    """A GPU whose counter and integral go on at rates that may change."""

    def __init__(self) -> None:
        self.meter = DeviationMeter()
        self.now_s = 1000.0
        self.since_s = 1000.0
        self.counter: float | None = 5e9
        self.integral: float | None = 0.0
        self.scope = "gpu"
        self.ratio: float | None = None

    def run(self, seconds: int, counted_w: float = 500.0, stated_w: float = 500.0) -> float | None:
        for _ in range(seconds):
            self.now_s += 1.0
            self.counter = None if self.counter is None else self.counter + counted_w
            self.integral = None if self.integral is None else self.integral + stated_w
            self.say()
        return self.ratio

    def say(self) -> None:
        integrals = GpuIntegrals(
            gpu="0",
            uuid="GPU-a",
            since_s=self.since_s,
            read_s=self.now_s,
            power_integral_joules=self.integral,
            energy_counter_joules=self.counter,
            energy_counter_scope=self.scope,
        )
        found = list(self.meter.measure([integrals], every_s=1.0))
        self.ratio = found[0].deviation_ratio if found else None


def test_it_is_known_after_two_minutes() -> None:
    bench = Bench()
    assert bench.run(120, counted_w=525.0) is None
    assert bench.run(1, counted_w=525.0) == pytest.approx(1.05)


def test_only_the_last_ten_minutes_count() -> None:
    bench = Bench()
    bench.run(1000, counted_w=1000.0)
    assert bench.run(300) == pytest.approx(1.5, abs=0.02)
    assert bench.run(301) == pytest.approx(1.0, abs=0.02)
    assert bench.run(10) == pytest.approx(1.0)


def test_it_holds_a_point_for_each_ten_seconds_and_no_more() -> None:
    bench = Bench()
    bench.run(3000)
    (window,) = bench.meter._windows.values()
    assert len(window._points) <= 61


@pytest.mark.parametrize("missing", ["counter", "integral"])
def test_it_is_absent_while_one_is_missing(missing: str) -> None:
    bench = Bench()
    bench.run(200)
    kept = getattr(bench, missing)
    setattr(bench, missing, None)
    assert bench.run(1) is None
    setattr(bench, missing, kept)
    assert bench.run(100) is None
    assert bench.run(21) == pytest.approx(1.0)


def test_a_superchip_has_none_because_its_counter_covers_more_than_the_gpu() -> None:
    bench = Bench()
    bench.scope = "module"
    assert bench.run(300) is None


def test_a_fresh_driver_host_begins_anew() -> None:
    bench = Bench()
    bench.run(300)
    bench.since_s, bench.integral = bench.now_s, 0.0
    assert bench.run(120) is None
    assert bench.run(1) == pytest.approx(1.0)


def test_a_counter_that_steps_back_begins_anew() -> None:
    bench = Bench()
    bench.run(300)
    bench.counter = 0.0
    assert bench.run(120) is None
    assert bench.run(1) == pytest.approx(1.0)


def test_energy_of_a_gap_is_in_the_counter_only_and_is_not_a_deviation() -> None:
    bench = Bench()
    bench.run(300)
    bench.now_s += 60.0  # nothing was read
    assert bench.counter is not None
    bench.counter += 30_000.0
    assert bench.run(120) is None
    assert bench.run(1) == pytest.approx(1.0)


def test_power_that_cannot_be_read_for_long_is_not_a_deviation() -> None:
    bench = Bench()
    bench.run(300)
    assert bench.run(20, stated_w=0.0) is None
    assert bench.run(130) == pytest.approx(1.0)


def test_power_that_was_not_read_twice_is_made_up_for() -> None:
    bench = Bench()
    bench.run(300)
    bench.run(2, stated_w=0.0)
    assert bench.run(1, stated_w=1500.0) == pytest.approx(1.0)


def test_the_same_reading_told_again_changes_nothing() -> None:
    bench = Bench()
    bench.run(300, counted_w=505.0)
    before = bench.ratio
    bench.say()
    assert bench.ratio == before == pytest.approx(1.01)
