"""Device memory and the BAR1 window on it."""

from __future__ import annotations

from clusterwatt.simulate.gpu import MIB, Gpu, MigDevice
from clusterwatt.simulate.library.calls import Filled, check_version, on_device, on_gpu

MEMORY_V2 = 0x02000028


def _numbers(device: Gpu | MigDevice) -> tuple[int, int, int]:
    """Total, reserved and used bytes."""
    now_s = device.gpu.now_s()
    if isinstance(device, Gpu):
        return device.total_bytes, device.reserved_bytes, device.used_bytes(now_s)
    return device.total_bytes, 0, device.used_bytes(now_s)


@on_device("nvmlDeviceGetMemoryInfo")
def memory_v1(device: Gpu | MigDevice, memory: Filled) -> None:
    """The first version counts the driver's reserve as used (nvml.h)."""
    total, reserved, used = _numbers(device)
    memory.total, memory.used, memory.free = total, used + reserved, total - used - reserved


@on_device("nvmlDeviceGetMemoryInfo_v2", since=510)
def memory_v2(device: Gpu | MigDevice, memory: Filled) -> None:
    check_version(memory, MEMORY_V2)
    total, reserved, used = _numbers(device)
    memory.total, memory.reserved, memory.used = total, reserved, used
    memory.free = total - used - reserved


@on_device("nvmlDeviceGetBAR1MemoryInfo")
def bar1(device: Gpu | MigDevice, memory: Filled) -> None:
    """A whole GPU maps what is in use, as far as the window reaches; a MIG device maps nothing."""
    if isinstance(device, Gpu):
        total = device.card.bar1_total_mib * MIB
        used = min(total, device.used_bytes(device.now_s()) + MIB)
    else:
        total, used = device.profile.bar1_mib * MIB, 0
    memory.bar1Total, memory.bar1Used, memory.bar1Free = total, used, total - used


@on_gpu("nvmlDeviceGetConfComputeProtectedMemoryUsage", since=535)
def protected_memory(gpu: Gpu, memory: Filled) -> None:
    memory.total = memory.used = memory.free = 0
