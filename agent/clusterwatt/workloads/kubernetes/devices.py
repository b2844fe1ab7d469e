"""From the names that device plugins and drivers give to GPUs to the words of a `Claim`.

Replicas of time slicing and MPS stand for the device that they are replicas of: `GPU-<uuid>::3`, in GKE
`nvidia0/vgpu2`. GKE's plugin names devices by their files in /dev, so its numbers are minors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from clusterwatt.workloads.kubernetes.kubelet import ClaimedDevice, Container

UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
BY_UUID = re.compile(rf"GPU-{UUID}|MIG-{UUID}|MIG-GPU-{UUID}/[0-9]+/[0-9]+")
BY_INDEX = re.compile(r"[0-9]{1,4}")
GKE = re.compile(r"nvidia(?P<minor>[0-9]{1,4})(?P<instance>/gi[0-9]{1,4})?(?:/vgpu[0-9]+)?")
DRA_GPU = re.compile(r"gpu-(?P<minor>[0-9]{1,4})")

DRA_DRIVER = "gpu.nvidia.com"
Slices = Mapping[tuple[str, str], str]  # uuid by pool and device of the DRA driver


def devices(
    container: Container, resources: tuple[str, ...], slices: Slices
) -> Iterator[tuple[str, str | None]]:
    """Each GPU of a container: its name at the source, and as a `Claim` names it, None for an unknown form.

    `resources`: patterns of the resources that are GPUs.
    """
    for assigned in container.assigned:
        if any(fnmatchcase(assigned.resource, pattern) for pattern in resources):
            for device_id in assigned.ids:
                yield device_id, of_plugin(device_id)
    for claimed in container.claimed:
        if claimed.driver == DRA_DRIVER:
            yield f"{claimed.pool}/{claimed.device}", of_claim(claimed, slices)


def of_plugin(device_id: str) -> str | None:
    """The device behind an id of a device plugin."""
    device = device_id.partition("::")[0]
    if BY_UUID.fullmatch(device):
        return device
    if BY_INDEX.fullmatch(device):
        return f"index:{int(device)}"
    gke = GKE.fullmatch(device)
    if gke is None:
        return None
    return f"nvidia{gke['minor']}{gke['instance']}" if gke["instance"] else f"minor:{int(gke['minor'])}"


def of_claim(claimed: ClaimedDevice, slices: Slices) -> str | None:
    """The device of a ResourceClaim: by its slice, else by the runtime's name for it, else by its own.

    The driver names whole GPUs by their minor number; its first versions took the index.
    """
    uuid = slices.get((claimed.pool, claimed.device))
    if uuid is not None:
        return uuid
    for name in claimed.cdi:
        vendor, _, device = name.partition("=")
        if BY_UUID.fullmatch(device) or (vendor == "nvidia.com/gpu" and BY_INDEX.fullmatch(device)):
            return of_plugin(device)
    whole = DRA_GPU.fullmatch(claimed.device)
    return f"minor:{int(whole['minor'])}" if whole else None
