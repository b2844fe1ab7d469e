"""Health of a GPU: ECC errors, remapped rows, retired pages, repairs, what the driver asks for (nvml.h)."""

from __future__ import annotations

from collections.abc import Iterator

from clusterwatt.catalog import CORE, FULL, STANDARD, LevelBy, Table
from clusterwatt.nvml.constants import (
    ECC_AGGREGATE,
    ECC_CORRECTED,
    ECC_UNCORRECTED,
    ECC_VOLATILE,
    FIELD_ECC_TOTALS,
    FIELD_RECOVERY_ACTION,
    FIELD_RETIRED_DOUBLE_BIT,
    FIELD_RETIRED_PENDING,
    FIELD_RETIRED_SINGLE_BIT,
    LOCATION_DRAM,
    LOCATION_SRAM,
    VIRTUALIZATION_VGPU,
)
from clusterwatt.nvml.device import Device
from clusterwatt.readings.gpu import GpuMode
from clusterwatt.readings.gpu_health import (
    GpuEccErrors,
    GpuRecoveryAction,
    GpuRecoveryRequired,
    GpuRemappedRows,
    GpuRepair,
    GpuRetiredPages,
    GpuRetiredPagesPending,
    GpuRowBanks,
    GpuRowRemap,
    GpuSram,
)

ECC = Table(
    GpuEccErrors,
    labels=("gpu", "uuid", "type", "window", "location"),
    row_level=LevelBy("window", {"volatile": CORE, "aggregate": STANDARD}),
)
SRAM = Table(GpuSram, labels=("gpu", "uuid"))
ROWS = Table(GpuRemappedRows, labels=("gpu", "uuid", "cause"))
REMAP = Table(GpuRowRemap, labels=("gpu", "uuid"))
BANKS = Table(GpuRowBanks, labels=("gpu", "uuid", "spare"))
PAGES = Table(GpuRetiredPages, labels=("gpu", "uuid", "cause"))
PAGES_PENDING = Table(GpuRetiredPagesPending, labels=("gpu", "uuid"))
REPAIR = Table(GpuRepair, labels=("gpu", "uuid", "part"))
ACTION = Table(GpuRecoveryAction, labels=("gpu", "uuid", "action"))
REQUIRED = Table(GpuRecoveryRequired, labels=("gpu", "uuid", "action"))
MODE = Table(GpuMode, labels=("gpu", "uuid", "mode"))
METRICS = (
    ECC.counter(
        "gpu_ecc_errors_total",
        "ECC errors since the driver was loaded (volatile) or in the life of the board (aggregate).",
        "errors",
        by=LevelBy("type", {"uncorrected": CORE, "corrected": STANDARD}),
    ),
    SRAM.gauge(
        "gpu_sram_threshold_exceeded",
        "1: uncorrected SRAM errors have passed the vendor's mark for replacement.",
        "threshold_exceeded",
        STANDARD,
    ),
    ROWS.counter(
        "gpu_remapped_rows_total", "Rows of device memory that were replaced by spare ones.", "rows", STANDARD
    ),
    REMAP.gauge("gpu_row_remap_pending", "1: a row will be remapped at the next reset.", "pending"),
    REMAP.gauge("gpu_row_remap_failed", "1: the remapping of a row has failed.", "failed"),
    BANKS.gauge("gpu_row_remap_banks", "Memory banks by the spare rows they have left.", "banks", STANDARD),
    PAGES.counter(
        "gpu_retired_pages_total", "Pages of device memory that are no longer used.", "pages", STANDARD
    ),
    PAGES_PENDING.gauge(
        "gpu_retired_pages_pending", "1: pages will be retired at the next reset.", "pending", STANDARD
    ),
    REPAIR.gauge("gpu_repair_pending", "1: a repair will be made at the next reset.", "pending", FULL),
    ACTION.gauge(
        "gpu_recovery_action", "1 for the action that the driver asks for, 0 for the others.", "wanted"
    ),
    REQUIRED.info(
        "gpu_recovery_required_info",
        "The action that the driver asks for, while it asks for one; unknown: newer than the agent.",
    ),
    MODE.gauge("gpu_mode_enabled", "1: the mode is on.", "enabled", FULL),
)

BY_PLACE = "nvmlDeviceGetMemoryErrorCounter"
TYPES = {"corrected": ECC_CORRECTED, "uncorrected": ECC_UNCORRECTED}
WINDOWS = {"volatile": ECC_VOLATILE, "aggregate": ECC_AGGREGATE}
LOCATIONS = {"dram": LOCATION_DRAM, "sram": LOCATION_SRAM}
ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "imex",
    "bus_reset",
    "system_reboot",
)
SPARES = ("max", "high", "partial", "low", "none")


