"""What holds the clocks down, and for how long."""

from __future__ import annotations

import pytest

from clusterwatt.collectors.gpu_throttle import hardware_counters
from clusterwatt.readings.gpu import GpuThrottle
from tests.collectors.gpus import Watch
from tests.nvml.drivers import Bench

MASK = "nvmlDeviceGetCurrentClocksEventReasons"
SUPPORTED = "nvmlDeviceGetSupportedClocksEventReasons"
FIELDS = "nvmlDeviceGetFieldValues"
LATE_R580 = "580.126.09"  # hardware slowdowns are told by the mask only


def reasons(watch: Watch, ticks: int = 1) -> dict[str, GpuThrottle]:
    return {found.reason: found for found in watch.tick(ticks) if isinstance(found, GpuThrottle)}


def seconds(watch: Watch, reason: str, ticks: int = 1) -> float | None:
    return reasons(watch, ticks)[reason].throttle_seconds


def bench_of(driver: str = "590.48.01") -> Bench:
    bench = Bench("h100", 1, driver_version=driver).open()
    bench.library.gpu(0).health.event_reasons = 0
    return bench


@pytest.mark.parametrize(
    ("mask", "active"),
    [
        (0x0, set()),
        (0x1, {"idle"}),
        (0x2, {"app_clocks"}),
        (0x4, {"sw_power_cap"}),
        (0x101, {"idle", "display"}),
        (0x48, {"hw_slowdown", "hw_thermal"}),
        (0x80, {"hw_power_brake"}),
        (0x30, {"sync_boost", "sw_thermal"}),
        (0x800, {"unknown"}),
    ],
)
def test_g16_every_bit_has_its_name_and_one_without_is_unknown(mask: int, active: set[str]) -> None:
    bench = bench_of()
    watch = Watch(bench)
    watch.read()
    bench.library.gpu(0).health.event_reasons = mask
    found = reasons(watch)
    assert {reason for reason, now in found.items() if now.active == 1.0} == active
    assert {now.active for reason, now in found.items() if reason not in active} <= {0.0, None}
    assert ("unknown" in found) == (mask == 0x800)
    assert watch.failures == []


def test_a_held_mask_becomes_seconds() -> None:
    bench = bench_of(LATE_R580)
    watch = Watch(bench)
    watch.read()
    bench.library.gpu(0).health.event_reasons = 0x48
    assert seconds(watch, "hw_thermal", 900) == pytest.approx(900, abs=1)
    assert seconds(watch, "hw_slowdown") == pytest.approx(901, abs=1)
    assert seconds(watch, "hw_power_brake") == 0.0
    bench.library.gpu(0).health.event_reasons = 0
    before = seconds(watch, "hw_thermal")
    assert seconds(watch, "hw_thermal", 100) == before


def test_what_the_driver_counts_between_two_readings_is_counted() -> None:
    bench = bench_of()
    held = bench.library.gpu(0).health.held_down_ns
    held["sw_thermal"] = held["hw_thermal"] = 7_000_000_000_000  # of the time before the agent
    watch = Watch(bench)
    watch.read()
    assert seconds(watch, "sw_thermal") == 0.0
    held["sw_thermal"] += 250_000_000
    held["hw_thermal"] += 125_000_000
    found = reasons(watch)
    assert found["sw_thermal"].throttle_seconds == 0.25
    assert found["hw_thermal"].throttle_seconds == 0.125
    assert found["hw_thermal"].active == 0.0  # over before the mask was read


@pytest.mark.parametrize(
    ("driver", "thermal", "brake"),
    [
        ("590.48.01", 270, 271),
        ("595.71.05", 270, 271),
        ("610.10", 270, 271),
        ("575.57.08", 252, 253),
        ("580.65.06", 252, 253),
        ("580.82.07", None, None),
        ("580.126.09", None, None),
        ("570.148.08", None, None),
        ("535.54.03", None, None),
        ("", None, None),
        ("unknown", None, None),
    ],
)
def test_ids_that_moved_are_chosen_by_the_driver(driver: str, thermal: int | None, brake: int | None) -> None:
    """A wrong one is a plausible wrong number: early r580 has power smoothing at the ids of r590."""
    fields = hardware_counters(driver)
    assert fields.get("hw_thermal") == (None if thermal is None else (thermal, 0))
    assert fields.get("hw_power_brake") == (None if brake is None else (brake, 0))


@pytest.mark.parametrize("driver", ["575.57.08", "580.65.06", "590.48.01"])
def test_hardware_slowdowns_are_counted_by_the_driver_where_the_id_is_known(driver: str) -> None:
    bench = bench_of(driver)
    watch = Watch(bench)
    watch.read()
    bench.library.gpu(0).health.held_down_ns["hw_power_brake"] = 500_000_000
    assert seconds(watch, "hw_power_brake") == 0.5


def test_a_counter_that_runs_faster_than_time_is_none_and_the_mask_takes_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = bench_of()
    watch = Watch(bench)
    watch.read()
    bench.faults.change(FIELDS, 50_000_000_000_000, field=270)  # a ramp rate, say
    assert seconds(watch, "hw_thermal", 5) == 0.0
    bench.library.gpu(0).health.event_reasons = 0x40
    assert seconds(watch, "hw_thermal", 10) == pytest.approx(10, abs=1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_counter_that_steps_back_adds_nothing_and_goes_on_from_there() -> None:
    bench = bench_of()
    held = bench.library.gpu(0).health.held_down_ns
    held["sw_thermal"] = 10_000_000_000
    watch = Watch(bench)
    watch.read()
    held["sw_thermal"] = 0
    assert seconds(watch, "sw_thermal") == 0.0
    held["sw_thermal"] = 500_000_000
    assert seconds(watch, "sw_thermal") == 0.5


def test_a_reason_that_the_card_does_not_support_has_no_series() -> None:
    bench = bench_of(LATE_R580)
    bench.faults.change(SUPPORTED, 0x1 | 0x2 | 0x4)
    watch = Watch(bench)
    watch.read()
    found = reasons(watch)
    assert {reason for reason, now in found.items() if now.active is not None} == {
        "idle",
        "app_clocks",
        "sw_power_cap",
    }
    assert "hw_thermal" not in found
    assert "hw_slowdown" not in found


def test_seconds_stay_when_the_mask_cannot_be_read_and_the_state_is_absent() -> None:
    bench = bench_of(LATE_R580)
    watch = Watch(bench)
    watch.read()
    bench.library.gpu(0).health.event_reasons = 0x40
    before = seconds(watch, "hw_thermal", 10)
    bench.faults.fail(MASK, 999)
    found = reasons(watch, 10)["hw_thermal"]
    assert found.throttle_seconds == before
    assert found.active is None


@pytest.mark.parametrize("driver", ["470.57.02", "525.125.06"])
def test_older_drivers_have_the_mask_under_its_old_name(driver: str) -> None:
    bench = bench_of(driver)
    watch = Watch(bench)
    watch.read()
    bench.library.gpu(0).health.event_reasons = 0x40
    assert reasons(watch)["hw_thermal"].active == 1.0


def test_an_unknown_reason_stays_once_it_was_seen() -> None:
    bench = bench_of()
    watch = Watch(bench)
    watch.read()
    bench.library.gpu(0).health.event_reasons = 0x800
    assert seconds(watch, "unknown") == 0.0  # there from 0
    assert seconds(watch, "unknown", 5) == pytest.approx(5, abs=1)
    bench.library.gpu(0).health.event_reasons = 0
    assert reasons(watch)["unknown"].active == 0.0
