"""The simulated cards say what nvidia-smi said of real ones, and are silent where those were."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import byref
from typing import Any

import pynvml
import pytest

from tests.simulate.captures import FOLDER, Capture, read
from tests.simulate.conftest import Driver, code, field

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="this machine has no captures")

CAPTURES = {
    "a100": "xml-hardware/qx-a100.xml",
    "b200": "xml-hardware/qx-b200.xml",
    "gb200": "xml-hardware/qx-gb200.xml",
    "h100": "captures/nvidia-h100-80gb-hbm3/idle.q.txt",
    "h100 of r580": "xml-hardware/qx-h100.xml",
    "h200": "captures/nvidia-h200/idle.q.txt",
    "l40s": "xml-hardware/qx-l40s.xml",
    "l40s under load": "captures/nvidia-l40s/load.q.txt",
    "rtx4080": "captures/nvidia-geforce-rtx-4080-super/idle.q.txt",
    "t4": "xml-hardware/qx-t4.xml",
}

Ask = Callable[[Any], Any]


def fields(number: int, scope: int = 0, member: str = "uiVal", scale: float = 1.0) -> Ask:
    def ask(handle: Any) -> float:
        value = field(handle, number, scope)
        if value.nvmlReturn:
            raise pynvml.NVMLError(value.nvmlReturn)
        return float(getattr(value.value, member)) / scale

    return ask


def threshold(kind: int) -> Ask:
    return lambda handle: pynvml.nvmlDeviceGetTemperatureThreshold(handle, kind)


def fabric(handle: Any) -> Any:
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, byref(info))
    return info


def sram(handle: Any) -> Any:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, byref(status))
    return status


def mib(count: int) -> int:
    return count // 1024**2


V2 = pynvml.nvmlMemory_v2

# What must be the same: path in the capture, how to ask.
SAME: Mapping[str, Ask] = {
    "fb_memory_usage/total": lambda h: mib(pynvml.nvmlDeviceGetMemoryInfo(h, V2).total),
    "bar1_memory_usage/total": lambda h: mib(pynvml.nvmlDeviceGetBAR1MemoryInfo(h).bar1Total),
    "gpu_power_readings/default_power_limit": lambda h: (
        pynvml.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1000
    ),
    "gpu_power_readings/current_power_limit": fields(190, scale=1000),
    "gpu_power_readings/requested_power_limit": fields(192, scale=1000),
    "gpu_power_readings/min_power_limit": fields(187, scale=1000),
    "gpu_power_readings/max_power_limit": fields(188, scale=1000),
    "module_power_readings/default_power_limit": fields(189, scope=1, scale=1000),
    "temperature/gpu_temp_max_tlimit_threshold": fields(193, member="siVal"),
    "temperature/gpu_temp_slow_tlimit_threshold": fields(194, member="siVal"),
    "temperature/gpu_temp_max_mem_tlimit_threshold": fields(195, member="siVal"),
    "temperature/gpu_temp_max_gpu_tlimit_threshold": fields(196, member="siVal"),
    "temperature/gpu_temp_max_threshold": threshold(0),
    "temperature/gpu_temp_slow_threshold": threshold(1),
    "temperature/gpu_temp_max_mem_threshold": threshold(2),
    "temperature/gpu_temp_max_gpu_threshold": threshold(3),
    "max_clocks/sm_clock": lambda h: pynvml.nvmlDeviceGetMaxClockInfo(h, pynvml.NVML_CLOCK_SM),
    "max_clocks/mem_clock": lambda h: pynvml.nvmlDeviceGetMaxClockInfo(h, pynvml.NVML_CLOCK_MEM),
    "max_clocks/video_clock": lambda h: pynvml.nvmlDeviceGetMaxClockInfo(h, pynvml.NVML_CLOCK_VIDEO),
    "pci/pci_gpu_link_info/pcie_gen/max_link_gen": pynvml.nvmlDeviceGetMaxPcieLinkGeneration,
    "pci/pci_gpu_link_info/link_widths/max_link_width": pynvml.nvmlDeviceGetMaxPcieLinkWidth,
    "remapped_rows/row_remapper_histogram/row_remapper_histogram_max": (
        lambda h: pynvml.nvmlDeviceGetRowRemapperHistogram(h).max
    ),
}

# What must be offered or not: path in the capture, how to ask.
OFFERED: Mapping[str, Ask] = {
    "serial": pynvml.nvmlDeviceGetSerial,
    "board_part_number": pynvml.nvmlDeviceGetBoardPartNumber,
    "mig_mode/current_mig": pynvml.nvmlDeviceGetMigMode,
    "ecc_mode/current_ecc": pynvml.nvmlDeviceGetEccMode,
    "ecc_errors/volatile/dram_correctable": lambda h: pynvml.nvmlDeviceGetMemoryErrorCounter(h, 0, 0, 2),
    "ecc_errors/volatile/sram_correctable": lambda h: pynvml.nvmlDeviceGetMemoryErrorCounter(h, 0, 0, 7),
    "ecc_errors/aggregate/dram_uncorrectable": fields(6, member="ullVal"),
    "ecc_errors/aggregate/sram_threshold_exceeded": sram,
    "retired_pages/multiple_single_bit_retirement/retired_count": (
        lambda h: pynvml.nvmlDeviceGetRetiredPages(h, 0)
    ),
    "remapped_rows/remapped_row_corr": pynvml.nvmlDeviceGetRemappedRows,
    "temperature/memory_temp": fields(82),
    "gpu_power_readings/average_power_draw": fields(185),
    "gpu_power_readings/instant_power_draw": fields(186),
    "gpu_memory_power_readings/average_power_draw": fields(185, scope=2),
    "gpu_memory_power_readings/instant_power_draw": fields(186, scope=2),
    "module_power_readings/average_power_draw": fields(185, scope=1),
    "utilization/gpu_util": pynvml.nvmlDeviceGetUtilizationRates,
    "utilization/encoder_util": pynvml.nvmlDeviceGetEncoderUtilization,
    "fabric/state": fabric,
    "c2c_mode": pynvml.nvmlDeviceGetC2cModeInfoV,
    "fan_speed": lambda h: pynvml.nvmlDeviceGetFanSpeed_v2(h, 0),
}


@pytest.fixture(params=CAPTURES)
def pair(request: pytest.FixtureRequest, driver: Callable[..., Driver]) -> tuple[Capture, Driver]:
    """A capture, and a simulated board of the model under the same driver."""
    profile = request.param.partition(" ")[0]
    capture = read(FOLDER / CAPTURES[request.param])
    return capture, driver(profile, gpus=2, driver_version=capture.driver)


def test_values_are_those_of_the_board(pair: tuple[Capture, Driver]) -> None:
    capture, made = pair
    handle = made.handle(0)
    compared = 0
    for path, ask in SAME.items():
        stated = capture.number(path)
        if stated is None:
            assert code(ask, handle) == pynvml.NVML_ERROR_NOT_SUPPORTED, path
        else:
            assert ask(handle) == stated, path
            compared += 1
    assert compared >= 14, "the capture was understood"


def test_what_is_not_there_is_not_supported(pair: tuple[Capture, Driver]) -> None:
    capture, made = pair
    handle = made.handle(0)
    offered = {path: capture.text(path) is not None for path in OFFERED}
    simulated = {path: code(ask, handle) == 0 for path, ask in OFFERED.items()}
    assert simulated == offered
    assert 4 <= sum(offered.values()) < len(offered)


def test_names_are_those_of_the_board(pair: tuple[Capture, Driver]) -> None:
    capture, made = pair
    handle = made.handle(0)
    assert pynvml.nvmlDeviceGetName(handle) == capture.text("product_name")
    assert pynvml.nvmlDeviceGetInforomImageVersion(handle) == capture.text("inforom_version/img_version")
    info = pynvml.nvmlDeviceGetPciInfo(handle)
    for path, number in (
        ("pci/pci_device_id", info.pciDeviceId),
        ("pci/pci_sub_system_id", info.pciSubSystemId),
    ):
        assert number == int(capture.text(path) or "", 16), path
    names = {6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper", 10: "Blackwell"}
    architecture = names[pynvml.nvmlDeviceGetArchitecture(handle)]
    assert architecture == capture.text("product_architecture")


def test_a_free_board_is_like_the_idle_one(pair: tuple[Capture, Driver]) -> None:
    capture, made = pair
    if capture.text("clocks_event_reasons/clocks_event_reason_gpu_idle") != "Active":
        return  # this board was at work: it says nothing of a free one
    free = made.handle(1)
    stated = capture.number("gpu_power_readings/instant_power_draw")
    if stated is not None:
        assert pynvml.nvmlDeviceGetPowerUsage(free) / 1000 == pytest.approx(stated, rel=0.3)
    margin = capture.number("temperature/gpu_temp_tlimit")
    assert (margin is None) == (code(pynvml.nvmlDeviceGetMarginTemperature, free) == 3)
    if margin is not None:
        core = capture.number("temperature/gpu_temp") or 0.0
        simulated = pynvml.nvmlDeviceGetTemperatureV(free, 0) + pynvml.nvmlDeviceGetMarginTemperature(free)
        assert simulated == margin + core


def test_a_cut_h100_is_like_a_real_one(driver: Callable[..., Driver]) -> None:
    """H100 80GB HBM3, driver 590.48.01, cut into 3g.40gb, 2g.20gb, 1g.10gb, 1g.10gb."""
    text = (FOLDER / "captures/nvidia-h100-mig/idle.q.txt").read_text()
    listed = [line.partition(" : ") for line in text.splitlines()]

    def column(name: str) -> list[int]:
        return [int(value.split()[0]) for key, _, value in listed if key.strip() == name]

    capture = read(FOLDER / "captures/nvidia-h100-mig/idle.q.txt")
    made = driver("h100", driver_version=capture.driver)
    made.library.configure_mig(0, ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"])
    handle = made.handle(0)
    found = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot) for slot in range(4)]
    attributes = [pynvml.nvmlDeviceGetAttributes(device) for device in found]
    assert [pynvml.nvmlDeviceGetGpuInstanceId(device) for device in found] == column("GPU Instance ID")
    assert [a.multiprocessorCount for a in attributes] == column("Multiprocessor count")
    assert [a.sharedCopyEngineCount for a in attributes] == column("Copy Engine count")
    assert [a.sharedDecoderCount for a in attributes] == column("Decoder count")
    assert [a.sharedJpegCount for a in attributes] == column("JPG count")
    memory = [mib(pynvml.nvmlDeviceGetMemoryInfo(device, V2).total) for device in found]
    bar1 = [mib(pynvml.nvmlDeviceGetBAR1MemoryInfo(device).bar1Total) for device in found]
    totals = column("Total")[:8]  # of memory and BAR1 in turn, before those of the whole board
    assert (memory, bar1) == (totals[::2], totals[1::2])
    for path in ("utilization/gpu_util", "remapped_rows/remapped_row_corr"):
        assert capture.text(path) is None
        assert code(OFFERED[path], handle) == pynvml.NVML_ERROR_NOT_SUPPORTED
    for path in ("temperature/memory_temp", "gpu_power_readings/average_power_draw", "fabric/state"):
        assert capture.text(path) is not None
        assert code(OFFERED[path], handle) == 0
