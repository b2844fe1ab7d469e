"""PCIe, NVLink, fabric."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref
from typing import Any

import pynvml
import pytest

from tests.simulate.conftest import Driver, code, field

JOB, FREE = 0, 3
ALL = 0xFFFFFFFF


def test_pcie_link(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    handle = made.handle()
    assert pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle) == 5
    assert pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle) == 16
    made.library.gpu(0).health.pcie_width = 8
    assert pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle) == 8
    assert pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle) == 16
    geforce = driver("rtx4080")
    assert pynvml.nvmlDeviceGetCurrPcieLinkGeneration(geforce.handle(FREE)) == 1
    assert pynvml.nvmlDeviceGetCurrPcieLinkGeneration(geforce.handle(JOB)) == 4


def test_pcie_counters_are_the_integral_of_the_throughput(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    handle, area = made.handle(JOB), 0.0
    before = field(handle, 197).value.ullVal
    for _ in range(5000):
        made.clock.advance(0.02)
        area += pynvml.nvmlDeviceGetPcieThroughput(handle, pynvml.NVML_PCIE_UTIL_TX_BYTES) * 1000 * 0.02
    assert field(handle, 197).value.ullVal - before == pytest.approx(area, rel=1e-3)
    assert 0 < field(handle, 198).value.ullVal < field(handle, 197).value.ullVal


def test_pcie_errors(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    health = made.library.gpu(0).health
    health.pcie_replays, health.pcie_errors[173] = 9, 4
    handle = made.handle()
    assert pynvml.nvmlDeviceGetPcieReplayCounter(handle) == field(handle, 94).value.uiVal == 9
    assert [field(handle, number).value.uiVal for number in (169, *range(173, 184))] == [0, 4] + [0] * 10


def test_links_of_an_h100(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    handle = made.handle()
    assert field(handle, 91).value.uiVal == 18
    made.library.gpu(0).health.nvlink_down.add(3)
    states = [pynvml.nvmlDeviceGetNvLinkState(handle, link) for link in range(18)]
    assert states == [1, 1, 1, 0] + [1] * 14
    assert [field(handle, 165, scope=link).value.uiVal for link in (2, 3)] == [1, 0]
    assert [field(handle, 164, scope=link).value.uiVal for link in (2, 3)] == [26562, 0]
    assert code(pynvml.nvmlDeviceGetNvLinkState, handle, 18) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert pynvml.nvmlDeviceGetNvLinkVersion(handle, 0) == pynvml.NVML_NVLINK_VERSION_4_0


def test_boards_without_links(driver: Callable[..., Driver]) -> None:
    handle = driver("l40s").handle()
    assert field(handle, 91).nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert code(pynvml.nvmlDeviceGetNvLinkState, handle, 0) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_link_traffic_adds_up_and_follows_the_job(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    handle = made.handle(JOB)
    before = field(handle, 138, scope=ALL).value.ullVal
    made.clock.advance(2.4 * 20)
    after = field(handle, 138, scope=ALL).value.ullVal
    per_link = [field(handle, 138, scope=link).value.ullVal for link in range(18)]
    assert sum(per_link) == after
    bytes_per_s = (after - before) * 1024 / 48.0
    assert 0.1 * 18 * 26.562e9 < bytes_per_s < 0.5 * 18 * 26.562e9
    assert field(handle, 140, scope=ALL).value.ullVal > after, "raw traffic has the overhead"
    assert field(made.handle(FREE), 138, scope=ALL).value.ullVal == 0


def test_nvlink5_counts_otherwise(driver: Callable[..., Driver]) -> None:
    made = driver("b200")
    handle = made.handle(JOB)
    assert [field(handle, number, scope=ALL).nvmlReturn for number in (138, 139, 161, 163)] == [3] * 4
    assert field(handle, 204, scope=ALL).value.ullVal > 0
    made.library.gpu(0).health.nvlink_errors = {("recovery", 1): 2, ("recovery", 5): 3, ("symbol", 0): 7}
    assert field(handle, 215, scope=ALL).value.ullVal == 5
    assert field(handle, 215, scope=5).value.ullVal == 3
    assert field(handle, 221, scope=ALL).value.ullVal == 7
    assert field(driver("h100").handle(), 204, scope=ALL).nvmlReturn == 3


def test_link_errors_before_nvlink5(driver: Callable[..., Driver]) -> None:
    made = driver("a100")
    made.library.gpu(0).health.nvlink_errors = {("replay", 0): 1, ("replay", 11): 2, ("crc", 4): 5}
    handle = made.handle()
    assert field(handle, 52).value.ullVal == 3
    assert field(handle, 45).value.ullVal == 5
    assert field(handle, 161, scope=11).value.ullVal == 2
    replay = pynvml.NVML_NVLINK_ERROR_DL_REPLAY
    assert pynvml.nvmlDeviceGetNvLinkErrorCounter(handle, 11, replay) == 2
    assert field(driver("h100").handle(), 45).nvmlReturn == 3


def fabric(handle: Any, kind: Any) -> Any:
    info = kind()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, byref(info))
    return info


def test_fabric(driver: Callable[..., Driver]) -> None:
    v2, v3 = pynvml.c_nvmlGpuFabricInfo_v2_t, getattr(pynvml, "c_nvmlGpuFabricInfo_v3_t", None)
    made = driver("h100")
    info = fabric(made.handle(), v2)
    assert (info.state, info.status, info.cliqueId, bytes(info.clusterUuid)) == (3, 0, 0, bytes(16))
    made.library.gpu(0).health.fabric_state = pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS
    assert fabric(made.handle(), v2).state == 2
    assert code(fabric, driver("a100").handle(), v2) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert code(fabric, driver("h100", driver_version="535.54.03").handle(), v2) == 13
    if v3 is not None:
        info = fabric(driver("b200").handle(), v3)
        assert (info.healthSummary, info.healthMask >> 6 & 3) == (1, 2)
        info.version = 0x4000028
        wrong = code(pynvml.nvmlDeviceGetGpuFabricInfoV, driver("b200").handle(), byref(info))
        assert wrong == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_peers(driver: Callable[..., Driver]) -> None:
    nvlink = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    made = driver("h100")
    assert pynvml.nvmlDeviceGetP2PStatus(made.handle(0), made.handle(1), nvlink) == 0
    made.library.gpu(1).health.nvlink_down.add(0)
    assert pynvml.nvmlDeviceGetP2PStatus(made.handle(0), made.handle(1), nvlink) != 0


def test_rest(driver: Callable[..., Driver]) -> None:
    """Confidential computing and licences: none, unless asked for."""
    handle = driver().handle()
    assert pynvml.nvmlSystemGetConfComputeState().ccFeature == 0
    assert pynvml.nvmlDeviceGetConfComputeMemSizeInfo(handle).protectedMemSizeKib == 0
    assert pynvml.nvmlDeviceGetGridLicensableFeatures(handle).licensableFeaturesCount == 0
    guest = driver(vgpu_licensed=True).handle()
    features = pynvml.nvmlDeviceGetGridLicensableFeatures(guest)
    assert features.gridLicensableFeatures[0].featureCode == pynvml.NVML_GRID_LICENSE_FEATURE_CODE_VGPU
    assert features.gridLicensableFeatures[0].featureState == 1
