"""MIG: mode, profiles, GPU instances, MIG devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterwatt.simulate.cards import MigProfile
from clusterwatt.simulate.gpu import Gpu, GpuInstance, MigDevice
from clusterwatt.simulate.library.calls import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    Filled,
    Refused,
    check_version,
    needs,
    on_device,
    on_gpu,
    on_system,
)

if TYPE_CHECKING:
    from clusterwatt.simulate.nvml import SimulatedLibrary

PROFILE_INFO_V2 = 0x02000098
MOST_DEVICES = 7


@on_gpu("nvmlDeviceGetMigMode", since=450)
def mode(gpu: Gpu, current: Filled, pending: Filled) -> None:
    needs(bool(gpu.card.mig_profiles))
    current.value = pending.value = int(gpu.mig_enabled)


@on_gpu("nvmlDeviceGetMaxMigDeviceCount", since=450)
def max_devices(gpu: Gpu, count: Filled) -> None:
    count.value = MOST_DEVICES if gpu.card.mig_profiles else 0


@on_gpu("nvmlDeviceGetMigDeviceHandleByIndex", since=450)
def handle_by_index(gpu: Gpu, slot: int, handle: Filled) -> None:
    """Slots are sparse: after a change at run time some stay empty."""
    needs(gpu.mig_enabled)
    for device in gpu.mig_devices:
        if device.slot == slot:
            gpu.driver.point(handle, device)
            return
    raise Refused(NOT_FOUND if slot < MOST_DEVICES else INVALID_ARGUMENT)


@on_device("nvmlDeviceIsMigDeviceHandle", since=450)
def is_mig_device(device: Gpu | MigDevice, answer: Filled) -> None:
    answer.value = int(isinstance(device, MigDevice))


def _mig(device: Gpu | MigDevice) -> MigDevice:
    if not isinstance(device, MigDevice):
        raise Refused(NOT_SUPPORTED)
    return device


@on_device("nvmlDeviceGetGpuInstanceId", since=450)
def gpu_instance_id(device: Gpu | MigDevice, number: Filled) -> None:
    number.value = _mig(device).instance


@on_device("nvmlDeviceGetComputeInstanceId", since=450)
def compute_instance_id(device: Gpu | MigDevice, number: Filled) -> None:
    number.value = _mig(device).compute_instance


@on_device("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", since=450)
def parent_handle(device: Gpu | MigDevice, handle: Filled) -> None:
    gpu = _mig(device).gpu
    gpu.driver.point(handle, gpu)


@on_device("nvmlDeviceGetAttributes_v2", since=450)
def attributes(device: Gpu | MigDevice, found: Filled) -> None:
    profile = _mig(device).profile
    found.multiprocessorCount = profile.multiprocessors
    found.sharedCopyEngineCount = profile.copy_engines
    found.sharedDecoderCount, found.sharedEncoderCount = profile.decoders, 0
    found.sharedJpegCount, found.sharedOfaCount = profile.jpegs, profile.ofas
    found.gpuInstanceSliceCount = found.computeInstanceSliceCount = profile.slices
    found.memorySizeMB = profile.memory_mib


# --- profiles ----------------------------------------------------------------------------------------


def _fill_profile(info: Filled, profile: MigProfile) -> None:
    check_version(info, PROFILE_INFO_V2)
    info.id, info.isP2pSupported = profile.id, 0
    info.sliceCount, info.instanceCount = profile.slices, profile.most
    info.multiprocessorCount, info.copyEngineCount = profile.multiprocessors, profile.copy_engines
    info.decoderCount, info.encoderCount = profile.decoders, 0
    info.jpegCount, info.ofaCount = profile.jpegs, profile.ofas
    info.memorySizeMB = profile.memory_mib
    info.name = f"MIG {profile.name}".encode()


def _profile(gpu: Gpu, *, constant: int | None = None, number: int | None = None) -> MigProfile:
    needs(bool(gpu.card.mig_profiles))
    for profile in gpu.card.mig_profiles:
        if profile.constant == constant or profile.id == number:
            return profile
    raise Refused(NOT_SUPPORTED)


@on_gpu("nvmlDeviceGetGpuInstanceProfileInfoV", since=470)
def profile_info(gpu: Gpu, constant: int, info: Filled) -> None:
    _fill_profile(info, _profile(gpu, constant=constant))


@on_gpu("nvmlDeviceGetGpuInstanceProfileInfoByIdV", since=560)
def profile_info_by_id(gpu: Gpu, number: int, info: Filled) -> None:
    _fill_profile(info, _profile(gpu, number=number))


# --- GPU instances -----------------------------------------------------------------------------------


@on_gpu("nvmlDeviceGetGpuInstanceById", since=450)
def gpu_instance_by_id(gpu: Gpu, number: int, handle: Filled) -> None:
    for device in gpu.mig_devices:
        if device.instance == number:
            gpu.driver.point(handle, device.gpu_instance)
            return
    raise Refused(NOT_FOUND)


@on_gpu("nvmlDeviceGetGpuInstances", since=450)
def gpu_instances(gpu: Gpu, profile: int, handles: Filled, count: Filled) -> None:
    """Those of one profile."""
    found = [device for device in gpu.mig_devices if device.profile.id == profile]
    count.value = len(found)
    for place, device in enumerate(found):
        gpu.driver.point(handles[place], device.gpu_instance)


@on_gpu("nvmlDeviceGetGpuInstanceRemainingCapacity", since=450)
def remaining_capacity(gpu: Gpu, profile: int, count: Filled) -> None:
    needs(gpu.mig_enabled)
    most = _profile(gpu, number=profile).most
    free = MOST_DEVICES - sum(device.profile.slices for device in gpu.mig_devices)
    count.value = min(most, free // _profile(gpu, number=profile).slices)


@on_system("nvmlGpuInstanceGetInfo", since=450)
def gpu_instance_info(library: SimulatedLibrary, handle: Filled, info: Filled) -> None:
    instance = library.target(handle)
    if not isinstance(instance, GpuInstance):
        raise Refused(INVALID_ARGUMENT)
    device = instance.device
    library.point_member(info, "device", device.gpu)
    info.id, info.profileId = device.instance, device.profile.id
    info.placement.start, info.placement.size = device.start, device.profile.memory_slices
