"""Values and labels against the conversions that DCGM makes, and what is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.expose.dcgm.fields import FIELDS, KNOWN, LABELS
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import (
    GpuBoard,
    GpuClock,
    GpuEngines,
    GpuGpm,
    GpuIntegrals,
    GpuMemory,
    GpuPower,
    GpuTemperature,
    GpuThrottle,
    GpuUse,
    GpuVgpuLicense,
)
from clusterwatt.readings.gpu_health import (
    GpuEccErrors,
    GpuRemappedRows,
    GpuRetiredPages,
    GpuRetiredPagesPending,
    GpuRowRemap,
)
from clusterwatt.readings.gpu_links import (
    GpuNvlinkCrc,
    GpuNvlinkErrors,
    GpuNvlinkLink,
    GpuNvlinkTraffic,
    GpuPcieLink,
    GpuPcieTraffic,
)
from clusterwatt.readings.gpu_measured import GpuXid, GpuXids
from tests.expose.dcgm.pages import (
    DRIVER,
    GPU_A,
    GPU_B,
    A,
    B,
    info,
    instance,
    page_for,
    snapshot,
    text,
    values,
)

MIG_1 = "MIG-11111111-0000-0000-0000-000000000001"


def value(tmp_path: Path, name: str, *readings: Reading) -> str | None:
    """The value of one counter on a node with one GPU; None: it has no series."""
    page = text(page_for(tmp_path, name), snapshot(GPU_A, *readings))
    return values(page).get(name)


@pytest.mark.parametrize(
    ("name", "reading", "expected"),
    [
        ("SM_CLOCK", GpuClock("0", A, "sm", 1980e6), "1980"),
        ("MEM_CLOCK", GpuClock("0", A, "memory", 2619e6), "2619"),
        ("MEMORY_TEMP", GpuTemperature("0", A, "memory", 56.0), "56"),
        ("GPU_TEMP", GpuTemperature("0", A, "core", 61.0), "61"),
        ("POWER_USAGE", GpuPower("0", A, "gpu", "average", 571.525), "571.525000"),
        (
            "TOTAL_ENERGY_CONSUMPTION",
            GpuIntegrals("0", A, 0.0, 1.0, energy_counter_joules=52_177_476_098.649),
            "52177476098649",
        ),
        ("PCIE_REPLAY_COUNTER", GpuPcieLink("0", A, replays=7.0), "7"),
        ("GPU_UTIL", GpuUse("0", A, 0.29, None), "29"),  # 0.29 * 100 is a little less than 29
        ("MEM_COPY_UTIL", GpuUse("0", A, None, 0.57), "57"),
        ("ENC_UTIL", GpuEngines("0", A, encoder_ratio=0.07), "7"),
        ("DEC_UTIL", GpuEngines("0", A, decoder_ratio=0.14), "14"),
        ("POWER_VIOLATION", GpuThrottle("0", A, "sw_power_cap", 0.0, 1.5), "1500000000"),
        ("THERMAL_VIOLATION", GpuThrottle("0", A, "sw_thermal", 0.0, 2.0), "2000000000"),
        ("SYNC_BOOST_VIOLATION", GpuThrottle("0", A, "sync_boost", 0.0, 3.0), "3000000000"),
        ("BOARD_LIMIT_VIOLATION", GpuThrottle("0", A, "board_limit", 0.0, 4.0), "4000000000"),
        ("LOW_UTIL_VIOLATION", GpuThrottle("0", A, "low_utilization", 0.0, 5.0), "5000000000"),
        ("RELIABILITY_VIOLATION", GpuThrottle("0", A, "reliability", 0.0, 6.0), "6000000000"),
        ("FB_FREE", GpuMemory("0", A, free_bytes=10 * 2**20 - 1.0), "9"),  # MiB, cut off
        ("FB_USED", GpuMemory("0", A, used_bytes=74_816_317_030.0), "71350"),
        ("FB_RESERVED", GpuMemory("0", A, reserved_bytes=502_267_904.0), "479"),
        ("RETIRED_SBE", GpuRetiredPages("0", A, "single_bit", 3.0), "3"),
        ("RETIRED_DBE", GpuRetiredPages("0", A, "double_bit", 2.0), "2"),
        ("RETIRED_PENDING", GpuRetiredPagesPending("0", A, 1.0), "1"),
        ("UNCORRECTABLE_REMAPPED_ROWS", GpuRemappedRows("0", A, "uncorrectable", 4.0), "4"),
        ("CORRECTABLE_REMAPPED_ROWS", GpuRemappedRows("0", A, "correctable", 5.0), "5"),
        ("ROW_REMAP_FAILURE", GpuRowRemap("0", A, pending=0.0, failed=1.0), "1"),
        ("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", GpuNvlinkCrc("0", A, 8.0, 9.0), "8"),
        ("NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", GpuNvlinkCrc("0", A, 8.0, 9.0), "9"),
        ("NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", GpuNvlinkErrors("0", A, "crc", 6.0), "6"),
        ("NVLINK_REPLAY_ERROR_COUNT_TOTAL", GpuNvlinkErrors("0", A, "replay", 1.0), "1"),
        ("NVLINK_RECOVERY_ERROR_COUNT_TOTAL", GpuNvlinkErrors("0", A, "recovery", 2.0), "2"),
        ("VGPU_LICENSE_STATUS", GpuVgpuLicense("0", A, 1.0), "1"),
    ],
)
def test_units_are_those_of_dcgm(tmp_path: Path, name: str, reading: Reading, expected: str) -> None:
    assert value(tmp_path, f"DCGM_FI_DEV_{name}", reading) == expected


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_what_no_reading_says_has_no_series(tmp_path: Path, name: str) -> None:
    nothing = (GpuUse("0", A), GpuMemory("0", A), GpuEngines("0", A), GpuGpm("0", A, 0.0, 1.0, False))
    page = page_for(tmp_path, name)
    assert text(page, *(snapshot(GPU_A, *nothing, monotonic_s=1000.0 + s) for s in range(40))) == ""


def test_other_readings_of_a_type_are_not_taken_for_it(tmp_path: Path) -> None:
    module = GpuPower("0", A, "module", "average", 1000.0)
    assert value(tmp_path, "DCGM_FI_DEV_POWER_USAGE", module) is None
    instant = GpuPower("0", A, "gpu", "instant", 650.0)
    assert value(tmp_path, "DCGM_FI_DEV_POWER_USAGE", module, instant) == "650.000000"
    average = GpuPower("0", A, "gpu", "average", 600.0)
    assert value(tmp_path, "DCGM_FI_DEV_POWER_USAGE", instant, average) == "600.000000"


def test_ecc_errors_are_the_sum_of_all_places_or_nothing(tmp_path: Path) -> None:
    dram = GpuEccErrors("0", A, "corrected", "volatile", "dram", 3.0)
    sram = GpuEccErrors("0", A, "corrected", "volatile", "sram", 2.0)
    others = (
        GpuEccErrors("0", A, "uncorrected", "volatile", "dram", 50.0),
        GpuEccErrors("0", A, "corrected", "aggregate", "dram", 60.0),
    )
    assert value(tmp_path, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", dram, sram, *others) == "5"
    assert value(tmp_path, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", dram, *others) is None
    total = GpuEccErrors("0", A, "uncorrected", "aggregate", "all", 4.0)
    assert value(tmp_path, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", total) == "4"


# --- Rates ---------------------------------------------------------------------------------------------


def rate(tmp_path: Path, name: str, seconds: int, *at: object, interval_s: float = 30.0) -> str | None:
    """The value after so many seconds; `at` makes the readings of each second."""
    page = page_for(tmp_path, name, interval_seconds=interval_s)
    snapshots = [
        snapshot(
            GPU_A,
            GpuIntegrals("0", A, 0.0, 500.0 + second),
            *(make(second) for make in at),  # type: ignore[operator]  # a lambda of the second
            monotonic_s=1000.0 + second,
        )
        for second in range(seconds + 1)
    ]
    return values(text(page, *snapshots)).get(name)


def test_nvlink_bandwidth_is_a_rate_of_both_directions_in_units_of_1000_kib(tmp_path: Path) -> None:
    name = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
    growing = lambda s: GpuNvlinkTraffic("0", A, 5e12 + s * 3e9, 7e12 + s * 1e9)  # noqa: E731
    assert rate(tmp_path, name, 40, growing) == str(int(4e9 / 1024 / 1000))


def test_the_bandwidth_of_link_0_is_of_link_0(tmp_path: Path) -> None:
    name = "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0"
    link = lambda s: GpuNvlinkLink("0", A, "0", 1.0, s * 1_024_000.0, s * 2_048_000.0)  # noqa: E731
    other = lambda s: GpuNvlinkLink("0", A, "1", 1.0, s * 9e9, s * 9e9)  # noqa: E731
    assert rate(tmp_path, name, 40, link, other) == "3"


def test_profiling_is_the_mean_of_the_last_interval(tmp_path: Path) -> None:
    """Busy until second 60, then idle: 30 seconds later nothing of it is left."""

    def gpm(second: int) -> GpuGpm:
        return GpuGpm("0", A, 0.0, 500.0 + second, tensor_active_seconds=0.8 * min(second, 60))

    for second, expected in ((20, None), (60, "0.800000"), (75, "0.400000"), (95, "0.000000")):
        found = rate(tmp_path, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", second, gpm)
        assert (found is None) == (expected is None)
        assert expected is None or (found is not None and abs(float(found) - float(expected)) < 0.05)


def test_no_ratio_is_above_one(tmp_path: Path) -> None:
    gpm = lambda s: GpuGpm("0", A, 0.0, 500.0 + s, sm_active_seconds=1.03 * s)  # noqa: E731
    assert rate(tmp_path, "DCGM_FI_PROF_SM_ACTIVE", 40, gpm) == "1.000000"


def test_pcie_is_what_gpm_measures_else_the_counter_of_the_driver(tmp_path: Path) -> None:
    name = "DCGM_FI_PROF_PCIE_TX_BYTES"
    driver = lambda s: GpuPcieTraffic("0", A, s * 1e9, s * 2e9)  # noqa: E731
    gpm = lambda s: GpuGpm("0", A, 0.0, 500.0 + s, pcie_transmit_bytes=s * 3e9)  # noqa: E731
    assert rate(tmp_path, name, 40, driver) == "2000000000"
    assert rate(tmp_path, name, 40, driver, gpm) == "3000000000"
    assert rate(tmp_path, "DCGM_FI_PROF_PCIE_RX_BYTES", 40, driver) == "1000000000"


def test_a_rate_goes_by_the_times_of_the_readings(tmp_path: Path) -> None:
    """A GPU that is read every two seconds: the counter has not moved since, and neither has its time."""
    gpm = lambda s: GpuGpm("0", A, 0.0, 500.0 + s // 2 * 2, sm_active_seconds=0.5 * (s // 2 * 2))  # noqa: E731
    for second in (40, 41, 42, 43):
        assert rate(tmp_path, "DCGM_FI_PROF_SM_ACTIVE", second, gpm) == "0.500000"


def test_a_counter_that_begins_again_gives_no_rate_until_an_interval_has_passed(tmp_path: Path) -> None:
    def traffic(second: int) -> GpuPcieTraffic:
        return GpuPcieTraffic("0", A, (second + 1000 if second < 50 else second - 50) * 1e6, None)

    name = "DCGM_FI_PROF_PCIE_RX_BYTES"
    assert rate(tmp_path, name, 49, traffic) == "1000000"
    assert rate(tmp_path, name, 60, traffic) is None
    assert rate(tmp_path, name, 84, traffic) == "1000000"


def test_the_interval_is_a_setting(tmp_path: Path) -> None:
    gpm = lambda s: GpuGpm("0", A, 0.0, 500.0 + s, sm_active_seconds=0.5 * s)  # noqa: E731
    assert rate(tmp_path, "DCGM_FI_PROF_SM_ACTIVE", 3, gpm, interval_s=2.0) == "0.500000"
    assert rate(tmp_path, "DCGM_FI_PROF_SM_ACTIVE", 3, gpm) is None


# --- Events --------------------------------------------------------------------------------------------


def xid(code: str, events: float, last: float) -> GpuXid:
    return GpuXid("0", A, code, "hardware", "critical", events, last)


def test_the_gauge_of_xids_keeps_the_last_code(tmp_path: Path) -> None:
    page = page_for(tmp_path, "DCGM_FI_DEV_XID_ERRORS")
    none = text(page, snapshot(GPU_A, GpuXids("0", A, 0.0)))
    assert values(none, err_code="0", err_msg="No Error") == {"DCGM_FI_DEV_XID_ERRORS": "0"}
    both = (xid("79", 1.0, 900.0), xid("31", 2.0, 800.0), xid("94", 0.0, 950.0))
    after = text(page, snapshot(GPU_A, GpuXids("0", A, 3.0), *both))
    assert values(after, err_code="79") == {"DCGM_FI_DEV_XID_ERRORS": "79"}
    assert 'err_msg="' in after


def test_without_a_watch_for_xids_there_is_no_gauge(tmp_path: Path) -> None:
    assert value(tmp_path, "DCGM_FI_DEV_XID_ERRORS", GpuUse("0", A, 0.5)) is None


def test_xids_are_counted_by_code_over_five_minutes(tmp_path: Path) -> None:
    page = page_for(tmp_path, "DCGM_EXP_XID_ERRORS_COUNT")

    def after(seconds: range) -> dict[str, str]:
        """One XID 31 in second 60, two of 79 in second 100."""
        found = ""
        for second in seconds:
            codes = [xid("31", 1.0, 1060.0)] if second >= 60 else []
            codes += [xid("79", 2.0, 1100.0)] if second >= 100 else []
            found = text(page, snapshot(GPU_A, GpuXids("0", A, 0.0), *codes, monotonic_s=1000.0 + second))
        return {
            code: values(found, window_size_in_ms="300000", xid=code).get("DCGM_EXP_XID_ERRORS_COUNT", "")
            for code in ("31", "79")
        } | {"none": values(found).get("DCGM_EXP_XID_ERRORS_COUNT", "") if "xid=" not in found else ""}

    assert after(range(60)) == {"31": "", "79": "", "none": "0"}
    assert after(range(60, 110)) == {"31": "1", "79": "2", "none": ""}
    assert after(range(110, 355)) == {"31": "1", "79": "2", "none": ""}
    assert after(range(355, 395)) == {"31": "", "79": "2", "none": ""}  # to within an interval
    assert after(range(395, 440)) == {"31": "", "79": "", "none": "0"}


def test_clock_events_are_counted_one_look_an_interval(tmp_path: Path) -> None:
    page = page_for(tmp_path, "DCGM_EXP_CLOCK_EVENTS_COUNT")
    found = ""
    for second in range(600):
        capped = 1.0 if second >= 480 else 0.0
        throttle = (
            GpuThrottle("0", A, "sw_power_cap", 0.0, 0.0, capped),
            GpuThrottle("0", A, "hw_thermal", 0.0, 0.0, 0.0),
            GpuThrottle("0", A, "board_limit", 0.0, 0.0, None),
        )
        found = text(page, snapshot(GPU_A, *throttle, monotonic_s=1000.0 + second))
    name = "DCGM_EXP_CLOCK_EVENTS_COUNT"
    assert values(found, clock_event="power_cap", window_size_in_ms="300000") == {name: "4"}
    assert values(found, clock_event="hw_thermal") == {name: "0"}
    assert found.count("clock_event=") == 2


# --- Labels --------------------------------------------------------------------------------------------


def test_labels_are_those_of_dcgm_exporter_in_its_order(tmp_path: Path) -> None:
    page = page_for(
        tmp_path,
        "DCGM_FI_DEV_GPU_TEMP",
        "DCGM_FI_DRIVER_VERSION, label, Driver.",
        "DCGM_FI_DEV_SERIAL, label, Serial.",
    )
    shown = text(page, snapshot(GPU_A, DRIVER, GpuTemperature("0", A, "core", 61.0)))
    assert shown == (
        "# HELP DCGM_FI_DEV_GPU_TEMP Text.\n"
        "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
        f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{A}",pci_bus_id="00000000:01:00.0",device="nvidia0",'
        'modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-17",DCGM_FI_DRIVER_VERSION="580.65.06",'
        'DCGM_FI_DEV_SERIAL="16"} 61\n'
    )


def test_every_label_counter_has_its_source(tmp_path: Path) -> None:
    page = page_for(tmp_path, "DCGM_FI_DEV_GPU_TEMP", *(f"{name}, label, x" for name in LABELS))
    board = GpuBoard("0", A, "NVIDIA", "G520.0200.00.05", "2.1", "7.16", "")
    shown = text(page, snapshot(GPU_A, DRIVER, board, GpuTemperature("0", A, "core", 61.0)))
    for name, expected in {
        "DCGM_FI_DRIVER_VERSION": "580.65.06",
        "DCGM_FI_NVML_VERSION": "13.580.65.06",
        "DCGM_FI_DEV_BRAND": "NVIDIA",
        "DCGM_FI_DEV_SERIAL": "16",
        "DCGM_FI_DEV_OEM_INFOROM_VER": "2.1",
        "DCGM_FI_DEV_ECC_INFOROM_VER": "7.16",
        "DCGM_FI_DEV_INFOROM_IMAGE_VER": "G520.0200.00.05",
        "DCGM_FI_DEV_VBIOS_VERSION": "96",
    }.items():
        assert f'{name}="{expected}"' in shown
    assert "DCGM_FI_DEV_POWER_INFOROM_VER" not in shown  # the board does not state it


def test_the_device_is_the_file_below_dev(tmp_path: Path) -> None:
    """Slurm and containers know a GPU by its minor number, which need not be the driver's index."""
    page = page_for(tmp_path, "DCGM_FI_DEV_GPU_TEMP")
    shown = text(page, snapshot(info("0", A, "5"), GpuTemperature("0", A, "core", 61.0)))
    assert values(shown, gpu="0", device="nvidia5")


