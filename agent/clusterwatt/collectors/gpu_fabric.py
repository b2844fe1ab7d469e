"""The NVSwitch fabric as a GPU sees it: its registration, and its place in the rack (nvml.h)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from clusterwatt.catalog import STANDARD, Table
from clusterwatt.nvml.device import Device, member_bytes
from clusterwatt.readings.gpu_links import GpuFabricInfo, GpuFabricState

STATE = Table(GpuFabricState, labels=("gpu", "uuid", "state"))
INFO = Table(GpuFabricInfo, labels=("gpu", "uuid", "cluster_uuid", "clique", "chassis", "slot", "tray"))
METRICS = (
    STATE.gauge(
        "gpu_fabric_state",
        "1 for the state of the registration with the NVSwitch fabric, 0 for the others.",
        "current",
        STANDARD,
    ),
    INFO.info(
        "gpu_fabric_info",
        "GPUs of one cluster and clique reach each other by NVLink; place in the rack, empty if not stated.",
        STANDARD,
    ),
)

STATES = ("not_supported", "not_started", "in_progress", "completed")
NOT_SUPPORTED = STATES.index("not_supported")
COMPLETED = STATES.index("completed")


def registration(device: Device) -> Any:
    """What the driver says of the registration; None before Hopper, and as in `Device.ask`."""
    versions = ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t")
    info = device.fill("nvmlDeviceGetGpuFabricInfoV", *versions)
    if info is None and device.lacks("nvmlDeviceGetGpuFabricInfoV", versions[-1]):
        info = device.fill("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t")  # before r550
    return info


def in_fabric(device: Device) -> bool:
    """Whether the GPU takes part in an NVSwitch fabric, registered or not yet."""
    info = registration(device)
    return info is not None and info.state != NOT_SUPPORTED


def fabric(device: Device) -> Iterator[GpuFabricState | GpuFabricInfo]:
    """State of the registration; clique and place once it is completed."""
    info = registration(device)
    if info is None:
        return
    for number, state in enumerate(STATES):
        current = float(info.state == number)
        yield GpuFabricState(gpu=device.gpu, uuid=device.uuid, state=state, current=current)
    if info.state == COMPLETED and info.status == 0:
        cluster = bytes(info.clusterUuid)
        chassis, slot, tray = _place(device.fill("nvmlDeviceGetPlatformInfo", "c_nvmlPlatformInfo_v2_t"))
        yield GpuFabricInfo(
            gpu=device.gpu,
            uuid=device.uuid,
            cluster_uuid=str(uuid.UUID(bytes=cluster)) if any(cluster) else "",
            clique=str(info.cliqueId),
            chassis=chassis,
            slot=slot,
            tray=tray,
        )


def _place(platform: Any) -> tuple[str, str, str]:
    if platform is None:
        return "", "", ""
    chassis = member_bytes(platform, "chassisSerialNumber").split(b"\0")[0].decode("utf-8", "replace").strip()
    if not chassis:
        return "", "", ""  # slot and tray of no chassis are zeros that nobody has set
    return (
        chassis,
        str(member_bytes(platform, "slotNumber")[0]),
        str(member_bytes(platform, "trayIndex")[0]),
    )
