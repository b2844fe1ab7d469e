"""Memory health: ECC errors, retired pages, remapped rows, repairs, and what the driver asks to be done."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from clusterwatt.simulate.cards import AMPERE
from clusterwatt.simulate.gpu import Gpu, MigDevice
from clusterwatt.simulate.health import EccKind, EccPlace, EccWindow
from clusterwatt.simulate.library.calls import (
    INSUFFICIENT_SIZE,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_SUPPORTED,
    Filled,
    Refused,
    check_version,
    needs,
    on_device,
    on_gpu,
)
from clusterwatt.simulate.library.fields import UNSIGNED_INT, UNSIGNED_LONG_LONG, on_field

SRAM_STATUS_V1 = 0x01000068
REPAIR_STATUS_V1 = 0x0100000C
UNREPAIRABLE_V1 = 0x01000008

_KINDS: tuple[EccKind, ...] = ("corrected", "uncorrected")  # NVML_MEMORY_ERROR_TYPE_*
_WINDOWS: tuple[EccWindow, ...] = ("volatile", "aggregate")  # NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC
_PLACES: dict[int, EccPlace] = {2: "dram", 7: "sram"}  # NVML_MEMORY_LOCATION_*; no others since Turing


def _needs_ecc(gpu: Gpu) -> None:
    """Counters are there while ECC is on."""
    needs(gpu.card.ecc and gpu.health.ecc_mode == 1)


def _errors(gpu: Gpu, kind: EccKind, window: EccWindow, place: EccPlace) -> int:
    _needs_ecc(gpu)
    return gpu.health.ecc_errors.get((kind, window, place), 0)


def _total(gpu: Gpu, kind: EccKind, window: EccWindow) -> int:
    return sum(_errors(gpu, kind, window, place) for place in _PLACES.values())


def _choose(kind: int, window: int) -> tuple[EccKind, EccWindow]:
    if kind >= len(_KINDS) or window >= len(_WINDOWS):
        raise Refused(INVALID_ARGUMENT)
    return _KINDS[kind], _WINDOWS[window]


@on_gpu("nvmlDeviceGetEccMode")
def ecc_mode(gpu: Gpu, current: Filled, pending: Filled) -> None:
    needs(gpu.card.ecc)
    current.value = pending.value = gpu.health.ecc_mode


@on_gpu("nvmlDeviceGetDefaultEccMode")
def default_ecc_mode(gpu: Gpu, mode: Filled) -> None:
    needs(gpu.card.ecc)
    mode.value = 1


@on_gpu("nvmlDeviceGetTotalEccErrors")
def total_ecc_errors(gpu: Gpu, kind: int, window: int, count: Filled) -> None:
    count.value = _total(gpu, *_choose(kind, window))


@on_device("nvmlDeviceGetMemoryErrorCounter")
def memory_error_counter(
    device: Gpu | MigDevice, kind: int, window: int, location: int, count: Filled
) -> None:
    """Of a MIG device only uncorrected errors beside DRAM, since the driver was loaded (nvml.h)."""
    if location not in _PLACES:
        raise Refused(NOT_SUPPORTED)
    errors = (*_choose(kind, window), _PLACES[location])
    if isinstance(device, Gpu):
        count.value = _errors(device, *errors)
    else:
        _needs_ecc(device.gpu)
        needs(errors == ("uncorrected", "volatile", "sram"))
        count.value = device.sram_errors


@on_gpu("nvmlDeviceGetDetailedEccErrors")
def detailed_ecc_errors(gpu: Gpu, kind: int, window: int, counts: Filled) -> None:
    """Boards since Ampere count by DRAM and SRAM only, and do not answer this old call."""
    needs(gpu.card.architecture < AMPERE)
    chosen = _choose(kind, window)
    counts.deviceMemory = _errors(gpu, *chosen, "dram")
    counts.l2Cache = _errors(gpu, *chosen, "sram")
    counts.l1Cache = counts.registerFile = 0


@on_gpu("nvmlDeviceGetSramEccErrorStatus", since=535)
def sram_status(gpu: Gpu, status: Filled) -> None:
    """For root only (nvml.h)."""
    needs(gpu.card.sram_status)
    _needs_ecc(gpu)
    if not gpu.driver.privileged:
        raise Refused(NO_PERMISSION)
    check_version(status, SRAM_STATUS_V1)
    for window in _WINDOWS:
        uncorrected = _errors(gpu, "uncorrected", window, "sram")
        parity = min(uncorrected, gpu.health.sram_parity)
        setattr(status, f"{window}UncParity", parity)
        setattr(status, f"{window}UncSecDed", uncorrected - parity)
        setattr(status, f"{window}Cor", _errors(gpu, "corrected", window, "sram"))
    status.aggregateUncBucketL2 = _errors(gpu, "uncorrected", "aggregate", "sram")
    status.aggregateUncBucketSm = status.aggregateUncBucketPcie = 0
    status.aggregateUncBucketMcu = status.aggregateUncBucketOther = 0
    status.bThresholdExceeded = int(gpu.health.sram_threshold_exceeded)


# --- retired pages: boards before Ampere -------------------------------------------------------------


def _retired(gpu: Gpu, cause: int) -> int:
    """NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS, _DOUBLE_BIT_ECC_ERROR."""
    needs(gpu.card.retired_pages)
    if cause > 1:
        raise Refused(INVALID_ARGUMENT)
    return (gpu.health.retired_pages_single_bit, gpu.health.retired_pages_double_bit)[cause]


@on_gpu("nvmlDeviceGetRetiredPages", "nvmlDeviceGetRetiredPages_v2")
def retired_pages(
    gpu: Gpu, cause: int, count: Filled, addresses: Filled, timestamps: Filled | None = None
) -> None:
    pages = _retired(gpu, cause)
    room, count.value = count.value, pages
    if room < pages:
        raise Refused(INSUFFICIENT_SIZE)
    for page in range(pages if addresses is not None else 0):
        addresses[page] = 0x1000 * (1 + page) + 0x10_0000 * cause
        if timestamps is not None:
            timestamps[page] = int(gpu.loaded_s * 1e6)


@on_gpu("nvmlDeviceGetRetiredPagesPendingStatus")
def retired_pages_pending(gpu: Gpu, pending: Filled) -> None:
    needs(gpu.card.retired_pages)
    pending.value = int(gpu.health.retired_pages_pending)


# --- remapped rows: boards since Ampere --------------------------------------------------------------


def _needs_remapper(gpu: Gpu) -> None:
    needs(gpu.card.row_remap_banks)
    needs(not gpu.mig_enabled)  # "N/A" in captures of H100 and H200 in MIG mode


@on_gpu("nvmlDeviceGetRemappedRows", since=450)
def remapped_rows(
    gpu: Gpu, correctable: Filled, uncorrectable: Filled, pending: Filled, failed: Filled
) -> None:
    _needs_remapper(gpu)
    health = gpu.health
    correctable.value = health.remapped_rows_correctable
    uncorrectable.value = health.remapped_rows_uncorrectable
    pending.value, failed.value = int(health.row_remap_pending), int(health.row_remap_failed)


@on_gpu("nvmlDeviceGetRemappedRows_v2", since=595)
def remapped_rows_v2(gpu: Gpu, info: Filled) -> None:
    _needs_remapper(gpu)
    health = gpu.health
    info.corrActiveRemaps, info.corrInactiveRemaps = health.remapped_rows_correctable, 0
    info.uncActiveRemaps, info.uncInactiveRemaps = health.remapped_rows_uncorrectable, 0
    info.bPending, info.bfailureOccurred = int(health.row_remap_pending), int(health.row_remap_failed)


@on_gpu("nvmlDeviceGetRowRemapperHistogram", since=450)
def row_remapper_histogram(gpu: Gpu, banks: Filled) -> None:
    _needs_remapper(gpu)
    counts = gpu.health.row_banks or (cast(int, gpu.card.row_remap_banks), 0, 0, 0, 0)
    banks.max, banks.high, banks.partial, banks.low, banks.none = counts


# --- repairs -----------------------------------------------------------------------------------------


@on_gpu("nvmlDeviceGetRepairStatus", since=575)
def repair_status(gpu: Gpu, status: Filled) -> None:
    needs(gpu.card.repair_status)
    check_version(status, REPAIR_STATUS_V1)
    status.bChannelRepairPending = int(gpu.health.channel_repair_pending)
    status.bTpcRepairPending = int(gpu.health.tpc_repair_pending)


@on_gpu("nvmlDeviceGetUnrepairableMemoryFlag_v1", since=590)
def unrepairable_memory(gpu: Gpu, status: Filled) -> None:
    needs(gpu.card.unrepairable_flag)
    check_version(status, UNREPAIRABLE_V1)
    status.unrepairableMemory = int(gpu.health.unrepairable_memory)


# --- the same as fields ------------------------------------------------------------------------------


def _field(value_type: int, field: int, read: Callable[[Gpu], int], since: int = 0) -> None:
    on_field(value_type, field, since=since)(lambda gpu, _scope, _now_s: read(gpu))


def _mode(gpu: Gpu) -> int:
    needs(gpu.card.ecc)
    return gpu.health.ecc_mode


def _row(name: str) -> Callable[[Gpu], int]:
    def read(gpu: Gpu) -> int:
        _needs_remapper(gpu)
        return int(getattr(gpu.health, name))

    return read


def _no_inactive_rows(gpu: Gpu) -> int:
    _needs_remapper(gpu)
    return 0


def _pending_pages(gpu: Gpu) -> int:
    needs(gpu.card.retired_pages)
    return int(gpu.health.retired_pages_pending)


_field(UNSIGNED_INT, 1, _mode)
_field(UNSIGNED_INT, 2, _mode)
_field(UNSIGNED_LONG_LONG, 3, lambda gpu: _total(gpu, "corrected", "volatile"))
_field(UNSIGNED_LONG_LONG, 4, lambda gpu: _total(gpu, "uncorrected", "volatile"))
_field(UNSIGNED_LONG_LONG, 5, lambda gpu: _total(gpu, "corrected", "aggregate"))
_field(UNSIGNED_LONG_LONG, 6, lambda gpu: _total(gpu, "uncorrected", "aggregate"))
_field(UNSIGNED_LONG_LONG, 11, lambda gpu: _errors(gpu, "corrected", "volatile", "dram"))
_field(UNSIGNED_LONG_LONG, 12, lambda gpu: _errors(gpu, "uncorrected", "volatile", "dram"))
_field(UNSIGNED_LONG_LONG, 22, lambda gpu: _errors(gpu, "corrected", "aggregate", "dram"))
_field(UNSIGNED_LONG_LONG, 23, lambda gpu: _errors(gpu, "uncorrected", "aggregate", "dram"))
_field(UNSIGNED_LONG_LONG, 29, lambda gpu: _retired(gpu, 0))
_field(UNSIGNED_LONG_LONG, 30, lambda gpu: _retired(gpu, 1))
_field(UNSIGNED_LONG_LONG, 31, _pending_pages)
_field(UNSIGNED_INT, 142, _row("remapped_rows_correctable"))
_field(UNSIGNED_INT, 143, _row("remapped_rows_uncorrectable"))
_field(UNSIGNED_INT, 144, _row("row_remap_pending"))
_field(UNSIGNED_INT, 145, _row("row_remap_failed"))
_field(UNSIGNED_INT, 230, lambda gpu: gpu.health.recovery_action, since=570)
_field(UNSIGNED_INT, 301, _no_inactive_rows, since=595)
_field(UNSIGNED_INT, 302, _no_inactive_rows, since=595)