def test_the_label_of_newer_versions_on_request(tmp_path: Path) -> None:
    page = page_for(tmp_path, "DCGM_FI_DEV_GPU_TEMP", hostname_lower_case=True)
    shown = text(page, snapshot(GPU_A, GpuTemperature("0", A, "core", 61.0)))
    assert ',hostname="gpu-node-17"' in shown
    assert "Hostname" not in shown


def test_a_mig_instance_is_its_gpu_with_profile_and_number(tmp_path: Path) -> None:
    page = page_for(tmp_path, "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_SERIAL, label, Serial.")
    used = GpuMemory("0:2", MIG_1, used_bytes=3 * 2.0**20)
    shown = text(page, snapshot(GPU_A, instance("0:2", MIG_1, A, "1g.10gb", "9"), used))
    (line,) = shown.splitlines()[2:]
    assert line == (
        f'DCGM_FI_DEV_FB_USED{{gpu="0",UUID="{A}",pci_bus_id="00000000:01:00.0",device="nvidia0",'
        'modelName="NVIDIA H100 80GB HBM3",GPU_I_PROFILE="1g.10gb",GPU_I_ID="9",Hostname="gpu-node-17",'
        'DCGM_FI_DEV_SERIAL="16"} 3'
    )


def test_a_sum_over_a_node_has_no_byte_of_a_split_board_twice(tmp_path: Path) -> None:
    page = page_for(tmp_path, "DCGM_FI_DEV_FB_USED")
    infos = [instance(f"0:{n}", f"{MIG_1}{n}", A, "1g.10gb", str(n + 7)) for n in range(2)]
    used = [GpuMemory(info.gpu, info.uuid, used_bytes=3 * 2.0**20) for info in infos]
    boards = (GpuMemory("0", A, used_bytes=6 * 2.0**20), GpuMemory("1", B, used_bytes=2 * 2.0**20))
    shown = text(page, snapshot(GPU_A, GPU_B, *infos, *boards, *used))
    assert sum(int(line.rpartition(" ")[2]) for line in shown.splitlines()[2:]) == 3 + 3 + 2


