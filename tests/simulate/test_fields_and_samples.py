"""Field values and ring buffers."""

from __future__ import annotations

from collections.abc import Callable

import pynvml
import pytest

from tests.simulate.conftest import Driver, code, field

JOB, FREE = 0, 3


def test_one_bad_field_spoils_no_other(driver: Callable[..., Driver]) -> None:
    values = pynvml.nvmlDeviceGetFieldValues(driver("a100").handle(), [83, 9999, (185, 0), 82])
    assert [value.nvmlReturn for value in values] == [0, 3, 3, 0]
    assert [value.fieldId for value in values] == [83, 9999, 185, 82]
    assert all(value.timestamp == 1_700_000_000_000_000 for value in values)


def test_a_forgotten_scope_means_the_gpu(driver: Callable[..., Driver]) -> None:
    handle = driver().handle()
    without, whole = pynvml.nvmlDeviceGetFieldValues(handle, [186, (186, 0)])
    assert without.value.uiVal == whole.value.uiVal
    assert field(handle, 186, scope=1).nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_no_fields_are_an_invalid_argument(driver: Callable[..., Driver]) -> None:
    assert code(pynvml.nvmlDeviceGetFieldValues, driver().handle(), []) == 2


def test_slowdown_counters_moved_between_drivers(driver: Callable[..., Driver]) -> None:
    """r575 and early r580 count software thermal slowdown at 251, r590 at 269."""
    for version, right, wrong in (("580.65.06", 251, 269), ("590.48.01", 269, 251)):
        made = driver(driver_version=version)
        made.library.gpu(0).health.held_down_ns["sw_thermal"] = 5_000_000_000
        handle = made.handle()
        assert field(handle, right).value.ullVal == field(handle, 75).value.ullVal == 5_000_000_000
        assert field(handle, wrong).nvmlReturn != 0
    old = driver(driver_version="550.54.15").handle()
    assert [field(old, number).nvmlReturn for number in (251, 269)] == [3, 3]


def test_recovery_action_since_r570(driver: Callable[..., Driver]) -> None:
    assert field(driver(driver_version="565.57.01").handle(), 230).nvmlReturn == 3
    made = driver(driver_version="570.148.08")
    assert (field(made.handle(), 230).nvmlReturn, field(made.handle(), 230).value.uiVal) == (0, 0)
    made.library.gpu(0).health.recovery_action = pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT
    assert field(made.handle(), 230).value.uiVal == 2


# --- ring buffers ------------------------------------------------------------------------------------


def test_samples_go_on_after_the_last_seen(driver: Callable[..., Driver]) -> None:
    made = driver()
    handle = made.handle(JOB)
    kind, samples = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
    assert kind == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    assert len(samples) == 119
    newest = samples[-1].timeStamp
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, newest)
    made.clock.advance(2.0)
    _, more = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, newest)
    assert len(more) == 12
    assert [sample.timeStamp for sample in more] == sorted({sample.timeStamp for sample in more})
    assert newest < more[0].timeStamp
    assert more[-1].timeStamp <= made.clock.wall_s() * 1e6


def test_samples_are_the_past_not_the_moment(driver: Callable[..., Driver]) -> None:
    """What two clients see of one time is the same, whenever they ask."""
    made = driver()
    handle = made.handle(JOB)

    def seen() -> dict[int, int]:
        _, samples = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
        return {sample.timeStamp: sample.sampleValue.uiVal for sample in samples}

    before = seen()
    made.clock.advance(7.3)
    after = seen()
    common = before.keys() & after.keys()
    assert len(common) > 50
    assert all(before[stamp] == after[stamp] for stamp in common)


def test_power_samples_have_the_energy_of_the_counter(driver: Callable[..., Driver]) -> None:
    made = driver("h100", driver_version="580.105.08")
    handle, newest, area_mj = made.handle(JOB), 0, 0.0
    before = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    newest = int(made.clock.wall_s() * 1e6)
    for _ in range(30):
        made.clock.advance(2.0)
        _, samples = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_TOTAL_POWER_SAMPLES, newest)
        for sample in samples:
            area_mj += sample.sampleValue.uiVal * (sample.timeStamp - newest) / 1e6
            newest = sample.timeStamp
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - before == pytest.approx(area_mj, rel=1e-4)


def test_a_buffer_forgets(driver: Callable[..., Driver]) -> None:
    made = driver()
    made.clock.advance(3600.0)
    _, samples = pynvml.nvmlDeviceGetSamples(made.handle(), pynvml.NVML_TOTAL_POWER_SAMPLES, 1)
    assert len(samples) == 119
    assert samples[0].timeStamp > (made.clock.wall_s() - 2.5) * 1e6


def test_sample_kinds(driver: Callable[..., Driver]) -> None:
    made = driver()
    _, clocks = pynvml.nvmlDeviceGetSamples(made.handle(FREE), pynvml.NVML_PROCESSOR_CLK_SAMPLES, 0)
    assert {sample.sampleValue.uiVal for sample in clocks} == {345}
    module = pynvml.NVML_MODULE_POWER_SAMPLES
    assert code(pynvml.nvmlDeviceGetSamples, made.handle(), module, 0) == pynvml.NVML_ERROR_NOT_SUPPORTED
