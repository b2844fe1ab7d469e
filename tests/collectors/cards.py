"""What stands on the page for each simulated card: series by what `nvidia-smi -q` of a real one shows.

Written down from captures, not taken from the simulation: what a card calls N/A has no series.
"""

from __future__ import annotations

from collections.abc import Iterable

Series = tuple[str, tuple[str, ...]]


def series(name: str, *labels: Iterable[str]) -> set[Series]:
    """A family with every combination of the label values."""
    rows: list[tuple[str, ...]] = [()]
    for values in labels:
        rows = [(*row, value) for row in rows for value in values]
    return {(name, row) for row in rows}


ENGINES = {
    engine: series(f"gpu_{engine}_utilization_ratio") | series(f"gpu_{engine}_busy_seconds_total")
    for engine in ("encoder", "decoder", "jpeg", "ofa")
}
EVERY_CARD = (
    series("gpu_info")
    | series("gpu_utilization_ratio")
    | series("gpu_memory_utilization_ratio")
    | series("gpu_memory_used_bytes")
    | series("gpu_memory_total_bytes")
    | series("gpu_memory_free_bytes")
    | series("gpu_memory_reserved_bytes")
    | series("gpu_bar1_used_bytes")
    | series("gpu_bar1_total_bytes")
    | series("gpu_power_watts", ["gpu"], ["instant"])
    | series("gpu_power_limit_watts", ["enforced", "default", "min", "max"])
    | series("gpu_temperature_celsius", ["core"])
    | series("gpu_temperature_margin_celsius")
    | series("gpu_clock_hertz", ["sm", "memory", "graphics", "video"])
    | series("gpu_clock_max_hertz", ["sm", "memory", "graphics", "video"])
    | series("gpu_performance_state")
    | series("gpu_mode_enabled", ["persistence"])
    | series("gpu_pcie_receive_bytes_total")
    | series("gpu_pcie_transmit_bytes_total")
    | series("gpu_pcie_replays_total")
    | series("gpu_pcie_link_generation")
    | series("gpu_pcie_link_width")
    | series("gpu_pcie_link_generation_max")
    | series("gpu_pcie_link_width_max")
    | series("gpu_processes", ["compute", "graphics", "mps"])
    | series(
        "gpu_pcie_errors_total",
        [
            "l0_to_recovery",
            "correctable",
            "nak_received",
            "receiver",
            "bad_tlp",
            "nak_sent",
            "bad_dllp",
            "non_fatal",
            "fatal",
            "unsupported_request",
            "lcrc",
        ],
    )
    | series(
        "gpu_recovery_action",
        [
            "none",
            "gpu_reset",
            "node_reboot",
            "drain_p2p",
            "drain_and_reset",
            "imex",
            "bus_reset",
            "system_reboot",
        ],
    )
    | series(
        "gpu_throttle_active",
        [
            "idle",
            "app_clocks",
            "sw_power_cap",
            "hw_slowdown",
            "sync_boost",
            "sw_thermal",
            "hw_thermal",
            "hw_power_brake",
            "display",
        ],
    )
    | series(
        "gpu_throttle_seconds_total",
        [
            "idle",
            "app_clocks",
            "sw_power_cap",
            "hw_slowdown",
            "sync_boost",
            "sw_thermal",
            "hw_thermal",
            "hw_power_brake",
            "display",
            "board_limit",
            "reliability",
            "low_utilization",
        ],
    )
)
AVERAGE = series("gpu_power_watts", ["gpu"], ["average"])
MEMORY_POWER = series("gpu_power_watts", ["memory"], ["average"])
MODULE_POWER = series("gpu_power_watts", ["module"], ["average", "instant"])
C2C = series("gpu_c2c_errors_total", ["interrupt", "replay", "replay_back_to_back"])
MEMORY_TEMPERATURE = series("gpu_temperature_celsius", ["memory"])
CORE_LIMITS = series("gpu_temperature_limit_celsius", ["core"], ["slowdown", "shutdown", "max"])
MEMORY_LIMIT = series("gpu_temperature_limit_celsius", ["memory"], ["max"])
ECC = series("gpu_mode_enabled", ["ecc"]) | series(
    "gpu_ecc_errors_total", ["corrected", "uncorrected"], ["volatile", "aggregate"], ["dram", "sram"]
)
SRAM = series("gpu_sram_threshold_exceeded")
ROWS = (
    series("gpu_remapped_rows_total", ["correctable", "uncorrectable"])
    | series("gpu_row_remap_pending")
    | series("gpu_row_remap_failed")
)
BANKS = series("gpu_row_remap_banks", ["max", "high", "partial", "low", "none"])
PAGES = series("gpu_retired_pages_total", ["single_bit", "double_bit"]) | series("gpu_retired_pages_pending")
REPAIR = series("gpu_repair_pending", ["channel", "tpc"])
FAN = series("gpu_fan_speed_ratio", ["0"])
MIG = series("gpu_mode_enabled", ["mig"])
FABRIC = series("gpu_fabric_info") | series(
    "gpu_fabric_state", ["not_supported", "not_started", "in_progress", "completed"]
)


def nvlink(links: int, *errors: str) -> set[Series]:
    """A board with so many links, which count these errors."""
    each = [str(link) for link in range(links)]
    return (
        series("gpu_nvlinks_up")
        | series("gpu_nvlinks_expected")
        | series("gpu_nvlink_receive_bytes_total")
        | series("gpu_nvlink_transmit_bytes_total")
        | series("gpu_nvlink_errors_total", errors)
        | series("gpu_nvlink_up", each)
        | series("gpu_nvlink_link_receive_bytes_total", each)
        | series("gpu_nvlink_link_transmit_bytes_total", each)
        | series("gpu_nvlink_link_errors_total", each, errors)
    )


HOPPER = AVERAGE | MEMORY_POWER | MEMORY_TEMPERATURE | ECC | SRAM | ROWS | BANKS | REPAIR | MIG | FABRIC
OFFERED = {
    "a100": MEMORY_TEMPERATURE
    | CORE_LIMITS
    | MEMORY_LIMIT
    | ECC
    | SRAM
    | ROWS
    | BANKS
    | REPAIR
    | MIG
    | nvlink(12, "replay", "recovery", "crc"),
    "h100": HOPPER | nvlink(18, "replay", "recovery", "crc"),
    "h200": HOPPER | nvlink(18, "replay", "recovery", "crc"),
    "b200": HOPPER | nvlink(18, "recovery", "symbol"),
    "gb200": HOPPER | nvlink(18, "recovery", "symbol") | MODULE_POWER | C2C,
    "l40s": AVERAGE | ECC | SRAM | ROWS | BANKS | REPAIR,
    "t4": CORE_LIMITS | ECC | PAGES,
    "rtx4080": AVERAGE | CORE_LIMITS | FAN,
}


def everything(card: str) -> set[Series]:
    """All series of a card with a driver of the branch 590."""
    return EVERY_CARD.union(OFFERED[card], *ENGINES.values())
