"""One GPU as the driver shows it: what each card offers, what failures cost, what is read when."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest

from clusterwatt.catalog import Level, faults
from clusterwatt.collectors.gpu import METRICS
from clusterwatt.driver.frames import DeviceFrame, read_message, write_message
from clusterwatt.nvml.errors import DeviceTrouble, GenerationOver, Meaning, ruling
from clusterwatt.readings.gpu import GpuInfo, GpuIntegrals, GpuMemory, GpuPowerLimit, GpuUse
from clusterwatt.simulate.cards import cards
from clusterwatt.simulate.gpu import simulated_uuid
from clusterwatt.simulate.work import Flat
from tests.collectors.cards import (
    BANKS,
    CORE_LIMITS,
    ECC,
    ENGINES,
    EVERY_CARD,
    MEMORY_LIMIT,
    MEMORY_TEMPERATURE,
    MIG,
    ROWS,
    SRAM,
    Series,
    everything,
    nvlink,
    series,
)
from tests.collectors.gpus import Everywhere, Watch, only, page
from tests.nvml.drivers import CODES, FUTURE_CODES, Bench

FIELDS = "nvmlDeviceGetFieldValues"

# --- what is there on which card -----------------------------------------------------------------------


@pytest.mark.parametrize("card", sorted(cards()))
def test_each_card_has_what_it_offers_and_nothing_else(card: str) -> None:
    watch = Watch(Bench(card).open())
    watch.read()
    assert set(page(watch.tick(15))) == everything(card)
    assert watch.failures == []


# Families that a driver branch brought: older ones do not have them.
BROUGHT_BY = {
    510: {"gpu_memory_reserved_bytes"},
    525: {
        "gpu_pcie_errors_total",
        "gpu_nvlink_link_errors_total",
        "gpu_jpeg_utilization_ratio",
        "gpu_jpeg_busy_seconds_total",
        "gpu_ofa_utilization_ratio",
        "gpu_ofa_busy_seconds_total",
    },
    535: {"gpu_sram_threshold_exceeded"},
    550: {"gpu_pcie_receive_bytes_total", "gpu_pcie_transmit_bytes_total"},
    570: {"gpu_recovery_action"},
    575: {"gpu_repair_pending"},
}


@pytest.mark.parametrize(
    "driver", ["470.57.02", "515.105.01", "525.125.06", "535.54.03", "550.54.15", "570.148.08", "580.105.08"]
)
@pytest.mark.parametrize("card", ["a100", "t4"])
def test_an_older_driver_takes_nothing_away_that_it_can_do(card: str, driver: str) -> None:
    watch = Watch(Bench(card, driver_version=driver).open())
    watch.read()
    missing = {name for name, _ in everything(card) - set(page(watch.tick(15)))}
    newer = (families for branch, families in BROUGHT_BY.items() if branch > int(driver[:3]))
    assert missing == set().union(*newer) & {name for name, _ in everything(card)}
    assert watch.failures == []


def test_units_are_base_units() -> None:
    bench = Bench("a100", work=Everywhere(Flat(0.0))).open()
    bench.faults.change(FIELDS, 651_000, field=186)  # mW
    bench.faults.change(FIELDS, 48, field=82)
    bench.faults.change(FIELDS, 3_000_262_144, field=83)  # mJ
    bench.faults.change("nvmlDeviceGetUtilizationRates", {"gpu": 37, "memory": 12})
    bench.faults.change("nvmlDeviceGetTemperatureV", {"temperature": 52})
    bench.faults.change("nvmlDeviceGetClockInfo", 1_980)  # MHz
    bench.faults.change("nvmlDeviceGetEnforcedPowerLimit", 350_000)
    watch = Watch(bench)
    watch.read()
    readings = watch.tick()
    shown = page(readings)
    assert shown["gpu_power_watts", ("gpu", "instant")] == 651.0
    assert shown["gpu_temperature_celsius", ("memory",)] == 48.0
    assert shown["gpu_utilization_ratio", ()] == 0.37
    assert shown["gpu_memory_utilization_ratio", ()] == 0.12
    assert shown["gpu_temperature_celsius", ("core",)] == 52.0
    assert shown["gpu_temperature_margin_celsius", ()] == 89.0 - 52.0  # an A100 slows down at 89 C
    assert shown["gpu_clock_hertz", ("sm",)] == 1.98e9
    assert shown["gpu_power_limit_watts", ("enforced",)] == 350.0
    assert shown["gpu_power_limit_watts", ("min",)] == 100.0
    assert shown["gpu_clock_max_hertz", ("memory",)] == 1.215e9
    assert shown["gpu_memory_total_bytes", ()] == 40960 * 2**20
    assert only(GpuIntegrals, readings).energy_counter_joules == 3_000_262.144


def test_identity_is_what_nvidia_smi_shows() -> None:
    bench = Bench("h100", serials=["1655123456789", None], minors=[4, 0]).open()
    info = only(GpuInfo, Watch(bench).read())
    assert info.gpu == "0"
    assert info.uuid == simulated_uuid(1, 0)
    assert info.name == "NVIDIA H100 80GB HBM3"
    assert info.architecture == "hopper"
    assert info.minor == "4"
    assert info.serial == "1655123456789"
    assert info.vbios == "96.00.A5.00.01"
    assert (info.parent_uuid, info.mig_profile, info.simulated) == ("", "", "true")
    domain, bus, device = info.pci_bus_id.split(":")
    assert (len(domain), len(bus), len(device)) == (8, 2, 4)
    assert only(GpuInfo, Watch(bench, 1).read()).serial == ""


@pytest.mark.parametrize(("text", "label"), [("N/A", ""), ("[N/A]", ""), ("0", "0")])
def test_a_serial_number_that_is_not_there_is_empty(text: str, label: str) -> None:
    bench = Bench(serials=[text, text]).open()
    assert only(GpuInfo, Watch(bench).read()).serial == label


def test_g33_two_cards_alike_are_two_gpus() -> None:
    bench = Bench("l40s", names={0: b"NVIDIA L4", 1: b"NVIDIA L4"}, serials=["N/A", "N/A"]).open()
    bench.faults.change("nvmlDeviceGetUtilizationRates", {"gpu": 2}, gpu=0)
    bench.faults.change("nvmlDeviceGetUtilizationRates", {"gpu": 49}, gpu=1)
    found = [Watch(bench, index).read() for index in (0, 1)]
    assert [only(GpuInfo, readings).name for readings in found] == ["NVIDIA L4", "NVIDIA L4"]
    uses = [only(GpuUse, readings) for readings in found]
    assert [use.utilization_ratio for use in uses] == [0.02, 0.49]
    assert uses[0].uuid != uses[1].uuid


def test_g30_a_name_that_cannot_be_decoded_does_not_cost_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def strict(handle: object) -> str:
        return b"\xf8NVIDIA".decode()

    readable = Bench(names={0: bytes.fromhex("f8 95 a0 81 e7 4e 56 49 44 49 41")}).open()
    assert only(GpuInfo, Watch(readable).read()).name == "\ufffd" * 5 + "NVIDIA"
    monkeypatch.setattr("pynvml.nvmlDeviceGetName", strict)
    watch = Watch(Bench().open())
    info = only(GpuInfo, watch.read())
    assert (info.name, info.uuid) == ("unknown", simulated_uuid(1, 0))
    assert set(page(watch.tick(15))) == everything("h100")


# --- what failures cost --------------------------------------------------------------------------------

NOTHING: set[Series] = set()
USE = series("gpu_utilization_ratio") | series("gpu_memory_utilization_ratio")
MEMORY_V1 = (
    series("gpu_memory_used_bytes") | series("gpu_memory_total_bytes") | series("gpu_memory_free_bytes")
)
MEMORY = MEMORY_V1 | series("gpu_memory_reserved_bytes")
CORE_TEMPERATURE = series("gpu_temperature_celsius", ["core"]) | series("gpu_temperature_margin_celsius")
THRESHOLDS = CORE_LIMITS | MEMORY_LIMIT | series("gpu_temperature_margin_celsius")
CLOCKS = series("gpu_clock_hertz", ["sm", "memory", "graphics", "video"])
MAX_CLOCKS = series("gpu_clock_max_hertz", ["sm", "memory", "graphics", "video"])
STATE = series("gpu_performance_state")
INSTANT = series("gpu_power_watts", ["gpu"], ["instant"])
ACTIONS = {row for row in EVERY_CARD if row[0] == "gpu_recovery_action"}
ERRORS_BY_PLACE = {row for row in ECC if row[0] == "gpu_ecc_errors_total"}
BAR1 = series("gpu_bar1_used_bytes") | series("gpu_bar1_total_bytes")

# Calls of the driver, and the series of an A100 that stand on each. A field is "call/id".
COSTS: dict[str, set[Series]] = {
    "nvmlDeviceGetUtilizationRates": USE,
    "nvmlDeviceGetSamples": NOTHING,
    "nvmlDeviceGetMemoryInfo_v2": MEMORY,
    "nvmlDeviceGetEnforcedPowerLimit": series("gpu_power_limit_watts", ["enforced"]),
    "nvmlDeviceGetPowerManagementDefaultLimit": series("gpu_power_limit_watts", ["default"]),
    "nvmlDeviceGetPowerManagementLimitConstraints": series("gpu_power_limit_watts", ["min", "max"]),
    "nvmlDeviceGetTemperatureV": CORE_TEMPERATURE,
    "nvmlDeviceGetTemperatureThreshold": THRESHOLDS,
    "nvmlDeviceGetClockInfo": CLOCKS,
    "nvmlDeviceGetMaxClockInfo": MAX_CLOCKS,
    "nvmlDeviceGetPerformanceState": STATE,
    "nvmlDeviceGetName": NOTHING,
    "nvmlDeviceGetSerial": NOTHING,
    "nvmlDeviceGetVbiosVersion": NOTHING,
    "nvmlDeviceGetMinorNumber": NOTHING,
    "nvmlDeviceGetPciInfo_v3": NOTHING,
    "nvmlDeviceGetArchitecture": NOTHING,
    "nvmlDeviceGetSupportedClocksEventReasons": NOTHING,
    "nvmlDeviceGetMemoryErrorCounter": ERRORS_BY_PLACE,
    "nvmlDeviceGetSramEccErrorStatus": SRAM,
    "nvmlDeviceGetRemappedRows": ROWS,
    "nvmlDeviceGetVirtualizationMode": NOTHING,
    "nvmlDeviceGetRowRemapperHistogram": BANKS,
    "nvmlDeviceGetPersistenceMode": series("gpu_mode_enabled", ["persistence"]),
    "nvmlDeviceGetMigMode": MIG,
    "nvmlDeviceGetEccMode": series("gpu_mode_enabled", ["ecc"]),
    "nvmlDeviceGetCurrPcieLinkGeneration": series("gpu_pcie_link_generation"),
    "nvmlDeviceGetCurrPcieLinkWidth": series("gpu_pcie_link_width"),
    "nvmlDeviceGetMaxPcieLinkGeneration": series("gpu_pcie_link_generation_max"),
    "nvmlDeviceGetMaxPcieLinkWidth": series("gpu_pcie_link_width_max"),
    "nvmlDeviceGetBAR1MemoryInfo": BAR1,
    "nvmlDeviceGetEncoderUtilization": ENGINES["encoder"],
    "nvmlDeviceGetDecoderUtilization": ENGINES["decoder"],
    "nvmlDeviceGetJpgUtilization": ENGINES["jpeg"],
    "nvmlDeviceGetOfaUtilization": ENGINES["ofa"],
    "nvmlDeviceGetComputeRunningProcesses_v3": series("gpu_processes", ["compute"]),
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": series("gpu_processes", ["mps"]),
    f"{FIELDS}/74": series("gpu_throttle_seconds_total", ["sw_power_cap"]),
    f"{FIELDS}/78": series("gpu_throttle_seconds_total", ["low_utilization"]),
    f"{FIELDS}/82": MEMORY_TEMPERATURE,
    f"{FIELDS}/83": NOTHING,
    f"{FIELDS}/94": series("gpu_pcie_replays_total"),
    f"{FIELDS}/139": series("gpu_nvlink_receive_bytes_total")
    | series("gpu_nvlink_link_receive_bytes_total", [str(link) for link in range(12)]),
    f"{FIELDS}/173": series("gpu_pcie_errors_total", ["correctable"]),
    f"{FIELDS}/186": INSTANT,
    f"{FIELDS}/197": series("gpu_pcie_transmit_bytes_total"),
    f"{FIELDS}/230": ACTIONS,
    f"{FIELDS}/91": nvlink(12, "replay", "recovery", "crc")
    - series("gpu_nvlink_receive_bytes_total")
    - series("gpu_nvlink_transmit_bytes_total"),
}
# Where a quantity that is not offered this way is asked for in another: what is there all the same.
FALLBACKS: dict[str, set[Series]] = {
    "nvmlDeviceGetMemoryInfo_v2": MEMORY_V1,
    "nvmlDeviceGetTemperatureV": CORE_TEMPERATURE,
    "nvmlDeviceGetPerformanceState": STATE,
    "nvmlDeviceGetComputeRunningProcesses_v3": series("gpu_processes", ["compute"]),
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": series("gpu_processes", ["mps"]),
    "nvmlDeviceGetMemoryErrorCounter": series(
        "gpu_ecc_errors_total", ["corrected", "uncorrected"], ["volatile", "aggregate"], ["all"]
    ),
    f"{FIELDS}/186": INSTANT,
    f"{FIELDS}/74": series("gpu_throttle_seconds_total", ["sw_power_cap"]),
    f"{FIELDS}/94": series("gpu_pcie_replays_total"),
}


# What each code means is held in tests/nvml; here one of each kind stands for the others.
ONE_OF_EACH = ("NOT_SUPPORTED", "NOT_FOUND", "UNKNOWN", "GPU_IS_LOST", "LIB_RM_VERSION_MISMATCH")


@pytest.mark.parametrize("call", COSTS)
def test_a_call_that_fails_costs_its_own_series_only(call: str) -> None:
    assert {ruling(CODES[name]).meaning for name in ONE_OF_EACH} == set(Meaning)
    for name in ONE_OF_EACH:
        _costs_its_own_series_only(call, CODES[name])


@pytest.mark.full
@pytest.mark.parametrize("call", COSTS)
def test_every_code_of_every_call_costs_its_own_series_only(call: str) -> None:
    for code in (CODES | FUTURE_CODES).values():
        _costs_its_own_series_only(call, code)


def _costs_its_own_series_only(call: str, code: int) -> None:
    function, _, field = call.partition("/")
    bench = Bench("a100", 1, work=Everywhere(Flat(0.5))).open()
    bench.faults.fail(function, code, **({"field": int(field)} if field else {}))
    watch = Watch(bench, every_seconds=12.0)  # so that two readings see every part
    what = ruling(code)
    if what.meaning in (Meaning.DEVICE, Meaning.GENERATION):
        with pytest.raises(DeviceTrouble if what.meaning is Meaning.DEVICE else GenerationOver) as caught:
            watch.read_twice()
        assert caught.value.reason == what.reason, what
        return
    watch.read()
    instead = FALLBACKS.get(call, set()) if what.meaning is Meaning.NOT_OFFERED else set()
    assert set(watch.page()) == everything("a100") - COSTS[call] | instead, what
    counted = {what.reason} if what.meaning is Meaning.FAILED else set()
    assert {failure.reason for failure in watch.failures} == counted, what


def test_g01_a_card_without_fan_ecc_and_power_sensor_shows_the_rest() -> None:
    bench = Bench("t4").open()
    for call in ("nvmlDeviceGetFanSpeed*", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetPowerUsage"):
        bench.faults.fail(call, 3)
    bench.faults.fail("nvmlDeviceGetEnforcedPowerLimit", 3)
    for field in (185, 186):
        bench.faults.fail(FIELDS, 3, field=field)
    bench.faults.change("nvmlDeviceGetUtilizationRates", {"gpu": 37, "memory": 12})
    bench.faults.change("nvmlDeviceGetTemperatureV", {"temperature": 52})
    watch = Watch(bench)
    watch.read()
    shown = page(watch.tick(100))
    assert shown["gpu_utilization_ratio", ()] == 0.37
    assert shown["gpu_memory_utilization_ratio", ()] == 0.12
    assert shown["gpu_temperature_celsius", ("core",)] == 52.0
    assert not any(name == "gpu_power_watts" for name, _ in shown)
    assert ("gpu_power_limit_watts", ("enforced",)) not in shown
    assert watch.failures == []
    assert bench.library.calls["nvmlDeviceGetPowerUsage"] == 1
    assert bench.library.calls["nvmlDeviceGetEnforcedPowerLimit"] == 1


def test_g05_a_lost_gpu_says_so_and_is_complete_again_when_it_returns() -> None:
    bench = Bench(gpus=8).open()
    watches = [Watch(bench, index) for index in range(8)]
    for watch in watches:
        watch.read()
    before = set(watches[3].page())
    loss = bench.faults.lose(3)
    for watch in watches:
        if watch.device.gpu == "3":
            with pytest.raises(DeviceTrouble) as caught:
                watch.read()
            assert caught.value.reason == "lost"
        else:
            assert set(watch.page()) >= before
    bench.faults.clear(loss)
    assert set(watches[3].page()) >= before


@pytest.mark.parametrize(
    ("code", "reason"),
    [(999, "unknown"), (4, "permission"), (17, "permission"), (27, "unknown"), (3, "unknown")],
)
def test_a_gpu_that_refuses_everything_is_in_trouble_whatever_code_it_uses(code: int, reason: str) -> None:
    bench = Bench().open()
    watch = Watch(bench)
    watch.read()
    bench.faults.fail("nvmlDeviceGet*", code, gpu=0)
    for _ in range(3):
        with pytest.raises(DeviceTrouble) as caught:
            watch.tick()
        assert caught.value.reason == reason


# --- marks that are no values --------------------------------------------------------------------------

ALL_ONES, ALL_ONES_64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


@pytest.mark.parametrize(
    ("call", "field", "mark", "gone"),
    [
        (FIELDS, 186, ALL_ONES, INSTANT),
        (FIELDS, 82, 255, MEMORY_TEMPERATURE),
        ("nvmlDeviceGetTemperatureV", None, {"temperature": 255}, CORE_TEMPERATURE),
        ("nvmlDeviceGetEnforcedPowerLimit", None, ALL_ONES, {("gpu_power_limit_watts", ("enforced",))}),
        ("nvmlDeviceGetTemperatureThreshold", None, 0, THRESHOLDS),
        ("nvmlDeviceGetTemperatureThreshold", None, ALL_ONES, THRESHOLDS),
        ("nvmlDeviceGetMaxClockInfo", None, ALL_ONES, MAX_CLOCKS),
        ("nvmlDeviceGetPerformanceState", None, 32, STATE),
        ("nvmlDeviceGetUtilizationRates", None, {"gpu": ALL_ONES}, {("gpu_utilization_ratio", ())}),
        ("nvmlDeviceGetMemoryInfo_v2", None, {"used": ALL_ONES_64}, {("gpu_memory_used_bytes", ())}),
    ],
)
def test_g28_a_mark_for_not_available_is_no_series(
    call: str, field: int | None, mark: Any, gone: set[Series]
) -> None:
    bench = Bench("a100").open()
    bench.faults.change(call, mark, **({} if field is None else {"field": field}))
    watch = Watch(bench, every_seconds=12.0)
    watch.read()
    assert set(watch.page()) & everything("a100") == everything("a100") - gone


def test_zero_is_a_measurement() -> None:
    bench = Bench("a100").open()
    bench.faults.change(FIELDS, 0, field=186)
    bench.faults.change("nvmlDeviceGetUtilizationRates", {"gpu": 0, "memory": 0})
    bench.faults.change("nvmlDeviceGetClockInfo", 0)
    watch = Watch(bench)
    watch.read()
    shown = watch.page()
    assert shown["gpu_power_watts", ("gpu", "instant")] == 0.0
    assert shown["gpu_utilization_ratio", ()] == 0.0
    assert shown["gpu_clock_hertz", ("sm",)] == 0.0


# --- memory ----------------------------------------------------------------------------------------------


def test_g12_the_drivers_reserve_is_not_used_memory() -> None:
    bench = Bench().open()
    bench.faults.change(
        "nvmlDeviceGetMemoryInfo_v2",
        {"total": 25_769_803_776, "reserved": 356_515_840, "used": 0, "free": 25_413_287_936},
    )
    memory = only(GpuMemory, Watch(bench).read())
    assert memory.used_bytes == 0.0
    assert memory.reserved_bytes == 356_515_840.0
    assert memory.total_bytes == 25_769_803_776.0
    assert memory.free_bytes == 25_413_287_936.0


@pytest.mark.parametrize("code", [13, 3, 25])
def test_g12_without_the_second_version_the_first_one_is_read_and_the_reserve_is_absent(code: int) -> None:
    bench = Bench().open()
    bench.faults.fail("nvmlDeviceGetMemoryInfo_v2", code)
    bench.faults.change(
        "nvmlDeviceGetMemoryInfo", {"total": 25_769_803_776, "used": 356_515_840, "free": 25_413_287_936}
    )
    bench.library.gpu(0).listed = []
    watch = Watch(bench)
    watch.read()
    memory = only(GpuMemory, watch.tick())
    assert memory.used_bytes == 356_515_840.0
    assert memory.reserved_bytes is None
    assert watch.failures == []
    assert bench.library.calls["nvmlDeviceGetMemoryInfo_v2"] == 1


# --- cadence ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("card", sorted(cards()))
def test_a_gpu_costs_twelve_driver_calls_a_second_at_most(card: str) -> None:
    bench = Bench(card).open()
    watch = Watch(bench)
    watch.read()
    before = sum(bench.library.calls.values())
    watch.tick(300)
    assert (sum(bench.library.calls.values()) - before) / 300 <= 12.0


def test_what_hardly_changes_is_read_at_its_own_cadence_and_shown_at_every_tick() -> None:
    bench = Bench().open()
    watch = Watch(bench)
    watch.read()
    for _ in range(90):
        assert only(GpuInfo, watch.tick()).name == "NVIDIA H100 80GB HBM3"
    assert bench.library.calls["nvmlDeviceGetSerial"] == 2  # at 0 and 54 seconds
    assert bench.library.calls["nvmlDeviceGetEnforcedPowerLimit"] == 4  # at 0, 30, 60 and 90
    assert bench.library.calls["nvmlDeviceGetPerformanceState"] == 10  # each ten seconds
    assert bench.library.calls["nvmlDeviceGetTemperatureV"] == 19  # each five


def test_a_limit_that_cannot_be_read_any_more_stays_for_three_intervals() -> None:
    bench = Bench().open()
    watch = Watch(bench)
    watch.read()
    bench.faults.fail("nvmlDeviceGetEnforcedPowerLimit", 999)
    bench.faults.fail("nvmlDeviceGetPowerManagement*", 999)
    assert any(isinstance(reading, GpuPowerLimit) for reading in watch.tick(90))
    assert not any(isinstance(reading, GpuPowerLimit) for reading in watch.tick())
    assert {failure.reason for failure in watch.failures} == {"unknown"}


def test_a_changed_limit_is_seen_at_the_next_slow_reading() -> None:
    bench = Bench().open()
    watch = Watch(bench)
    watch.read()
    bench.library.gpu(0).power_limit_w = 500.0
    assert page(watch.tick(29))["gpu_power_limit_watts", ("enforced",)] == 700.0
    assert page(watch.tick())["gpu_power_limit_watts", ("enforced",)] == 500.0


def test_everything_carries_the_new_index_at_once_when_the_order_changes() -> None:
    bench = Bench(gpus=3).open()
    watch = Watch(bench, 2)
    watch.read()
    bench.faults.vanished = {0}
    bench.session.enumerate()
    assert {reading.gpu for reading in watch.tick()} == {"1"}


# --- declarations ----------------------------------------------------------------------------------------


def test_names_follow_the_rules() -> None:
    assert list(faults(METRICS)) == []


def test_levels_are_those_of_the_contract() -> None:
    core, standard, full = Level
    levels = {metric.name: metric.level for metric in METRICS}
    for name in ("info", "busy_seconds_total", "memory_used_bytes", "memory_total_bytes", "up", "down_info"):
        assert levels[f"gpu_{name}"] is core
    for name in ("energy_joules_total", "temperature_celsius", "temperature_margin_celsius"):
        assert levels[f"gpu_{name}"] is core
    for name in ("driver_up", "driver_down_info", "driver_info", "gpus_visible", "gpus_expected"):
        assert levels[name] is core
    for name in ("utilization_ratio", "memory_free_bytes", "memory_reserved_bytes", "performance_state"):
        assert levels[f"gpu_{name}"] is standard
    assert levels["gpu_temperature_limit_celsius"] is standard
    for name in ("memory_utilization_ratio", "memory_busy_seconds_total"):
        assert levels[f"gpu_{name}"] is full


def test_levels_by_label_are_those_of_the_contract() -> None:
    core, standard, full = Level
    expected = {
        ("gpu_power_watts", ("gpu", "instant")): standard,
        ("gpu_power_watts", ("memory", "average")): full,
        ("gpu_power_limit_watts", ("enforced",)): core,
        ("gpu_power_limit_watts", ("max",)): full,
        ("gpu_clock_hertz", ("sm",)): core,
        ("gpu_clock_hertz", ("memory",)): standard,
        ("gpu_clock_hertz", ("video",)): full,
        ("gpu_clock_max_hertz", ("sm",)): standard,
        ("gpu_clock_max_hertz", ("memory",)): standard,
        ("gpu_clock_max_hertz", ("graphics",)): full,
    }
    readings = Watch(Bench().open()).read()
    found = {
        (metric.name, labels): metric.level_of(reading)
        for metric in METRICS
        for reading in readings
        if type(reading) is metric.reading
        for labels in [tuple(getattr(reading, label) for label in metric.labels[2:])]
        if (metric.name, labels) in expected
    }
    assert found == expected


@pytest.mark.parametrize("card", sorted(cards()))
def test_readings_cross_the_pipe_unchanged(card: str) -> None:
    groups, _ = Watch(Bench(card).open()).reader.read()
    frame = DeviceFrame("0", "GPU-1", "", 1.0, None, groups, ())
    pipe = io.BytesIO()
    write_message(pipe, frame)
    pipe.seek(0)
    message = read_message(pipe)
    assert message is not None
    assert msgspec.msgpack.decode(message, type=DeviceFrame) == frame
