"""Device memory and the processes that hold it."""

from __future__ import annotations

from collections.abc import Callable

import pynvml
import pytest

from clusterwatt.simulate.gpu import ProcessEntry
from tests.simulate.conftest import Driver, code

JOB, HOLDER, FREE = 0, 2, 3
GIB = 1024**3


def test_g12_the_first_version_counts_the_reserve_as_used(driver: Callable[..., Driver]) -> None:
    handle = driver("h100").handle(FREE)
    new = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    old = pynvml.nvmlDeviceGetMemoryInfo(handle)
    assert (new.used, new.reserved) == (0, 479 * 1024**2)
    assert old.used == new.reserved
    assert new.total == new.reserved + new.used + new.free == old.used + old.free


def test_a_bare_version_number_is_refused(driver: Callable[..., Driver]) -> None:
    with pytest.raises(pynvml.NVMLError_ArgumentVersionMismatch):
        pynvml.nvmlDeviceGetMemoryInfo(driver().handle(), 2)


def test_memory_is_that_of_the_processes(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    for index in range(4):
        handle = made.handle(index)
        held = sum(p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
        assert pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2).used == held


def test_bar1_stays_within_the_window(driver: Callable[..., Driver]) -> None:
    bar1 = pynvml.nvmlDeviceGetBAR1MemoryInfo(driver("t4").handle(JOB))
    assert bar1.bar1Total == bar1.bar1Used + bar1.bar1Free == 256 * 1024**2


def test_the_process_lists(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    lists = [pynvml.nvmlDeviceGetComputeRunningProcesses(made.handle(i)) for i in range(4)]
    assert [len(found) for found in lists] == [1, 1, 1, 0]
    assert len({found[0].pid for found in lists[:3]}) == 3
    only = lists[JOB][0]
    assert (only.gpuInstanceId, only.computeInstanceId) == (0xFFFFFFFF, 0xFFFFFFFF)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses_v2(made.handle(JOB))[0].pid == only.pid
    assert pynvml.nvmlDeviceGetGraphicsRunningProcesses(made.handle(JOB)) == []
    assert pynvml.nvmlDeviceGetMPSComputeRunningProcesses(made.handle(JOB)) == []


def test_g28_memory_that_the_driver_does_not_know(driver: Callable[..., Driver]) -> None:
    made = driver()
    made.library.gpu(0).listed = [ProcessEntry(79, None), ProcessEntry(80, 536870912)]
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(made.handle())
    assert [(p.pid, p.usedGpuMemory) for p in found] == [(79, None), (80, 536870912)]


def test_g29_a_shuffled_list_passes_as_it_is(driver: Callable[..., Driver]) -> None:
    shuffled = [(4101, 2147483648), (0, 4102), (1073741824, 4294967295), (4103, 9007199254740992)]
    made = driver(driver_version="535.54.03")
    made.library.gpu(0).listed = [ProcessEntry(pid, used) for pid, used in shuffled]
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(made.handle())
    assert [(p.pid, p.usedGpuMemory) for p in found] == shuffled


def test_kinds_of_processes_have_lists_of_their_own(driver: Callable[..., Driver]) -> None:
    made = driver()
    made.library.gpu(0).listed = [
        ProcessEntry(1, GIB),
        ProcessEntry(2, GIB, kind="graphics"),
        ProcessEntry(3, GIB, kind="mps"),
    ]
    handle = made.handle()
    assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)] == [1]
    assert [p.pid for p in pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle)] == [2]
    assert [p.pid for p in pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)] == [3]


def test_detail_lists_since_hopper(driver: Callable[..., Driver]) -> None:
    mode, version = pynvml.NVML_PROCESS_MODE_COMPUTE, pynvml.nvmlProcessDetailList_v1
    a100 = driver("a100").handle()
    assert code(pynvml.nvmlDeviceGetRunningProcessDetailList, a100, version, mode) == 3
    made = driver("h100")
    assert pynvml.nvmlDeviceGetRunningProcessDetailList(made.handle(FREE), version, mode) == []
    found = pynvml.nvmlDeviceGetRunningProcessDetailList(made.handle(JOB), version, mode)
    assert found[0].pid == pynvml.nvmlDeviceGetComputeRunningProcesses(made.handle(JOB))[0].pid


# --- utilisation of processes ------------------------------------------------------------------------


def test_process_utilization_is_that_of_the_gpu(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    handle = made.handle(JOB)
    for call in (pynvml.nvmlDeviceGetProcessUtilization, pynvml.nvmlDeviceGetProcessesUtilizationInfo):
        samples = call(handle, 0)
        assert {s.pid for s in samples} == {pynvml.nvmlDeviceGetComputeRunningProcesses(handle)[0].pid}
        assert max(s.smUtil for s in samples) == 100
        newest = max(s.timeStamp for s in samples)
        with pytest.raises(pynvml.NVMLError_NotFound):
            call(handle, newest)
        made.clock.advance(2.0)
        assert {s.timeStamp for s in call(handle, newest)} == {newest + 1_000_000, newest + 2_000_000}


def test_two_processes_share_the_gpu(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    made.library.gpu(0).listed = [
        ProcessEntry(501, GIB, sm_share=0.6),
        ProcessEntry(502, GIB, sm_share=0.2),
        ProcessEntry(503, GIB, sm_share=0.0),
    ]
    samples = pynvml.nvmlDeviceGetProcessUtilization(made.handle(), 0)
    best = {s.pid: s.smUtil for s in samples if s.timeStamp == samples[0].timeStamp}
    assert best == {501: 60, 502: 20}


def test_an_empty_gpu_answers_with_the_error_success(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    for call in (pynvml.nvmlDeviceGetProcessUtilization, pynvml.nvmlDeviceGetProcessesUtilizationInfo):
        with pytest.raises(pynvml.NVMLError) as raised:
            call(made.handle(FREE), 0)
        assert raised.value.value == pynvml.NVML_SUCCESS


def test_accounting_is_off(driver: Callable[..., Driver]) -> None:
    handle = driver().handle()
    assert pynvml.nvmlDeviceGetAccountingMode(handle) == 0
    assert pynvml.nvmlDeviceGetAccountingPids(handle) == []
