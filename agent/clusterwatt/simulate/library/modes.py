"""Confidential computing, vGPU licences, virtualisation, power profiles: mostly that there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterwatt.simulate.gpu import Gpu
from clusterwatt.simulate.library.calls import (
    NO_PERMISSION,
    NOT_SUPPORTED,
    Filled,
    Refused,
    check_version,
    needs,
    on_gpu,
    on_system,
)
from clusterwatt.simulate.library.fields import UNSIGNED_INT, on_field

if TYPE_CHECKING:
    from clusterwatt.simulate.nvml import SimulatedLibrary

CAPABILITIES_V1 = ADDRESSING_V1 = 0x01000008
CURRENT_PROFILES_V1 = 0x01000064
_VGPU = 1  # NVML_GRID_LICENSE_FEATURE_CODE_VGPU


@on_system("nvmlSystemGetConfComputeState", since=535)
def conf_compute_state(library: SimulatedLibrary, state: Filled) -> None:
    state.environment = state.ccFeature = state.devToolsMode = 0


@on_system("nvmlSystemGetConfComputeCapabilities", since=535)
def conf_compute_capabilities(library: SimulatedLibrary, capabilities: Filled) -> None:
    capabilities.cpuCaps = 0
    capabilities.gpusCaps = int(any(gpu.card.gpm for gpu in library.gpus))  # Hopper and newer


@on_gpu("nvmlDeviceGetConfComputeMemSizeInfo", since=535)
def conf_compute_memory(gpu: Gpu, sizes: Filled) -> None:
    sizes.protectedMemSizeKib = sizes.unprotectedMemSizeKib = 0


@on_gpu("nvmlDeviceGetGridLicensableFeatures_v4", since=470)
def licensable_features(gpu: Gpu, features: Filled) -> None:
    """A guest with a vGPU has one feature to license; a whole board has none."""
    licensed = gpu.driver.vgpu_licensed
    features.isGridLicenseSupported = int(licensed is not None)
    features.licensableFeaturesCount = int(licensed is not None)
    if licensed is not None:
        feature = features.gridLicensableFeatures[0]
        feature.featureCode, feature.featureState = _VGPU, int(licensed)
        feature.featureEnabled = 1
        feature.productName = b"NVIDIA Virtual Compute Server"


@on_gpu("nvmlDeviceGetVirtualizationMode")
def virtualization_mode(gpu: Gpu, mode: Filled) -> None:
    """NVML_GPU_VIRTUALIZATION_MODE_NONE, or _VGPU in a guest."""
    mode.value = 0 if gpu.driver.vgpu_licensed is None else 2


@on_gpu("nvmlDeviceGetCapabilities", since=565)
def capabilities(gpu: Gpu, found: Filled) -> None:
    check_version(found, CAPABILITIES_V1)
    found.capMask = 0


@on_gpu("nvmlDeviceGetAddressingMode", since=570)
def addressing_mode(gpu: Gpu, mode: Filled) -> None:
    check_version(mode, ADDRESSING_V1)
    mode.value = 0  # NVML_DEVICE_ADDRESSING_MODE_NONE


@on_gpu("nvmlDeviceWorkloadPowerProfileGetProfilesInfo", since=570)
def workload_power_profiles(gpu: Gpu, profiles: Filled) -> None:
    """Stated as N/A by every board seen, B200 included."""
    raise Refused(NOT_SUPPORTED)


@on_gpu("nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", since=570)
def current_power_profiles(gpu: Gpu, profiles: Filled) -> None:
    """N/A as well, unless a test has given the board profiles."""
    check_version(profiles, CURRENT_PROFILES_V1)
    if gpu.power_profiles is None:
        raise Refused(NOT_SUPPORTED)
    for number in gpu.power_profiles:
        for mask in (profiles.requestedProfilesMask, profiles.enforcedProfilesMask):
            mask.mask[number // 32] |= 1 << number % 32


@on_field(UNSIGNED_INT, 251, since=590)
def power_smoothing(gpu: Gpu, scope: int, now_s: float) -> int:
    """Insufficient permissions on a B200, N/A on the others."""
    needs(gpu.card.nvlink5)
    raise Refused(NO_PERMISSION)