def ecc_errors(device: Device) -> Iterator[GpuEccErrors]:
    """ECC errors by place where the driver knows both places, else their sum. None while ECC is off."""
    counts: dict[tuple[str, str, str], float | None] = {
        (kind, window, place): device.ask(BY_PLACE, number, span, location)
        for kind, number in TYPES.items()
        for window, span in WINDOWS.items()
        for place, location in LOCATIONS.items()
    }
    if any(_lacks_place(device, location) for location in LOCATIONS.values()):
        totals = device.fields(tuple(FIELD_ECC_TOTALS))  # with other places in them, that older cards have
        fields = {numbers: field for field, numbers in FIELD_ECC_TOTALS.items()}
        counts = {
            (kind, window, "all"): totals.get(fields[number, span])
            for kind, number in TYPES.items()
            for window, span in WINDOWS.items()
        }
    for (kind, window, place), count in counts.items():
        if count is not None:
            yield GpuEccErrors(
                gpu=device.gpu,
                uuid=device.uuid,
                type=kind,
                window=window,
                location=place,
                errors=float(count),
            )


def _lacks_place(device: Device, location: int) -> bool:
    return all(
        device.lacks(BY_PLACE, number, span, location)
        for number in TYPES.values()
        for span in WINDOWS.values()
    )


def sram(device: Device) -> Iterator[GpuSram]:
    """The mark for replacement; the driver tells it to root only."""
    status = device.fill("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t")
    if status is not None:
        exceeded = float(bool(status.bThresholdExceeded))
        yield GpuSram(gpu=device.gpu, uuid=device.uuid, threshold_exceeded=exceeded)


def remapped_rows(device: Device) -> Iterator[GpuRemappedRows | GpuRowRemap]:
    """Rows that were remapped, wait for it, or could not be (Ampere and newer)."""
    answer = device.ask("nvmlDeviceGetRemappedRows")
    if answer is None:
        return
    correctable, uncorrectable, pending, failed = answer
    for cause, rows in (("correctable", correctable), ("uncorrectable", uncorrectable)):
        yield GpuRemappedRows(gpu=device.gpu, uuid=device.uuid, cause=cause, rows=float(rows))
    yield GpuRowRemap(
        gpu=device.gpu, uuid=device.uuid, pending=float(bool(pending)), failed=float(bool(failed))
    )


def row_banks(device: Device) -> Iterator[GpuRowBanks]:
    """Banks by spare rows. Not asked for in a vGPU guest, where it has made the kernel log warnings."""
    if device.ask("nvmlDeviceGetVirtualizationMode") == VIRTUALIZATION_VGPU:
        return
    histogram = device.ask("nvmlDeviceGetRowRemapperHistogram")
    if histogram is not None:
        for spare in SPARES:
            banks = float(getattr(histogram, spare))
            yield GpuRowBanks(gpu=device.gpu, uuid=device.uuid, spare=spare, banks=banks)


def pages_and_action(
    device: Device,
) -> Iterator[GpuRetiredPages | GpuRetiredPagesPending | GpuRecoveryAction | GpuRecoveryRequired]:
    """Retired pages (before Ampere), and what the driver asks to be done (r570 and newer)."""
    values = device.fields(
        (
            FIELD_RETIRED_SINGLE_BIT,
            FIELD_RETIRED_DOUBLE_BIT,
            FIELD_RETIRED_PENDING,
            FIELD_RECOVERY_ACTION,
        )
    )
    for cause, field in (("single_bit", FIELD_RETIRED_SINGLE_BIT), ("double_bit", FIELD_RETIRED_DOUBLE_BIT)):
        if field in values:
            yield GpuRetiredPages(gpu=device.gpu, uuid=device.uuid, cause=cause, pages=values[field])
    if FIELD_RETIRED_PENDING in values:
        pending = float(bool(values[FIELD_RETIRED_PENDING]))
        yield GpuRetiredPagesPending(gpu=device.gpu, uuid=device.uuid, pending=pending)
    if FIELD_RECOVERY_ACTION in values:
        asked = values[FIELD_RECOVERY_ACTION]
        for number, action in enumerate(ACTIONS):
            wanted = float(asked == number)
            yield GpuRecoveryAction(gpu=device.gpu, uuid=device.uuid, action=action, wanted=wanted)
        if asked != ACTIONS.index("none"):
            name = dict(enumerate(ACTIONS)).get(int(asked), "unknown")
            yield GpuRecoveryRequired(gpu=device.gpu, uuid=device.uuid, action=name)


def repairs(device: Device) -> Iterator[GpuRepair]:
    """Repairs of a memory channel or of a cluster of SMs (TPC) that wait for a reset."""
    answer = device.ask("nvmlDeviceGetRepairStatus")
    if answer is not None:
        for part, pending in zip(("channel", "tpc"), answer, strict=True):
            yield GpuRepair(gpu=device.gpu, uuid=device.uuid, part=part, pending=float(bool(pending)))


def modes(device: Device) -> Iterator[GpuMode]:
    """Persistence, MIG and ECC as they are now, not as they will be after a reset."""
    mig, ecc = device.ask("nvmlDeviceGetMigMode"), device.ask("nvmlDeviceGetEccMode")
    states = {
        "persistence": device.ask("nvmlDeviceGetPersistenceMode"),
        "mig": None if mig is None else mig[0],
        "ecc": None if ecc is None else ecc[0],
    }
    for mode, state in states.items():
        if state is not None:
            yield GpuMode(gpu=device.gpu, uuid=device.uuid, mode=mode, enabled=float(bool(state)))
