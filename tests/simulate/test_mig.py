"""MIG: instances, their handles, and what a cut board no longer answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from tests.simulate.conftest import Driver, code, field
from tests.simulate.test_gpm import request

JOB = 0
LAYOUT = ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]


def devices(handle: Any) -> list[Any]:
    """The MIG devices of a board, as an agent finds them."""
    found = []
    for slot in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot))
        except pynvml.NVMLError_NotFound:
            continue
    return found


def cut(driver: Callable[..., Driver], layout: list[str] | None = None) -> tuple[Driver, Any, list[Any]]:
    made = driver("h100")
    made.library.configure_mig(JOB, LAYOUT if layout is None else layout)
    return made, made.handle(JOB), devices(made.handle(JOB))


def test_mode(driver: Callable[..., Driver]) -> None:
    made, handle, _ = cut(driver)
    assert pynvml.nvmlDeviceGetMigMode(handle) == [1, 1]
    assert pynvml.nvmlDeviceGetMigMode(made.handle(1)) == [0, 0]
    slot = pynvml.nvmlDeviceGetMigDeviceHandleByIndex
    assert code(slot, made.handle(1), 0) == pynvml.NVML_ERROR_NOT_SUPPORTED
    t4 = driver("t4").handle()
    assert code(pynvml.nvmlDeviceGetMigMode, t4) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(t4) == 0


def test_instances_as_a_driver_numbers_them(driver: Callable[..., Driver]) -> None:
    """An H100 with driver 590.48.01, cut the same way."""
    _, handle, found = cut(driver)
    assert [pynvml.nvmlDeviceGetGpuInstanceId(device) for device in found] == [2, 3, 9, 10]
    assert [pynvml.nvmlDeviceGetComputeInstanceId(device) for device in found] == [0] * 4
    assert [pynvml.nvmlDeviceGetAttributes(device).multiprocessorCount for device in found] == [
        60,
        32,
        16,
        16,
    ]
    memory = [pynvml.nvmlDeviceGetMemoryInfo(device, pynvml.nvmlMemory_v2) for device in found]
    assert [m.total // 1024**2 for m in memory] == [40448, 20096, 9984, 9984]
    assert [m.reserved for m in memory] == [0] * 4
    assert pynvml.nvmlDeviceGetName(found[0]) == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    for device in found:
        assert pynvml.nvmlDeviceIsMigDeviceHandle(device).value == 1
        parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
        assert pynvml.nvmlDeviceGetUUID(parent) == pynvml.nvmlDeviceGetUUID(handle)
        uuid = pynvml.nvmlDeviceGetUUID(device)
        assert uuid.startswith("MIG-")
        assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == uuid
    assert pynvml.nvmlDeviceIsMigDeviceHandle(handle).value == 0


def test_gpu_instances_and_profiles(driver: Callable[..., Driver]) -> None:
    _, handle, found = cut(driver)
    info = pynvml.nvmlGpuInstanceGetInfo(pynvml.nvmlDeviceGetGpuInstanceById(handle, 2))
    assert (info.id, info.profileId, info.placement.start, info.placement.size) == (2, 9, 4, 4)
    profile = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, pynvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE)
    assert (profile.sliceCount, profile.memorySizeMB, profile.name) == (3, 40448, "MIG 3g.40gb")
    assert len(found) == 4


def test_a_cut_board_answers_less(driver: Callable[..., Driver]) -> None:
    made, handle, found = cut(driver)
    for call in (
        pynvml.nvmlDeviceGetUtilizationRates,
        pynvml.nvmlDeviceGetEncoderUtilization,
        pynvml.nvmlDeviceGetRemappedRows,
        pynvml.nvmlDeviceGetRowRemapperHistogram,
    ):
        assert code(call, handle) == pynvml.NVML_ERROR_NOT_SUPPORTED
        assert code(call, made.handle(1)) == 0
    assert code(pynvml.nvmlDeviceGetNvLinkState, handle, 0) == pynvml.NVML_ERROR_NOT_SUPPORTED
    utilization = pynvml.NVML_GPU_UTILIZATION_SAMPLES
    assert code(pynvml.nvmlDeviceGetSamples, handle, utilization, 0) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert code(pynvml.nvmlDeviceGetProcessUtilization, handle, 0) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetPowerUsage(handle) > 0
    for call in (pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetTotalEnergyConsumption):
        assert [code(call, device) for device in found] == [pynvml.NVML_ERROR_NOT_SUPPORTED] * 4


def test_an_instance_counts_uncorrected_sram_errors_and_no_others(driver: Callable[..., Driver]) -> None:
    made, _, found = cut(driver)
    made.library.gpu(JOB).mig_devices[1].sram_errors = 3
    uncorrected, volatile = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    sram, dram = pynvml.NVML_MEMORY_LOCATION_SRAM, pynvml.NVML_MEMORY_LOCATION_DRAM
    count = pynvml.nvmlDeviceGetMemoryErrorCounter
    assert [count(device, uncorrected, volatile, sram) for device in found] == [0, 3, 0, 0]
    for question in (
        (uncorrected, volatile, dram),
        (uncorrected, pynvml.NVML_AGGREGATE_ECC, sram),
        (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, volatile, sram),
    ):
        assert code(count, found[1], *question) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_processes_belong_to_instances(driver: Callable[..., Driver]) -> None:
    _, handle, found = cut(driver)
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    assert [process.gpuInstanceId for process in listed] == [2, 3]
    own = [pynvml.nvmlDeviceGetComputeRunningProcesses(device) for device in found]
    assert [[process.pid for process in lists] for lists in own] == [[listed[0].pid], [listed[1].pid], [], []]
    memory = pynvml.nvmlDeviceGetMemoryInfo(found[0], pynvml.nvmlMemory_v2)
    assert memory.used == listed[0].usedGpuMemory
    other = driver("h100", privileged=False)
    other.library.configure_mig(JOB, LAYOUT)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(other.handle(JOB)) == []
    assert len(pynvml.nvmlDeviceGetComputeRunningProcesses(devices(other.handle(JOB))[0])) == 1


def test_activity_of_an_instance_through_gpm(driver: Callable[..., Driver]) -> None:
    made, handle, _ = cut(driver)
    busy = []
    for instance in (2, 3):
        first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
        pynvml.nvmlGpmMigSampleGet(handle, instance, first)
        made.clock.advance(5.0)
        pynvml.nvmlGpmMigSampleGet(handle, instance, second)
        answer = pynvml.nvmlGpmMetricsGet(request(first, second, [2, 60]))
        busy.append(answer.metrics[0].value > 0)
        assert answer.metrics[1].nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert busy == [True, False]
    sample = pynvml.nvmlGpmSampleAlloc()
    assert code(pynvml.nvmlGpmMigSampleGet, handle, 7, sample) == pynvml.NVML_ERROR_NOT_FOUND


def test_cutting_anew_while_it_runs(driver: Callable[..., Driver]) -> None:
    made, handle, found = cut(driver)
    uuids = [pynvml.nvmlDeviceGetUUID(device) for device in found]
    made.clock.advance(10.0)
    made.library.configure_mig(JOB, LAYOUT)
    assert [code(pynvml.nvmlDeviceGetUUID, device) for device in found] == [2] * 4, "old handles are dead"
    again = devices(handle)
    assert [pynvml.nvmlDeviceGetGpuInstanceId(device) for device in again] == [2, 3, 9, 10], "ids are reused"
    assert not {pynvml.nvmlDeviceGetUUID(device) for device in again} & set(uuids)
    made.library.configure_mig(JOB, None)
    made.clock.advance(1.0)
    assert pynvml.nvmlDeviceGetMigMode(handle) == [0, 0]
    assert pynvml.nvmlDeviceGetUtilizationRates(handle).gpu == 100


def test_no_counter_steps_when_a_board_is_cut(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    handle = made.handle(JOB)
    last = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    for layout in (LAYOUT, [], ["7g.80gb"], None):
        made.library.configure_mig(JOB, layout)
        for _ in range(5):
            made.clock.advance(1.0)
            now = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            assert 50_000 < now - last < 700_000
            last = now


def test_power_of_a_cut_board_is_that_of_its_instances(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    whole = field(made.handle(JOB), 186).value.uiVal
    made.library.configure_mig(JOB, ["3g.40gb"])
    assert 70_000 < field(made.handle(JOB), 186).value.uiVal < whole


def test_what_does_not_fit_is_refused(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    with pytest.raises(ValueError, match="no room"):
        made.library.configure_mig(JOB, ["4g.40gb", "4g.40gb"])
    with pytest.raises(ValueError, match="no MIG profile"):
        made.library.configure_mig(JOB, ["5g.50gb"])
    made.library.configure_mig(JOB, ["1g.10gb"] * 7)
    assert len(devices(made.handle(JOB))) == 7
