"""Errors of a GPU's memory, what the driver has done about them, and what it asks for."""

from __future__ import annotations

from clusterwatt.readings.base import Reading


class GpuEccErrors(Reading, frozen=True):
    """ECC errors. type: corrected, uncorrected; window: volatile, aggregate; location: dram, sram, all."""

    gpu: str
    uuid: str
    type: str
    window: str
    location: str
    errors: float


class GpuSram(Reading, frozen=True):
    """1: uncorrected SRAM errors have passed the vendor's mark for replacement."""

    gpu: str
    uuid: str
    threshold_exceeded: float


class GpuRemappedRows(Reading, frozen=True):
    """Rows of device memory that were remapped. cause: correctable, uncorrectable."""

    gpu: str
    uuid: str
    cause: str
    rows: float


class GpuRowRemap(Reading, frozen=True):
    """1: a row waits for a reset to be remapped; a remapping has failed."""

    gpu: str
    uuid: str
    pending: float
    failed: float


class GpuRowBanks(Reading, frozen=True):
    """Memory banks by the spare rows they have left. spare: max, high, partial, low, none."""

    gpu: str
    uuid: str
    spare: str
    banks: float


class GpuRetiredPages(Reading, frozen=True):
    """Pages of device memory that were retired. cause: single_bit, double_bit."""

    gpu: str
    uuid: str
    cause: str
    pages: float


class GpuRetiredPagesPending(Reading, frozen=True):
    """1: pages wait for a reset to be retired."""

    gpu: str
    uuid: str
    pending: float


class GpuRepair(Reading, frozen=True):
    """1: a repair waits for a reset. part: channel, tpc."""

    gpu: str
    uuid: str
    part: str
    pending: float


class GpuRecoveryAction(Reading, frozen=True):
    """1 for the action that the driver asks for, 0 for the others (`none` is one of them)."""

    gpu: str
    uuid: str
    action: str
    wanted: float


class GpuRecoveryRequired(Reading, frozen=True):
    """The action that the driver asks for; there only while it asks for one."""

    gpu: str
    uuid: str
    action: str
