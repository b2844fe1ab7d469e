"""Fans of a GPU (nvml.h, nvmlDeviceGetFanSpeed_v2); boards of servers have none of their own."""

from __future__ import annotations

from collections.abc import Iterator

from clusterwatt.catalog import FULL, Table
from clusterwatt.nvml.device import Device
from clusterwatt.readings.gpu import GpuFan

FAN = Table(GpuFan, labels=("gpu", "uuid", "fan"))
METRICS = (
    FAN.gauge(
        "gpu_fan_speed_ratio",
        "Speed that the driver sets for a fan, as a share of its highest; may exceed 1.",
        "speed_ratio",
        FULL,
    ),
)

MOST_FANS = 16


class Fans:
    """The fans of one GPU. How many they are is asked until it was answered, then never again."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._fans: int | None = None

    def read(self) -> Iterator[GpuFan]:
        """The speed of each fan. nvml.h: what the driver intends, also of a fan that is blocked."""
        device = self._device
        if self._fans is None:
            self._fans = device.ask("nvmlDeviceGetNumFans")
        for fan in range(min(self._fans or 0, MOST_FANS)):
            percent = device.ask("nvmlDeviceGetFanSpeed_v2", fan)
            if percent is not None:
                yield GpuFan(gpu=device.gpu, uuid=device.uuid, fan=str(fan), speed_ratio=percent / 100)
