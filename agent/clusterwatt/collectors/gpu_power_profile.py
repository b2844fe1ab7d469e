"""The workload power profile of a GPU, from Blackwell on (nvml.h, NVML_POWER_PROFILE_*)."""

from __future__ import annotations

from collections.abc import Iterator

from clusterwatt.catalog import FULL, Table
from clusterwatt.nvml.constants import POWER_PROFILES
from clusterwatt.nvml.device import Device
from clusterwatt.readings.gpu import GpuPowerProfile

PROFILE = Table(GpuPowerProfile, labels=("gpu", "uuid", "profile"))
METRICS = (
    PROFILE.info(
        "gpu_power_profile_info",
        "Workload power profiles in force, several at a time where they agree; none: no profile is.",
        FULL,
    ),
)

WORD_BITS = 32


def power_profile(device: Device) -> Iterator[GpuPowerProfile]:
    """Profiles that the driver enforces now, which may be fewer than were asked for: some exclude others."""
    answer = device.fill(
        "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", "c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t"
    )
    if answer is None:
        return
    words = answer.enforcedProfilesMask.mask
    bits = (bit for bit in range(len(words) * WORD_BITS) if words[bit // WORD_BITS] >> bit % WORD_BITS & 1)
    for profile in [POWER_PROFILES.get(bit, str(bit)) for bit in bits] or ["none"]:
        yield GpuPowerProfile(gpu=device.gpu, uuid=device.uuid, profile=profile)
