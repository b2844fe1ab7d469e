"""Power, its limits, energy, temperatures and fans."""

from __future__ import annotations

from clusterwatt.simulate.gpu import Gpu
from clusterwatt.simulate.library.calls import (
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    Filled,
    Refused,
    check_version,
    needs,
    offered,
    on_gpu,
)

# Since Ampere (GA100 excepted) the power call gives the mean of one second, before it gave the moment
# (nvml.h).
AVERAGE_S = 1.0

TEMPERATURE_V1 = 0x0100000C
MARGIN_V1 = 0x01000008
FAN_SPEED_V1 = 0x0100000C


def milli(value: float) -> int:
    """Watts as milliwatts, joules as millijoules."""
    return int(value * 1000.0)


def usage_w(gpu: Gpu) -> float:
    """What nvmlDeviceGetPowerUsage says."""
    now_s = gpu.now_s()
    return gpu.mean_power_w(now_s, AVERAGE_S) if gpu.card.power_average else gpu.power_w(now_s)


@on_gpu("nvmlDeviceGetPowerUsage")
def power_usage(gpu: Gpu, milliwatts: Filled) -> None:
    milliwatts.value = milli(usage_w(gpu))


@on_gpu("nvmlDeviceGetTotalEnergyConsumption")
def total_energy(gpu: Gpu, millijoules: Filled) -> None:
    millijoules.value = milli(gpu.energy_j(gpu.now_s()))


@on_gpu("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit")
def power_limit(gpu: Gpu, milliwatts: Filled) -> None:
    milliwatts.value = milli(gpu.power_limit_w)


@on_gpu("nvmlDeviceGetPowerManagementDefaultLimit")
def default_power_limit(gpu: Gpu, milliwatts: Filled) -> None:
    milliwatts.value = milli(gpu.card.power_limit_w)


@on_gpu("nvmlDeviceGetPowerManagementLimitConstraints")
def power_limit_constraints(gpu: Gpu, least: Filled, most: Filled) -> None:
    least.value, most.value = milli(gpu.card.power_limit_min_w), milli(gpu.card.power_limit_max_w)


@on_gpu("nvmlDeviceGetPowerManagementMode")
def power_management_mode(gpu: Gpu, mode: Filled) -> None:
    mode.value = 1


def _core_temperature(gpu: Gpu, sensor: int) -> int:
    if sensor != 0:  # NVML_TEMPERATURE_GPU is the only sensor
        raise Refused(INVALID_ARGUMENT)
    return round(gpu.temperature_c(gpu.now_s()))


@on_gpu("nvmlDeviceGetTemperatureV", since=570)
def temperature_v(gpu: Gpu, temperature: Filled) -> None:
    check_version(temperature, TEMPERATURE_V1)
    temperature.temperature = _core_temperature(gpu, temperature.sensorType)


@on_gpu("nvmlDeviceGetTemperature")
def temperature_old(gpu: Gpu, sensor: int, celsius: Filled) -> None:
    celsius.value = _core_temperature(gpu, sensor)


@on_gpu("nvmlDeviceGetTemperatureThreshold")
def temperature_threshold(gpu: Gpu, threshold: int, celsius: Filled) -> None:
    limits = gpu.card.thresholds
    if limits is None:
        raise Refused(NOT_SUPPORTED)
    stated = (limits.shutdown, limits.slowdown, limits.memory_max, limits.gpu_max)
    if threshold >= len(stated):  # acoustic and GPS thresholds
        raise Refused(NOT_SUPPORTED)
    celsius.value = int(offered(stated[threshold]))


@on_gpu("nvmlDeviceGetMarginTemperature", since=570)
def margin_temperature(gpu: Gpu, margin: Filled) -> None:
    check_version(margin, MARGIN_V1)
    margins = gpu.card.margins
    if margins is None:
        raise Refused(NOT_SUPPORTED)
    margin.marginTemperature = margins.zero_c - round(gpu.temperature_c(gpu.now_s()))


@on_gpu("nvmlDeviceGetNumFans")
def fans(gpu: Gpu, number: Filled) -> None:
    needs(gpu.card.fans > 0)
    number.value = gpu.card.fans


def _fan_percent(gpu: Gpu, fan: int) -> int:
    needs(gpu.card.fans > 0)
    if fan >= gpu.card.fans:
        raise Refused(INVALID_ARGUMENT)
    # Silent below 50 C, full at 90 C; the real curve is in the VBIOS.
    return max(0, min(100, round((gpu.temperature_c(gpu.now_s()) - 50.0) * 2.5)))


@on_gpu("nvmlDeviceGetFanSpeed")
def fan_speed(gpu: Gpu, percent: Filled) -> None:
    percent.value = _fan_percent(gpu, 0)


@on_gpu("nvmlDeviceGetFanSpeed_v2")
def fan_speed_v2(gpu: Gpu, fan: int, percent: Filled) -> None:
    percent.value = _fan_percent(gpu, fan)


@on_gpu("nvmlDeviceGetFanSpeedRPM", since=565)
def fan_speed_rpm(gpu: Gpu, speed: Filled) -> None:
    check_version(speed, FAN_SPEED_V1)
    speed.speed = _fan_percent(gpu, speed.fan) * 30
