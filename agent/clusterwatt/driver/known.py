"""The GPUs and MIG instances that the agent has met, by UUID.

A GPU once seen stays, also when it is lost. An instance goes when it was destroyed: when its GPU has answered
without it. While the GPU does not answer its instances stay, lost with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from clusterwatt.driver.frames import DeviceFrame


class Known(NamedTuple):
    """Newest index, and the UUID of the GPU that an instance is part of, empty for a GPU."""

    gpu: str
    parent_uuid: str


def remembered(known: Mapping[str, Known], devices: Iterable[DeviceFrame]) -> dict[str, Known]:
    """What is known after a frame."""
    said = {device.uuid: device for device in devices}
    answering = {uuid for uuid, device in said.items() if device.groups}
    kept = {uuid: one for uuid, one in known.items() if uuid in said or one.parent_uuid not in answering}
    return kept | {uuid: Known(device.gpu, device.parent_uuid) for uuid, device in said.items()}
