"""Faults set in memory, and those of a file."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from ctypes import byref
from pathlib import Path
from typing import Any

import pynvml
import pytest

from clusterwatt.simulate.faults import Faults
from tests.simulate.conftest import Driver, code, field
from tests.simulate.test_gpm import request

POWER = "nvmlDeviceGetPowerUsage"


def power(made: Driver, index: int = 0) -> int:
    return code(pynvml.nvmlDeviceGetPowerUsage, made.handle(index))


def test_a_call_fails_for_one_gpu(driver: Callable[..., Driver]) -> None:
    made = driver()
    rule = made.faults.fail(POWER, pynvml.NVML_ERROR_GPU_IS_LOST, gpu=2)
    assert [power(made, i) for i in range(4)] == [0, 0, 15, 0]
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetPowerUsage(made.handle(2))
    made.faults.clear(rule)
    assert power(made, 2) == 0


@pytest.mark.parametrize(
    "name", [name for name in dir(pynvml) if name.startswith("NVML_ERROR_") and name != "NVML_ERROR_NO_DATA"]
)
def test_every_code_becomes_the_bindings_own_exception(name: str, driver: Callable[..., Driver]) -> None:
    made = driver()
    number = getattr(pynvml, name)
    made.faults.fail(POWER, number)
    with pytest.raises(pynvml.nvmlExceptionClass(number)):
        pynvml.nvmlDeviceGetPowerUsage(made.handle())


def test_g05_a_lost_gpu_fails_in_everything_and_comes_back(driver: Callable[..., Driver]) -> None:
    made = driver()
    handles = [made.handle(i) for i in range(4)]
    made.faults.lose(3, until_s=made.clock.wall_s() + 60)
    assert [code(pynvml.nvmlDeviceGetName, handle) for handle in handles] == [0, 0, 0, 15]
    assert code(pynvml.nvmlDeviceGetHandleByIndex, 3) == 15
    assert pynvml.nvmlDeviceGetCount() == 4
    assert code(pynvml.nvmlDeviceGetHandleByUUID, made.library.gpu(3).uuid) == 15
    made.clock.advance(60.0)
    assert code(pynvml.nvmlDeviceGetName, made.handle(3)) == 0


def test_g07_a_version_mismatch_at_init_and_after(driver: Callable[..., Driver]) -> None:
    made = driver()
    pynvml.nvmlShutdown()
    made.faults.fail("nvmlInit*", pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch):
        pynvml.nvmlInit()
    made.faults.clear()
    pynvml.nvmlInit()
    made.faults.fail("*", 18)
    assert code(pynvml.nvmlDeviceGetCount) == 18


def test_g17_the_driver_is_loaded_late_or_shows_its_gpus_late(driver: Callable[..., Driver]) -> None:
    made = driver()
    pynvml.nvmlShutdown()
    made.faults.unload_driver(until_s=made.clock.wall_s() + 180)
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlInit()
    made.clock.advance(180.0)
    pynvml.nvmlInit()
    made.faults.gpus = 0
    assert pynvml.nvmlDeviceGetCount() == 0
    made.faults.gpus = None
    assert pynvml.nvmlDeviceGetCount() == 4


def test_a_gpu_vanishes_without_a_word(driver: Callable[..., Driver]) -> None:
    made = driver()
    handles = [made.handle(i) for i in range(4)]
    made.faults.vanished.add(1)
    assert pynvml.nvmlDeviceGetCount() == 3
    seen = [pynvml.nvmlDeviceGetUUID(made.handle(i)) for i in range(3)]
    assert seen == [made.library.gpu(board).uuid for board in (0, 2, 3)]
    assert pynvml.nvmlDeviceGetIndex(handles[3]) == 2, "those behind it move up"
    assert code(pynvml.nvmlDeviceGetName, handles[1]) == pynvml.NVML_ERROR_GPU_IS_LOST


def test_rules_of_time_and_number(driver: Callable[..., Driver]) -> None:
    made = driver()
    now_s = made.clock.wall_s()
    made.faults.fail(POWER, 3, from_s=now_s + 10, until_s=now_s + 20)
    codes = []
    for _ in range(4):
        codes.append(power(made))
        made.clock.advance(7.0)
    assert codes == [0, 0, 3, 0]
    made.faults.clear()
    made.faults.fail(POWER, 3, skip_calls=1, calls=2)
    assert [power(made) for _ in range(5)] == [0, 3, 3, 0, 0]
    made.faults.fail("nvmlDeviceGetHandleByIndex_v2", 27, skip_calls=1, calls=1)
    assert [code(pynvml.nvmlDeviceGetHandleByIndex, 0) for _ in range(3)] == [0, 27, 0]


def test_g06_a_call_hangs_until_it_is_released(driver: Callable[..., Driver]) -> None:
    made = driver()
    rule = made.faults.hang("nvmlDeviceGetUtilizationRates", gpu=2)
    rates: list[Any] = []
    handle = made.handle(2)
    caller = threading.Thread(target=lambda: rates.append(pynvml.nvmlDeviceGetUtilizationRates(handle)))
    caller.start()
    assert rule.hanging.wait(5.0)
    assert code(pynvml.nvmlDeviceGetUtilizationRates, made.handle(1)) == 0, "others go on"
    assert code(pynvml.nvmlDeviceGetPowerUsage, handle) == 0
    assert caller.is_alive()
    rule.release()
    caller.join(5.0)
    assert len(rates) == 1


def test_clearing_lets_everything_go(driver: Callable[..., Driver]) -> None:
    made = driver()
    rule = made.faults.hang(POWER)
    caller = threading.Thread(target=power, args=(made,))
    caller.start()
    assert rule.hanging.wait(5.0)
    made.faults.clear()
    caller.join(5.0)
    assert not caller.is_alive()
    assert power(made) == 0


def test_a_hang_of_some_seconds_ends_by_itself(driver: Callable[..., Driver]) -> None:
    made = driver()
    rule = made.faults.hang(POWER, seconds=0.01)
    assert power(made) == 0
    assert rule.hits == 1


# --- changed values ----------------------------------------------------------------------------------


def test_numbers_texts_and_members_change(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    made.faults.change(POWER, 45_000, gpu=1)
    made.faults.change("nvmlDeviceGetName", "NVIDIA Moon", gpu=1)
    made.faults.change("nvmlDeviceGetUtilizationRates", {"gpu": 37, "memory": 12})
    made.faults.change("nvmlDeviceGetPowerManagementLimitConstraints", [1, 2])
    made.faults.change("nvmlDeviceGetTemperatureV", {"temperature": 91})
    handle = made.handle(1)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 45_000
    assert pynvml.nvmlDeviceGetPowerUsage(made.handle(0)) != 45_000
    assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA Moon"
    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    assert (rates.gpu, rates.memory) == (37, 12)
    assert pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle) == [1, 2]
    assert pynvml.nvmlDeviceGetTemperatureV(handle, 0) == 91


def test_g39_a_counter_that_steps_back(driver: Callable[..., Driver]) -> None:
    made = driver()
    for millijoules in (3000262144, 3000000000, 3000500000):
        made.faults.clear()
        made.faults.change("nvmlDeviceGetTotalEnergyConsumption", millijoules)
        assert pynvml.nvmlDeviceGetTotalEnergyConsumption(made.handle()) == millijoules


def test_one_field_fails_another_changes(driver: Callable[..., Driver]) -> None:
    made = driver("a100")
    made.faults.fail("nvmlDeviceGetFieldValues", 3, field=83)
    made.faults.change("nvmlDeviceGetFieldValues", 2, field=143)
    made.faults.change("nvmlDeviceGetFieldValues", 55_000, field=185)
    values = pynvml.nvmlDeviceGetFieldValues(made.handle(), [83, 143, 82, (185, 0)])
    assert [value.nvmlReturn for value in values] == [3, 0, 0, 0]
    assert values[1].value.uiVal == 2
    assert (values[3].valueType, values[3].value.ullVal) == (
        pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
        55_000,
    )


def test_one_gpm_metric_fails_another_is_no_number(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(made.handle(), first)
    made.clock.advance(1.0)
    pynvml.nvmlGpmSampleGet(made.handle(), second)
    made.faults.fail("nvmlGpmMetricsGet", 3, field=2)
    made.faults.change("nvmlGpmMetricsGet", float("nan"), field=5, gpu=0)
    metrics = pynvml.nvmlGpmMetricsGet(request(first, second, [2, 5, 10])).metrics
    assert [metrics[i].nvmlReturn for i in range(3)] == [3, 0, 0]
    assert metrics[1].value != metrics[1].value
    assert metrics[2].value >= 0


def test_a_rule_has_one_effect() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        Faults().fail(POWER, 3, change=5)


# --- the file ----------------------------------------------------------------------------------------


def write(path: Path, content: object) -> None:
    """Replace the file, as an editor or a test does."""
    other = path.with_suffix(".new")
    other.write_text(content if isinstance(content, str) else json.dumps(content))
    other.replace(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "faults.json"


def test_the_file_is_read_again_when_it_changes(driver: Callable[..., Driver], file: Path) -> None:
    made = driver(faults=Faults.from_file(file))
    assert power(made) == 0, "no file, no faults"
    write(file, {"rules": [{"call": POWER, "gpu": 0, "fail": 15}], "gpus": 2})
    assert [power(made, 0), power(made, 1)] == [15, 0]
    assert pynvml.nvmlDeviceGetCount() == 2
    write(file, {"rules": [{"call": POWER, "change": 7}], "vanished": [0]})
    assert pynvml.nvmlDeviceGetPowerUsage(made.handle(0)) == 7
    assert pynvml.nvmlDeviceGetUUID(made.handle(0)) == made.library.gpu(1).uuid
    file.unlink()
    assert power(made) == 0
    assert pynvml.nvmlDeviceGetCount() == 4


def test_the_example_of_the_documentation_is_valid(driver: Callable[..., Driver], file: Path) -> None:
    from clusterwatt.simulate import faults

    text = faults.__doc__ or ""
    write(file, text[text.index("    {") : text.index("A rule has")])
    made = driver(gpus=8, faults=Faults.from_file(file))
    assert pynvml.nvmlDeviceGetCount() == 7
    assert power(made, 2) == 15
    memory = pynvml.nvmlDeviceGetMemoryInfo(made.handle(0), pynvml.nvmlMemory_v2)
    assert (memory.used, memory.free) == (0, 25413287936)


@pytest.mark.parametrize(
    "broken",
    [
        "{",
        "[]",
        '{"rules": [{"call": "x"}]}',
        '{"rules": [{"call": "x", "fail": 1, "hang_s": 2}]}',
        '{"rules": [{"call": "x", "fail": "lost"}]}',
        '{"rule": []}',
    ],
)
def test_a_broken_file_keeps_the_old_rules(
    broken: str, driver: Callable[..., Driver], file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(file, {"rules": [{"call": POWER, "fail": 15}]})
    made = driver(faults=Faults.from_file(file))
    write(file, broken)
    with caplog.at_level(logging.WARNING):
        assert [power(made) for _ in range(3)] == [15, 15, 15]
    assert len(caplog.records) == 1
    write(file, {})
    assert power(made) == 0


def test_a_hang_ends_when_its_rule_leaves_the_file(driver: Callable[..., Driver], file: Path) -> None:
    write(file, {"rules": [{"call": "*", "hang_s": 0, "gpu": 0}]})
    made = driver(faults=Faults.from_file(file))
    caller = threading.Thread(target=power, args=(made,))
    caller.start()
    assert power(made, 1) == 0
    assert caller.is_alive()
    write(file, {})
    caller.join(5.0)
    assert not caller.is_alive()


def test_xids_of_the_file_happen_once(driver: Callable[..., Driver], file: Path) -> None:
    made = driver(faults=Faults.from_file(file))
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(made.handle(0), pynvml.nvmlEventTypeXidCriticalError, events)
    assert code(pynvml.nvmlEventSetWait_v2, events, 1) == pynvml.NVML_ERROR_TIMEOUT
    now_s = made.clock.wall_s()
    first, long_ago = {"gpu": 0, "xid": 31, "at_s": now_s}, {"gpu": 0, "xid": 13, "at_s": now_s - 100}
    write(file, {"xids": [first, long_ago]})
    assert pynvml.nvmlEventSetWait_v2(events, 1).eventData == 31
    write(file, {"xids": [first, long_ago, {"gpu": 0, "xid": 79}]})
    assert pynvml.nvmlEventSetWait_v2(events, 1).eventData == 79
    assert code(pynvml.nvmlEventSetWait_v2, events, 1) == pynvml.NVML_ERROR_TIMEOUT


def test_no_fault_reaches_a_struct_that_is_refused(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    made.faults.change("nvmlDeviceGetMemoryInfo_v2", {"used": 1})
    memory = pynvml.c_nvmlMemory_v2_t()
    refused = made.library.nvmlDeviceGetMemoryInfo_v2(made.handle(), byref(memory))
    assert (refused, memory.used) == (25, 0)
    assert field(made.handle(), 83).nvmlReturn == 0
