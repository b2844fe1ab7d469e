"""Power, energy, heat, clocks: they follow the work, and each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from clusterwatt.simulate.cards import cards
from tests.simulate.conftest import Driver, code, field

INSTANT, AVERAGE, ENERGY = 186, 185, 191
JOB, HOLDER, FREE = 0, 2, 3  # of a node of four


def energy_mj(handle: Any) -> int:
    return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))


@pytest.mark.parametrize("profile", cards())
def test_energy_is_the_integral_of_the_power(profile: str, driver: Callable[..., Driver]) -> None:
    made = driver(profile)
    handle = made.handle(JOB)
    before, area_mj, step_s = energy_mj(handle), 0.0, 0.02
    for _ in range(int(60 / step_s)):
        made.clock.advance(step_s / 2)
        area_mj += field(handle, INSTANT).value.uiVal * step_s
        made.clock.advance(step_s / 2)
    assert energy_mj(handle) - before == pytest.approx(area_mj, rel=2e-3)


def test_average_power_is_the_energy_of_the_last_second(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    handle = made.handle(JOB)
    for _ in range(50):
        before = energy_mj(handle)
        made.clock.advance(1.0)
        spent = energy_mj(handle) - before
        assert pynvml.nvmlDeviceGetPowerUsage(handle) == pytest.approx(spent, abs=2)
        assert field(handle, AVERAGE).value.uiVal == pynvml.nvmlDeviceGetPowerUsage(handle)


def test_an_a100_states_the_moment_only(driver: Callable[..., Driver]) -> None:
    handle = driver("a100").handle(JOB)
    assert field(handle, AVERAGE).nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == field(handle, INSTANT).value.uiVal


def test_another_process_goes_on_where_the_first_stopped(driver: Callable[..., Driver]) -> None:
    first = driver("h100")
    before = energy_mj(first.handle(JOB))
    first.clock.advance(10.0)
    second = driver("h100", clock=first.clock)
    after = energy_mj(second.handle(JOB))
    assert 500_000 < after - before < 7_000_000, "between 50 and 700 W for ten seconds"


def test_the_same_seed_gives_the_same_values(driver: Callable[..., Driver]) -> None:
    def values(seed: int) -> list[int]:
        made = driver("h100", seed=seed)
        found = []
        for _ in range(20):
            made.clock.advance(1.7)
            found += [energy_mj(made.handle(i)) for i in range(4)]
        return found

    assert values(5) == values(5) != values(6)


def test_energy_never_falls(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    handle, last = made.handle(JOB), 0
    for _ in range(2000):
        made.clock.advance(0.0137)
        assert energy_mj(handle) > last
        last = energy_mj(handle)


def test_counters_begin_again_when_the_driver_is_reloaded(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    handle = made.handle(JOB)
    power = pynvml.nvmlDeviceGetPowerUsage(handle)
    made.library.reload_driver()
    assert energy_mj(handle) == 0
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == power
    made.clock.advance(10.0)
    assert 500_000 < energy_mj(handle) < 7_000_000


def test_energy_by_field_and_by_call_is_one_counter(driver: Callable[..., Driver]) -> None:
    handle = driver("h100").handle(JOB)
    assert field(handle, 83).value.ullVal == field(handle, ENERGY).value.ullVal == energy_mj(handle)
    assert field(handle, ENERGY, scope=1).nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_only_the_gpus_of_the_job_work(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    rows = []
    for index in (JOB, HOLDER, FREE):
        handle = made.handle(index)
        rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
        rows.append((rates.gpu, memory.used > 0, pynvml.nvmlDeviceGetPowerUsage(handle) > 200_000))
    assert rows == [(100, True, True), (0, True, False), (0, False, False)]


def test_power_stays_below_the_limit(driver: Callable[..., Driver]) -> None:
    for profile in cards():
        made = driver(profile, gpus=8)
        handles = [made.handle(i) for i in range(8)]
        for _ in range(100):
            made.clock.advance(3.1)
            for handle in handles:
                limit = pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)
                assert 0 < field(handle, INSTANT).value.uiVal <= limit


def test_temperature_follows_power_with_a_lag(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    handle = made.handle(JOB)
    rest_s = 0.0
    while rest_s < 3.0:  # until the checkpoint, which leaves the GPU alone for 20 s
        made.clock.advance(0.5)
        rest_s = 0.0 if pynvml.nvmlDeviceGetUtilizationRates(handle).gpu else rest_s + 0.5
    warm = pynvml.nvmlDeviceGetTemperatureV(handle, 0)
    made.clock.advance(15.0)
    cooler = pynvml.nvmlDeviceGetTemperatureV(handle, 0)
    idle = cards()["h100"].temperature_idle_c
    assert warm > cooler > idle, "it cools, but not at once"


def test_the_margin_and_the_temperature_add_up(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    for index in range(4):
        handle = made.handle(index)
        sum_c = pynvml.nvmlDeviceGetMarginTemperature(handle) + pynvml.nvmlDeviceGetTemperatureV(handle, 0)
        assert sum_c == 87


def test_limits_of_temperature_absolute_or_as_margins(driver: Callable[..., Driver]) -> None:
    old = driver("a100").handle()
    assert [pynvml.nvmlDeviceGetTemperatureThreshold(old, i) for i in range(4)] == [92, 89, 95, 85]
    assert [field(old, i).nvmlReturn for i in range(193, 197)] == [3] * 4
    assert code(pynvml.nvmlDeviceGetMarginTemperature, old) == pynvml.NVML_ERROR_NOT_SUPPORTED
    new = driver("h100").handle()
    assert [code(pynvml.nvmlDeviceGetTemperatureThreshold, new, i) for i in range(4)] == [3] * 4
    assert [field(new, i).value.siVal for i in range(193, 197)] == [-8, -2, 0, 0]
    assert field(new, 193).valueType == pynvml.NVML_VALUE_TYPE_SIGNED_INT


def test_an_unknown_sensor_is_an_invalid_argument(driver: Callable[..., Driver]) -> None:
    handle = driver().handle()
    assert code(pynvml.nvmlDeviceGetTemperatureV, handle, 1) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert code(pynvml.nvmlDeviceGetClockInfo, handle, 9) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_memory_temperature_states_a_wrong_type(driver: Callable[..., Driver]) -> None:
    """Since r545 the driver states a double and fills an unsigned int."""
    value = field(driver().handle(), 82)
    assert value.valueType == pynvml.NVML_VALUE_TYPE_DOUBLE
    assert 40 < value.value.uiVal < 70
    assert field(driver(driver_version="535.129.03").handle(), 82).valueType == 1


def test_clocks_follow_the_work(driver: Callable[..., Driver]) -> None:
    made = driver("rtx4080")
    busy, free = made.handle(JOB), made.handle(FREE)
    assert pynvml.nvmlDeviceGetClockInfo(free, pynvml.NVML_CLOCK_SM) == 210
    assert pynvml.nvmlDeviceGetClockInfo(free, pynvml.NVML_CLOCK_MEM) == 405
    assert pynvml.nvmlDeviceGetPerformanceState(free) == 8
    assert pynvml.nvmlDeviceGetClockInfo(busy, pynvml.NVML_CLOCK_SM) > 2900
    assert pynvml.nvmlDeviceGetMaxClockInfo(busy, pynvml.NVML_CLOCK_GRAPHICS) == 3165
    assert pynvml.nvmlDeviceGetPerformanceState(busy) == 2


def test_idle_and_power_cap_are_event_reasons(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(made.handle(FREE)) == 0x1
    seen, capped_s, before = set(), 0.0, field(made.handle(JOB), 74).value.ullVal
    for _ in range(3000):
        mask = pynvml.nvmlDeviceGetCurrentClocksEventReasons(made.handle(JOB))
        seen.add(mask)
        capped_s += 0.1 if mask & 0x4 else 0.0
        made.clock.advance(0.1)
    assert {0x0, 0x4} <= seen
    counted_s = (field(made.handle(JOB), 74).value.ullVal - before) / 1e9
    assert counted_s == pytest.approx(capped_s, rel=0.05)
    assert pynvml.nvmlDeviceGetSupportedClocksEventReasons(made.handle(JOB)) == 0x1FF


def test_g16_any_mask_can_be_put_in(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    for mask in (0x1, 0x2, 0x4, 0x101, 0x48, 0x80, 0x800):
        made.library.gpu(0).health.event_reasons = mask
        assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(made.handle()) == mask


def test_fans_where_there_are_fans(driver: Callable[..., Driver]) -> None:
    passive = driver("h100").handle()
    assert code(pynvml.nvmlDeviceGetNumFans, passive) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert code(pynvml.nvmlDeviceGetFanSpeed, passive) == pynvml.NVML_ERROR_NOT_SUPPORTED
    made = driver("rtx4080")
    assert pynvml.nvmlDeviceGetNumFans(made.handle()) == 1
    assert pynvml.nvmlDeviceGetFanSpeed_v2(made.handle(FREE), 0) == 0
    assert pynvml.nvmlDeviceGetFanSpeed_v2(made.handle(JOB), 0) > 20
    assert pynvml.nvmlDeviceGetFanSpeedRPM(made.handle(JOB)) > 600
    assert code(pynvml.nvmlDeviceGetFanSpeed_v2, made.handle(), 1) == pynvml.NVML_ERROR_INVALID_ARGUMENT
