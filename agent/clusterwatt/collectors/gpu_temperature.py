"""Temperatures of a GPU, their limits, and the margin to slowdown (nvml.h).

Cards from Ada on state their limits as margins (T.limit), older ones as temperatures. The fields 193 to 196
are not the margin now: they say at which margin the card slows down or shuts down (-2 and -8 on an H100).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterwatt.catalog import STANDARD, Table
from clusterwatt.nvml.constants import (
    FIELD_MEMORY_TEMPERATURE,
    SENSOR_CORE,
    THRESHOLD_CORE_MAX,
    THRESHOLD_MEMORY_MAX,
    THRESHOLD_SHUTDOWN,
    THRESHOLD_SLOWDOWN,
    Field,
)
from clusterwatt.nvml.device import Device
from clusterwatt.readings.gpu import GpuTemperature, GpuTemperatureLimit, GpuTemperatureMargin

TEMPERATURE = Table(GpuTemperature, labels=("gpu", "uuid", "sensor"))
LIMIT = Table(GpuTemperatureLimit, labels=("gpu", "uuid", "sensor", "limit"))
MARGIN = Table(GpuTemperatureMargin, labels=("gpu", "uuid"))
METRICS = (
    TEMPERATURE.gauge(
        "gpu_temperature_celsius", "Temperature of the core and of the device memory.", "temperature_celsius"
    ),
    LIMIT.gauge(
        "gpu_temperature_limit_celsius",
        "Temperature at which the GPU slows down, shuts down, or should not be above.",
        "limit_celsius",
        STANDARD,
    ),
    MARGIN.gauge(
        "gpu_temperature_margin_celsius",
        "Degrees left until the hardware slows down: as the driver states it, else limit minus core.",
        "margin_celsius",
    ),
)

FIELDS: tuple[Field, ...] = (FIELD_MEMORY_TEMPERATURE,)
THRESHOLDS = (
    ("core", "slowdown", THRESHOLD_SLOWDOWN),
    ("core", "shutdown", THRESHOLD_SHUTDOWN),
    ("core", "max", THRESHOLD_CORE_MAX),
    ("memory", "max", THRESHOLD_MEMORY_MAX),
)
HOTTEST = 200  # what is above is a sentinel, as DCGM treats it too


class Temperatures:
    """Temperatures of one GPU; keeps the limit and the core temperature for the margin."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._slowdown: float | None = None

    def limits(self) -> Iterator[GpuTemperatureLimit]:
        """Limits that the card states as temperatures."""
        device = self._device
        for sensor, limit, threshold in THRESHOLDS:
            celsius = _celsius(device.ask("nvmlDeviceGetTemperatureThreshold", threshold))
            if celsius is None or celsius <= 0:  # 0 is a limit that was never set
                continue
            if threshold == THRESHOLD_SLOWDOWN:
                self._slowdown = celsius
            yield GpuTemperatureLimit(
                gpu=device.gpu, uuid=device.uuid, sensor=sensor, limit=limit, limit_celsius=celsius
            )

    def margin(self) -> Iterator[GpuTemperatureMargin]:
        """The margin as the driver states it (r570 and newer)."""
        margin = _celsius(self._device.ask("nvmlDeviceGetMarginTemperature"))
        if margin is not None:
            yield self._margin(margin)

    def core(self) -> Iterator[GpuTemperature | GpuTemperatureMargin]:
        """The core's temperature now, and the margin where the driver states none."""
        device = self._device
        core = _celsius(
            device.ask_first(
                ("nvmlDeviceGetTemperatureV", SENSOR_CORE), ("nvmlDeviceGetTemperature", SENSOR_CORE)
            )
        )
        if core is None:
            return
        yield self._temperature("core", core)
        if device.lacks("nvmlDeviceGetMarginTemperature") and self._slowdown is not None:
            yield self._margin(self._slowdown - core)

    def memory(self, values: Mapping[Field, float]) -> Iterator[GpuTemperature]:
        """The memory's temperature, from the fields just read."""
        celsius = _celsius(values.get(FIELD_MEMORY_TEMPERATURE))
        if celsius is not None:
            yield self._temperature("memory", celsius)

    def _temperature(self, sensor: str, celsius: float) -> GpuTemperature:
        return GpuTemperature(
            gpu=self._device.gpu, uuid=self._device.uuid, sensor=sensor, temperature_celsius=celsius
        )

    def _margin(self, celsius: float) -> GpuTemperatureMargin:
        return GpuTemperatureMargin(gpu=self._device.gpu, uuid=self._device.uuid, margin_celsius=celsius)


def _celsius(stated: float | None) -> float | None:
    return None if stated is None or abs(stated) > HOTTEST else float(stated)
