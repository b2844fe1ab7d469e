"""ECC, rows, pages, repairs, modes, and what the driver asks for."""

from __future__ import annotations

import pytest

from clusterwatt.catalog import Level
from clusterwatt.collectors.gpu import METRICS
from clusterwatt.readings.gpu_health import GpuRecoveryRequired
from tests.collectors.cards import Series
from tests.collectors.gpus import Watch, page
from tests.nvml.drivers import Bench

BY_PLACE = "nvmlDeviceGetMemoryErrorCounter"
HISTOGRAM = "nvmlDeviceGetRowRemapperHistogram"


def shown(bench: Bench) -> dict[Series, float]:
    """The page once every part was read."""
    watch = Watch(bench)
    watch.read()
    found = page(watch.tick(15))
    assert watch.failures == []
    return found


def families(found: dict[Series, float]) -> set[str]:
    return {name for name, _ in found}


def test_errors_are_told_by_kind_window_and_place() -> None:
    bench = Bench("h100", 1).open()
    bench.library.gpu(0).health.ecc_errors = {
        ("corrected", "volatile", "dram"): 3,
        ("corrected", "aggregate", "dram"): 30,
        ("uncorrected", "volatile", "sram"): 1,
        ("uncorrected", "aggregate", "sram"): 2,
    }
    found = shown(bench)
    assert found["gpu_ecc_errors_total", ("corrected", "volatile", "dram")] == 3.0
    assert found["gpu_ecc_errors_total", ("corrected", "aggregate", "dram")] == 30.0
    assert found["gpu_ecc_errors_total", ("uncorrected", "volatile", "sram")] == 1.0
    assert found["gpu_ecc_errors_total", ("uncorrected", "aggregate", "sram")] == 2.0
    assert found["gpu_ecc_errors_total", ("uncorrected", "volatile", "dram")] == 0.0


def test_without_ecc_there_are_no_errors_to_count() -> None:
    bench = Bench("h100", 1).open()
    bench.library.gpu(0).health.ecc_mode = 0
    found = shown(bench)
    assert "gpu_ecc_errors_total" not in families(found)
    assert found["gpu_mode_enabled", ("ecc",)] == 0.0


def test_a_card_that_does_not_tell_places_tells_the_sum() -> None:
    bench = Bench("t4", 1).open()
    bench.faults.fail(BY_PLACE, 3)
    bench.library.gpu(0).health.ecc_errors = {
        ("corrected", "volatile", "dram"): 3,
        ("corrected", "volatile", "sram"): 4,
        ("uncorrected", "aggregate", "dram"): 5,
    }
    found = {
        labels: value for (name, labels), value in shown(bench).items() if name == "gpu_ecc_errors_total"
    }
    assert found == {
        ("corrected", "volatile", "all"): 7.0,
        ("corrected", "aggregate", "all"): 0.0,
        ("uncorrected", "volatile", "all"): 0.0,
        ("uncorrected", "aggregate", "all"): 5.0,
    }


def test_places_that_fail_for_a_moment_do_not_become_a_sum_beside_them() -> None:
    bench = Bench("h100", 1).open()
    watch = Watch(bench)
    watch.read()
    before = {key for key in page(watch.tick(15)) if key[0] == "gpu_ecc_errors_total"}
    bench.faults.fail(BY_PLACE, 999)
    found = {key for key in page(watch.tick(60)) if key[0] == "gpu_ecc_errors_total"}
    assert found == before


@pytest.mark.parametrize(("privileged", "there"), [(True, True), (False, False)])
def test_the_replacement_mark_is_told_to_root_only(privileged: bool, there: bool) -> None:
    bench = Bench("h100", 1, privileged=privileged).open()
    bench.library.gpu(0).health.sram_threshold_exceeded = True
    found = shown(bench)
    assert found.get(("gpu_sram_threshold_exceeded", ())) == (1.0 if there else None)
    assert ("gpu_ecc_errors_total", ("uncorrected", "volatile", "sram")) in found


def test_remapped_rows_and_banks() -> None:
    bench = Bench("a100", 1).open()
    health = bench.library.gpu(0).health
    health.remapped_rows_correctable, health.remapped_rows_uncorrectable = 2, 1
    health.row_remap_pending = True
    health.row_banks = (636, 2, 1, 0, 1)
    found = shown(bench)
    assert found["gpu_remapped_rows_total", ("correctable",)] == 2.0
    assert found["gpu_remapped_rows_total", ("uncorrectable",)] == 1.0
    assert found["gpu_row_remap_pending", ()] == 1.0
    assert found["gpu_row_remap_failed", ()] == 0.0
    banks = [found["gpu_row_remap_banks", (spare,)] for spare in ("max", "high", "partial", "low", "none")]
    assert banks == [636.0, 2.0, 1.0, 0.0, 1.0]


def test_a_failed_remapping_is_seen_within_ten_seconds() -> None:
    bench = Bench("h100", 1).open()
    watch = Watch(bench)
    watch.read()
    watch.tick(15)
    bench.library.gpu(0).health.row_remap_failed = True
    assert page(watch.tick(10))["gpu_row_remap_failed", ()] == 1.0