def test_compute_instances_of_one_gpu_instance_are_one(tmp_path: Path) -> None:
    page = page_for(tmp_path, "DCGM_FI_DEV_FB_USED")
    infos = [instance(f"0:{n}", f"{MIG_1}{n}", A, "1c.3g.40gb", "2") for n in range(2)]
    used = [GpuMemory(info.gpu, info.uuid, used_bytes=5 * 2.0**20) for info in infos]
    shown = text(page, snapshot(GPU_A, *infos, *used))
    assert values(shown, GPU_I_PROFILE="3g.40gb", GPU_I_ID="2") == {"DCGM_FI_DEV_FB_USED": "5"}


def test_g15_the_watts_of_a_board_stand_there_once(tmp_path: Path) -> None:
    page = page_for(tmp_path, "DCGM_FI_DEV_POWER_USAGE")
    infos = [instance(f"0:{n}", f"{MIG_1}{n}", A, "1g.10gb", str(n + 7)) for n in range(3)]
    shown = text(page, snapshot(GPU_A, *infos, GpuPower("0", A, "gpu", "average", 420.0)))
    assert values(shown) == {"DCGM_FI_DEV_POWER_USAGE": "420.000000"}
    assert "GPU_I_" not in shown


def test_g05_a_lost_gpu_takes_nothing_with_it(tmp_path: Path) -> None:
    page = page_for(tmp_path, "DCGM_FI_DEV_GPU_TEMP")
    hot = GpuTemperature("1", B, "core", 61.0)
    shown = text(page, snapshot(GPU_B, hot))
    assert values(shown, UUID=B) == {"DCGM_FI_DEV_GPU_TEMP": "61"}
    assert A not in shown


