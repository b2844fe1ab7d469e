"""Initialisation, versions, device count and handles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterwatt.simulate.library.calls import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    Filled,
    Refused,
    on_system,
    write_text,
)

if TYPE_CHECKING:
    from clusterwatt.simulate.gpu import Gpu, MigDevice
    from clusterwatt.simulate.nvml import SimulatedLibrary

_ERRORS = {
    0: b"Success",
    19: b"GPU is in use",
    21: b"No data",
    25: b"Argument version mismatch",
    26: b"Deprecated",
    27: b"Not ready",
    28: b"GPU not found",
    29: b"Invalid state",
    30: b"Reset type not supported",
}


@on_system("nvmlInitWithFlags")
def init_with_flags(library: SimulatedLibrary, flags: int) -> None:
    library.begin()


@on_system("nvmlInit_v2")
def init(library: SimulatedLibrary) -> None:
    library.begin()


@on_system("nvmlShutdown")
def shutdown(library: SimulatedLibrary) -> None:
    library.end()


@on_system("nvmlErrorString")
def error_string(library: SimulatedLibrary, code: int) -> bytes:
    return _ERRORS.get(code, b"Unknown Error")


@on_system("nvmlSystemGetDriverVersion")
def driver_version(library: SimulatedLibrary, buffer: Filled, size: int) -> None:
    write_text(buffer, library.driver_version.encode(), size)


@on_system("nvmlSystemGetNVMLVersion")
def nvml_version(library: SimulatedLibrary, buffer: Filled, size: int) -> None:
    write_text(buffer, f"{library.cuda_version[0]}.{library.driver_version}".encode(), size)


@on_system("nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2")
def cuda_version(library: SimulatedLibrary, version: Filled) -> None:
    version.value = library.cuda_version[0] * 1000 + library.cuda_version[1] * 10


@on_system("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")
def count(library: SimulatedLibrary, number: Filled) -> None:
    number.value = len(library.visible())


def _hand_out(library: SimulatedLibrary, call: str, gpu: Gpu, handle: Filled) -> None:
    library.meet(call, gpu.board, narrowed=True)
    library.point(handle, gpu)


@on_system("nvmlDeviceGetHandleByIndex_v2")
def handle_by_index(library: SimulatedLibrary, index: int, handle: Filled) -> None:
    shown = library.visible()
    if index >= len(shown):
        raise Refused(INVALID_ARGUMENT)
    _hand_out(library, "nvmlDeviceGetHandleByIndex_v2", shown[index], handle)


@on_system("nvmlDeviceGetHandleByUUID")
def handle_by_uuid(library: SimulatedLibrary, uuid: bytes, handle: Filled) -> None:
    """Looks at one GPU after the other, and fails if one on the way is lost (nvml.h)."""
    for gpu in library.visible():
        library.meet("nvmlDeviceGetHandleByUUID", gpu.board, narrowed=True)
        devices: tuple[Gpu | MigDevice, ...] = (gpu, *gpu.mig_devices)
        for device in devices:
            if device.uuid.encode() == uuid:
                library.point(handle, device)
                return
    raise Refused(NOT_FOUND)


@on_system("nvmlDeviceGetHandleBySerial")
def handle_by_serial(library: SimulatedLibrary, serial: bytes, handle: Filled) -> None:
    for gpu in library.visible():
        if gpu.serial is not None and gpu.serial.encode() == serial:
            _hand_out(library, "nvmlDeviceGetHandleBySerial", gpu, handle)
            return
    raise Refused(NOT_FOUND)


@on_system("nvmlDeviceGetHandleByPciBusId_v2")
def handle_by_pci_bus_id(library: SimulatedLibrary, bus_id: bytes, handle: Filled) -> None:
    wanted = bus_id.decode(errors="replace").upper()
    for gpu in library.visible():
        if gpu.pci_bus_id.endswith(wanted.removeprefix("00000000:").removeprefix("0000:")):
            _hand_out(library, "nvmlDeviceGetHandleByPciBusId_v2", gpu, handle)
            return
    raise Refused(NOT_FOUND)


@on_system("nvmlSystemGetProcessName")
def process_name(library: SimulatedLibrary, pid: int, buffer: Filled, size: int) -> None:
    now_s = library.wall_s()
    for gpu in library.gpus:
        for process in gpu.processes(now_s):
            if process.pid == pid:
                write_text(buffer, process.name.encode(), size)
                return
    raise Refused(NOT_FOUND)


@on_system("nvmlUnitGetCount")
def unit_count(library: SimulatedLibrary, number: Filled) -> None:
    number.value = 0
