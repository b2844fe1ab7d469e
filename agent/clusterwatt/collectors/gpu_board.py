"""What a board is beyond its identity: brand, versions of its InfoROM, vGPU licence (nvml.h).

None of it is on our own page: `expose.dcgm` gives it the names of dcgm-exporter.
"""

from __future__ import annotations

from collections.abc import Iterator

from clusterwatt.nvml.constants import BRANDS, INFOROM_ECC, INFOROM_OEM, INFOROM_POWER, LICENSE_VGPU
from clusterwatt.nvml.device import Device
from clusterwatt.readings.gpu import GpuBoard, GpuVgpuLicense


def board(device: Device) -> Iterator[GpuBoard]:
    """Brand and InfoROM. The InfoROM is not validated: that call is slow under load from r575 on."""
    yield GpuBoard(
        gpu=device.gpu,
        uuid=device.uuid,
        brand=BRANDS.get(device.ask("nvmlDeviceGetBrand"), ""),
        inforom_image=device.text("nvmlDeviceGetInforomImageVersion") or "",
        inforom_oem=_version(device, INFOROM_OEM),
        inforom_ecc=_version(device, INFOROM_ECC),
        inforom_power=_version(device, INFOROM_POWER),
    )


def vgpu_license(device: Device) -> Iterator[GpuVgpuLicense]:
    """Whether the licence of a vGPU is in force. A board that knows of no licence needs none."""
    features = device.ask("nvmlDeviceGetGridLicensableFeatures")
    if features is None and not device.lacks("nvmlDeviceGetGridLicensableFeatures"):
        return
    stated = [] if features is None else features.gridLicensableFeatures[: features.licensableFeaturesCount]
    licensed = any(feature.featureCode == LICENSE_VGPU and feature.featureState > 0 for feature in stated)
    yield GpuVgpuLicense(gpu=device.gpu, uuid=device.uuid, licensed=float(licensed))


def _version(device: Device, part: int) -> str:
    return str(device.ask("nvmlDeviceGetInforomVersion", part) or "")