def test_a_series_does_not_come_twice(tmp_path: Path) -> None:
    hot = GpuTemperature("0", A, "core", 61.0)
    shown = text(page_for(tmp_path, "DCGM_FI_DEV_GPU_TEMP"), snapshot(GPU_A, hot, hot))
    assert shown.count("} 61") == 1


def test_types_are_those_of_the_file(tmp_path: Path) -> None:
    """As dcgm-exporter does, which does not ask what a field is."""
    page = page_for(tmp_path, 'DCGM_FI_DEV_GPU_TEMP, counter, "Heat, in C"')
    shown = text(page, snapshot(GPU_A, GpuTemperature("0", A, "core", 61.0)))
    assert shown.startswith(
        "# HELP DCGM_FI_DEV_GPU_TEMP Heat, in C\n# TYPE DCGM_FI_DEV_GPU_TEMP counter\nDCGM_FI_DEV_GPU_TEMP{"
    )


def test_a_name_of_1_x_has_the_value_of_its_field(tmp_path: Path) -> None:
    page = page_for(tmp_path, "dcgm_gpu_temp", "DCGM_FI_DEV_GPU_TEMP")
    shown = text(page, snapshot(GPU_A, GpuTemperature("0", A, "core", 61.0)))
    assert values(shown) == {"dcgm_gpu_temp": "61", "DCGM_FI_DEV_GPU_TEMP": "61"}


def test_every_name_of_1_x_that_can_be_served_is_known() -> None:
    assert len([name for name in KNOWN.values if name.startswith("dcgm_")]) == 39