def test_the_histogram_is_not_asked_for_in_a_vgpu_guest() -> None:
    bench = Bench("h100", 1, vgpu_licensed=True).open()
    assert "gpu_row_remap_banks" not in families(shown(bench))
    assert bench.library.calls[HISTOGRAM] == 0


def test_retired_pages_before_ampere() -> None:
    bench = Bench("t4", 1).open()
    health = bench.library.gpu(0).health
    health.retired_pages_single_bit, health.retired_pages_double_bit = 4, 1
    health.retired_pages_pending = True
    found = shown(bench)
    assert found["gpu_retired_pages_total", ("single_bit",)] == 4.0
    assert found["gpu_retired_pages_total", ("double_bit",)] == 1.0
    assert found["gpu_retired_pages_pending", ()] == 1.0


@pytest.mark.parametrize(
    ("number", "action"),
    [
        (0, "none"),
        (1, "gpu_reset"),
        (2, "node_reboot"),
        (3, "drain_p2p"),
        (4, "drain_and_reset"),
        (5, "imex"),
        (6, "bus_reset"),
        (7, "system_reboot"),
        (8, None),
    ],
)
def test_the_action_that_the_driver_asks_for_is_the_only_one(number: int, action: str | None) -> None:
    """An action that nobody knows yet is none of these, and not `none` either."""
    bench = Bench("h100", 1).open()
    bench.library.gpu(0).health.recovery_action = number
    readings = Watch(bench).tick(15)
    found = page(readings)
    states = {labels[0]: value for (name, labels), value in found.items() if name == "gpu_recovery_action"}
    assert len(states) == 8
    required = [reading.action for reading in readings if isinstance(reading, GpuRecoveryRequired)]
    assert required == ([action or "unknown"] if number else [])
    assert {name for name, value in states.items() if value == 1.0} == ({action} if action else set())
    assert set(states.values()) <= {0.0, 1.0}


def test_repairs_that_wait() -> None:
    bench = Bench("h100", 1).open()
    bench.library.gpu(0).health.tpc_repair_pending = True
    found = shown(bench)
    assert found["gpu_repair_pending", ("tpc",)] == 1.0
    assert found["gpu_repair_pending", ("channel",)] == 0.0


def test_modes() -> None:
    bench = Bench("h100", 1).open()
    bench.library.gpu(0).health.persistence_mode = 0
    found = shown(bench)
    assert found["gpu_mode_enabled", ("persistence",)] == 0.0
    assert found["gpu_mode_enabled", ("mig",)] == 0.0
    assert found["gpu_mode_enabled", ("ecc",)] == 1.0


def test_levels_are_those_of_the_contract() -> None:
    core, standard, full = Level
    readings = Watch(Bench("h100", 1).open())
    readings.read()
    rows = readings.tick(15)
    levels = {
        (metric.name, tuple(getattr(reading, label) for label in metric.labels[2:])): metric.level_of(reading)
        for metric in METRICS
        for reading in rows
        if type(reading) is metric.reading
    }
    assert levels["gpu_ecc_errors_total", ("uncorrected", "volatile", "sram")] is core
    assert levels["gpu_ecc_errors_total", ("corrected", "volatile", "sram")] is standard
    assert levels["gpu_ecc_errors_total", ("uncorrected", "aggregate", "dram")] is standard
    assert levels["gpu_row_remap_pending", ()] is core
    assert levels["gpu_row_remap_failed", ()] is core
    assert levels["gpu_remapped_rows_total", ("correctable",)] is standard
    assert levels["gpu_row_remap_banks", ("none",)] is standard
    assert levels["gpu_sram_threshold_exceeded", ()] is standard
    assert levels["gpu_recovery_action", ("gpu_reset",)] is core
    assert levels["gpu_repair_pending", ("tpc",)] is full
    assert levels["gpu_mode_enabled", ("mig",)] is full
    assert levels["gpu_throttle_seconds_total", ("hw_thermal",)] is core
    assert levels["gpu_throttle_seconds_total", ("hw_power_brake",)] is core
    assert levels["gpu_throttle_seconds_total", ("sw_power_cap",)] is standard
    assert levels["gpu_throttle_seconds_total", ("idle",)] is full
    assert levels["gpu_throttle_active", ("hw_thermal",)] is full
    assert levels["gpu_pcie_replays_total", ()] is standard
    assert levels["gpu_pcie_errors_total", ("fatal",)] is full
    assert levels["gpu_bar1_used_bytes", ()] is standard
    assert levels["gpu_nvlink_up", ("0",)] is standard
    assert levels["gpu_nvlink_errors_total", ("replay",)] is standard
    assert levels["gpu_nvlink_link_errors_total", ("0", "replay")] is full
    assert levels["gpu_nvlink_link_receive_bytes_total", ("0",)] is full
    assert levels["gpu_fabric_state", ("completed",)] is standard
