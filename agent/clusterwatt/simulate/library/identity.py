"""What a device is: names, numbers, versions, modes."""

from __future__ import annotations

from clusterwatt.simulate.gpu import Gpu, MigDevice
from clusterwatt.simulate.library.calls import (
    NOT_SUPPORTED,
    Filled,
    Refused,
    needs,
    on_device,
    on_gpu,
    write_text,
)


def _text(text: str | None) -> bytes:
    if text is None:
        raise Refused(NOT_SUPPORTED)
    return text.encode()


@on_device("nvmlDeviceGetName")
def name(device: Gpu | MigDevice, buffer: Filled, size: int) -> None:
    suffix = b"" if isinstance(device, Gpu) else f" MIG {device.profile.name}".encode()
    write_text(buffer, device.gpu.name + suffix, size)


@on_device("nvmlDeviceGetUUID")
def uuid(device: Gpu | MigDevice, buffer: Filled, size: int) -> None:
    write_text(buffer, device.uuid.encode(), size)


@on_device("nvmlDeviceGetIndex")
def index(device: Gpu | MigDevice, number: Filled) -> None:
    number.value = device.slot if isinstance(device, MigDevice) else device.index()


@on_gpu("nvmlDeviceGetMinorNumber")
def minor(gpu: Gpu, number: Filled) -> None:
    number.value = gpu.minor


@on_gpu("nvmlDeviceGetSerial")
def serial(gpu: Gpu, buffer: Filled, size: int) -> None:
    write_text(buffer, _text(gpu.serial), size)


@on_gpu("nvmlDeviceGetModuleId")
def module_id(gpu: Gpu, number: Filled) -> None:
    number.value = gpu.board + 1


@on_device("nvmlDeviceGetPciInfo_v3")
def pci_info(device: Gpu | MigDevice, info: Filled) -> None:
    gpu = device.gpu
    info.domain, info.bus, info.device = gpu.pci_domain, gpu.pci_bus, 0
    info.pciDeviceId, info.pciSubSystemId = gpu.card.device_id, gpu.card.subsystem_id
    info.busId = gpu.pci_bus_id.encode()
    info.busIdLegacy = gpu.pci_bus_id[4:].encode()


@on_device("nvmlDeviceGetBrand")
def brand(device: Gpu | MigDevice, number: Filled) -> None:
    number.value = device.gpu.card.brand


@on_device("nvmlDeviceGetArchitecture")
def architecture(device: Gpu | MigDevice, number: Filled) -> None:
    number.value = device.gpu.card.architecture


@on_device("nvmlDeviceGetCudaComputeCapability")
def compute_capability(device: Gpu | MigDevice, major: Filled, minor_part: Filled) -> None:
    major.value, minor_part.value = device.gpu.card.compute_capability


@on_gpu("nvmlDeviceGetVbiosVersion")
def vbios(gpu: Gpu, buffer: Filled, size: int) -> None:
    write_text(buffer, gpu.card.vbios.encode(), size)


@on_gpu("nvmlDeviceGetBoardPartNumber")
def board_part(gpu: Gpu, buffer: Filled, size: int) -> None:
    write_text(buffer, _text(gpu.card.board_part), size)


@on_gpu("nvmlDeviceGetInforomImageVersion")
def inforom_image(gpu: Gpu, buffer: Filled, size: int) -> None:
    write_text(buffer, gpu.card.inforom_image.encode(), size)


@on_gpu("nvmlDeviceGetInforomVersion")
def inforom_version(gpu: Gpu, part: int, buffer: Filled, size: int) -> None:
    parts = (gpu.card.inforom_oem, gpu.card.inforom_ecc, None)  # NVML_INFOROM_OEM, _ECC, _POWER
    write_text(buffer, _text(parts[part] if part < len(parts) else None), size)


@on_gpu("nvmlDeviceGetNumGpuCores")
def cores(gpu: Gpu, number: Filled) -> None:
    number.value = gpu.card.cores


@on_gpu("nvmlDeviceGetMemoryBusWidth")
def memory_bus_width(gpu: Gpu, bits: Filled) -> None:
    bits.value = gpu.card.memory_bus_bits


@on_gpu("nvmlDeviceGetPersistenceMode")
def persistence_mode(gpu: Gpu, mode: Filled) -> None:
    mode.value = gpu.health.persistence_mode


@on_gpu("nvmlDeviceGetComputeMode")
def compute_mode(gpu: Gpu, mode: Filled) -> None:
    mode.value = 0  # NVML_COMPUTEMODE_DEFAULT


@on_gpu("nvmlDeviceGetGspFirmwareVersion", since=510)
def gsp_firmware(gpu: Gpu, buffer: Filled) -> None:
    needs(gpu.gsp_firmware)
    buffer.value = gpu.gsp_firmware.encode()
