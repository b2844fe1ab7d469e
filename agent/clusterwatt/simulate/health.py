"""What has gone wrong with a simulated board; all is well until a test says otherwise."""

from __future__ import annotations

from typing import Literal

import msgspec

EccKind = Literal["corrected", "uncorrected"]
EccWindow = Literal["volatile", "aggregate"]
EccPlace = Literal["dram", "sram"]


class Health(msgspec.Struct):
    """Counters and flags of one board, to be set by whoever wants a sick one."""

    persistence_mode: int = 1
    ecc_mode: int = 1
    ecc_errors: dict[tuple[EccKind, EccWindow, EccPlace], int] = {}
    """Absent keys count 0."""
    sram_parity: int = 0
    """How many of the uncorrected SRAM errors are parity errors; the others are SEC-DED."""
    sram_threshold_exceeded: bool = False
    retired_pages_single_bit: int = 0
    retired_pages_double_bit: int = 0
    retired_pages_pending: bool = False
    remapped_rows_correctable: int = 0
    remapped_rows_uncorrectable: int = 0
    row_remap_pending: bool = False
    row_remap_failed: bool = False
    row_banks: tuple[int, int, int, int, int] | None = None
    """Banks by rows left (max, high, partial, low, none); None: all banks have all rows left."""
    channel_repair_pending: bool = False
    tpc_repair_pending: bool = False
    unrepairable_memory: bool = False
    recovery_action: int = 0
    pcie_replays: int = 0
    pcie_errors: dict[int, int] = {}
    """By field id (169, 173 to 183); absent keys count 0."""
    pcie_width: int | None = None
    """The width that the link has trained to, where it is not the full one."""
    event_reasons: int | None = None
    """A fixed mask of clock event reasons, in place of the one that follows from the work."""
    sm_clock_mhz: int | None = None
    """The highest SM clock that something unnamed allows, where it is not the board's own."""
    warmer_c: float = 0.0
    """How much warmer the board is than its power makes it."""
    held_down_ns: dict[str, int] = {}
    """Nanoseconds by reason: sw_power_cap, sw_thermal, sync_boost, board, low_use, reliability, hw_thermal,
    hw_power_brake."""
    nvlink_down: set[int] = set()
    nvlink_errors: dict[tuple[str, int], int] = {}
    """By kind (replay, recovery, crc, flit, ecc, symbol, effective, ...) and link."""
    c2c_errors: dict[tuple[str, int], int] = {}
    """By kind (interrupt, replay, replay_back_to_back) and link to the CPU."""
    fabric_state: int | None = None
    """NVML_GPU_FABRIC_STATE_*, where it is not "completed"."""
    fabric_health_mask: int | None = None
    fabric_health_summary: int | None = None
