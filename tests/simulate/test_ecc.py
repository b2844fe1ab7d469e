"""Memory health."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref

import pynvml
import pytest

from tests.simulate.conftest import Driver, code, field

CORRECTED, UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
VOLATILE, AGGREGATE = pynvml.NVML_VOLATILE_ECC, pynvml.NVML_AGGREGATE_ECC
DRAM, SRAM = pynvml.NVML_MEMORY_LOCATION_DRAM, pynvml.NVML_MEMORY_LOCATION_SRAM


def test_errors_by_kind_window_and_place(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    made.library.gpu(0).health.ecc_errors = {
        ("uncorrected", "volatile", "dram"): 1,
        ("uncorrected", "volatile", "sram"): 2,
        ("corrected", "aggregate", "dram"): 70_000,
    }
    handle = made.handle()
    assert pynvml.nvmlDeviceGetTotalEccErrors(handle, UNCORRECTED, VOLATILE) == 3
    assert pynvml.nvmlDeviceGetTotalEccErrors(handle, CORRECTED, AGGREGATE) == 70_000
    assert pynvml.nvmlDeviceGetMemoryErrorCounter(handle, UNCORRECTED, VOLATILE, DRAM) == 1
    assert pynvml.nvmlDeviceGetMemoryErrorCounter(handle, UNCORRECTED, VOLATILE, SRAM) == 2
    values = pynvml.nvmlDeviceGetFieldValues(handle, [3, 4, 5, 6])
    assert [value.value.ullVal for value in values] == [0, 3, 70_000, 0]
    assert [value.valueType for value in values] == [0] * 4, "the driver leaves the type at double"
    l1 = pynvml.NVML_MEMORY_LOCATION_L1_CACHE
    assert code(pynvml.nvmlDeviceGetMemoryErrorCounter, handle, CORRECTED, VOLATILE, l1) == 3


def test_no_counters_without_ecc(driver: Callable[..., Driver]) -> None:
    geforce = driver("rtx4080").handle()
    assert code(pynvml.nvmlDeviceGetEccMode, geforce) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert code(pynvml.nvmlDeviceGetTotalEccErrors, geforce, CORRECTED, VOLATILE) == 3
    made = driver("h100")
    made.library.gpu(0).health.ecc_mode = 0
    assert pynvml.nvmlDeviceGetEccMode(made.handle()) == [0, 0]
    assert field(made.handle(), 4).nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetEccMode(made.handle(1)) == [1, 1]


def test_the_old_call_is_for_old_boards(driver: Callable[..., Driver]) -> None:
    made = driver("t4")
    made.library.gpu(0).health.ecc_errors["corrected", "aggregate", "dram"] = 1
    assert pynvml.nvmlDeviceGetDetailedEccErrors(made.handle(), CORRECTED, AGGREGATE).deviceMemory == 1
    a100 = driver("a100").handle()
    assert code(pynvml.nvmlDeviceGetDetailedEccErrors, a100, CORRECTED, AGGREGATE) == 3


def test_sram_status_is_for_root(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    health = made.library.gpu(0).health
    health.ecc_errors["uncorrected", "aggregate", "sram"] = 5
    health.sram_parity, health.sram_threshold_exceeded = 2, True
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(made.handle(), byref(status))
    assert (status.aggregateUncParity, status.aggregateUncSecDed, status.bThresholdExceeded) == (2, 3, 1)
    status.version = 1
    assert code(pynvml.nvmlDeviceGetSramEccErrorStatus, made.handle(), byref(status)) == 25
    other = driver("h100", privileged=False).handle()
    assert code(pynvml.nvmlDeviceGetSramEccErrorStatus, other, byref(status)) == 4


def test_pages_before_ampere_rows_since(driver: Callable[..., Driver]) -> None:
    t4 = driver("t4")
    health = t4.library.gpu(0).health
    health.retired_pages_single_bit, health.retired_pages_double_bit = 9, 1
    health.retired_pages_pending = True
    handle = t4.handle()
    assert len(pynvml.nvmlDeviceGetRetiredPages(handle, 0)) == 9
    assert len(pynvml.nvmlDeviceGetRetiredPages(handle, 1)) == 1
    assert [page["timestamp"] > 0 for page in pynvml.nvmlDeviceGetRetiredPages_v2(handle, 1)] == [True]
    assert pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle) == 1
    assert [field(handle, number).value.ullVal for number in (29, 30, 31)] == [9, 1, 1]
    assert code(pynvml.nvmlDeviceGetRemappedRows, handle) == 3
    assert field(handle, 143).nvmlReturn == 3

    a100 = driver("a100")
    health = a100.library.gpu(0).health
    health.remapped_rows_uncorrectable, health.row_remap_pending = 2, True
    handle = a100.handle()
    assert pynvml.nvmlDeviceGetRemappedRows(handle) == (0, 2, 1, 0)
    assert [field(handle, number).value.uiVal for number in range(142, 146)] == [0, 2, 1, 0]
    assert code(pynvml.nvmlDeviceGetRetiredPages, handle, 0) == 3
    assert field(handle, 31).nvmlReturn == 3


def test_row_histogram(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    banks = pynvml.nvmlDeviceGetRowRemapperHistogram(made.handle())
    assert (banks.max, banks.high, banks.partial, banks.low, banks.none) == (2560, 0, 0, 0, 0)
    made.library.gpu(0).health.row_banks = (2558, 1, 0, 0, 1)
    banks = pynvml.nvmlDeviceGetRowRemapperHistogram(made.handle())
    assert (banks.max, banks.none) == (2558, 1)


def test_repairs(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    made.library.gpu(0).health.tpc_repair_pending = True
    assert pynvml.nvmlDeviceGetRepairStatus(made.handle()) == [0, 1]
    assert pynvml.nvmlDeviceGetUnrepairableMemoryFlag_v1(made.handle()) == 0
    l40s = driver("l40s").handle()
    assert code(pynvml.nvmlDeviceGetUnrepairableMemoryFlag_v1, l40s) == 3


@pytest.mark.skipif(not hasattr(pynvml, "nvmlDeviceGetRemappedRows_v2"), reason="an older binding")
def test_inactive_rows_since_r595(driver: Callable[..., Driver]) -> None:
    info = pynvml.c_nvmlRemappedRowsInfo_v2_t()
    old = driver("l40s").handle()
    assert code(pynvml.nvmlDeviceGetRemappedRows_v2, old, byref(info)) == 13
    new = driver("l40s", driver_version="595.80").handle()
    assert pynvml.nvmlDeviceGetRemappedRows_v2(new, byref(info)) == 0
    assert field(new, 301).nvmlReturn == 0
