"""Brand, InfoROM, vGPU licence, and CRC errors of NVLink, on simulated cards."""

from __future__ import annotations

import pynvml
import pytest

from clusterwatt.collectors.gpu_board import board, vgpu_license
from clusterwatt.collectors.gpu_nvlink import crc_errors
from clusterwatt.nvml import constants
from clusterwatt.readings.gpu import GpuBoard, GpuVgpuLicense
from clusterwatt.readings.gpu_links import GpuNvlinkCrc
from tests.nvml.drivers import Bench


def test_the_board_of_an_h100() -> None:
    device = Bench("h100").open().device()
    assert list(board(device)) == [
        GpuBoard("0", device.uuid, "NVIDIA", "G520.0200.00.05", "2.1", "7.16", inforom_power="")
    ]


def test_numbers_are_those_of_the_binding() -> None:
    assert constants.INFOROM_OEM == pynvml.NVML_INFOROM_OEM
    assert constants.INFOROM_ECC == pynvml.NVML_INFOROM_ECC
    assert constants.INFOROM_POWER == pynvml.NVML_INFOROM_POWER
    assert constants.LICENSE_VGPU == pynvml.NVML_GRID_LICENSE_FEATURE_CODE_VGPU
    assert constants.BRANDS[pynvml.NVML_BRAND_TESLA] == "Tesla"
    assert constants.BRANDS[pynvml.NVML_BRAND_GEFORCE_RTX] == "GeForce RTX"
    assert constants.BRANDS[pynvml.NVML_BRAND_NVIDIA] == "NVIDIA"


@pytest.mark.parametrize(("licensed", "expected"), [(None, 0.0), (False, 0.0), (True, 1.0)])
def test_the_licence_of_a_vgpu(licensed: bool | None, expected: float) -> None:
    device = Bench("h100", vgpu_licensed=licensed).open().device()
    assert list(vgpu_license(device)) == [GpuVgpuLicense("0", device.uuid, expected)]


def test_crc_errors_are_told_apart_before_hopper() -> None:
    device = Bench("a100").open().device()
    assert list(crc_errors(device)) == [GpuNvlinkCrc("0", device.uuid, 0.0, 0.0)]
    assert list(crc_errors(Bench("h100").open().device())) == []
