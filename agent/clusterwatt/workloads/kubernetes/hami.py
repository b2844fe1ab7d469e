"""Which GPUs HAMi gives to the containers of a pod: by the annotation of its scheduler.

HAMi's device plugin hands out ids such as `GPU-<uuid>-3`, of which the kubelet takes any; the GPU that the
container gets is the one that HAMi's scheduler has chosen, whatever the id says (HAMi, its protocol.md and
its plugin's Allocate). So the id tells that a container has a share of a GPU, and the annotation of which
one: `GPU-<uuid>,NVIDIA,<MiB>,<per cent>:` for each device, `;` behind each container, also without any.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from clusterwatt.workloads.kubernetes.devices import BY_UUID, UUID

ANNOTATION = "hami.io/vgpu-devices-allocated"
MAX_TEXT = 1 << 16
SHARE = re.compile(rf"GPU-{UUID}-[0-9]{{1,4}}")

Given = tuple[tuple[str, ...], ...]  # by container that has devices: their UUIDs
Device = tuple[str, str, str | None]  # container, name at the source, as a claim names it


def given(annotation: str) -> Given:
    """The GPUs of an annotation; nothing where one is not a GPU, as with HAMi's MIG instances."""
    if len(annotation) > MAX_TEXT:
        return ()
    containers = []
    for container in annotation.split(";"):
        uuids = tuple(device.partition(",")[0].strip() for device in container.split(":") if device.strip())
        if not all(BY_UUID.fullmatch(uuid) for uuid in uuids):
            return ()
        if uuids:
            containers.append(uuids)
    return tuple(containers)


def resolved(devices: Sequence[Device], given: Given) -> list[Device]:
    """A pod's devices with the GPUs behind HAMi's ids; as they are where the annotation does not fit them."""
    shares: dict[str, list[str]] = {}
    for container, name, device in devices:
        if device is None and SHARE.fullmatch(name):
            shares.setdefault(container, []).append(name)
    if [len(names) for names in shares.values()] != [len(uuids) for uuids in given]:
        return list(devices)
    others = [one for one in devices if one[2] is not None or not SHARE.fullmatch(one[1])]
    return others + [
        (container, name, uuid)
        for (container, names), uuids in zip(shares.items(), given, strict=True)
        for name, uuid in zip(names, uuids, strict=True)
    ]
