"""Power, energy and power limits of a GPU: fields 83, 185, 186 and the calls that they replace (nvml.h)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterwatt.catalog import CORE, FULL, STANDARD, LevelBy, Table
from clusterwatt.clock import Clock
from clusterwatt.collectors.gpu_integrals import Integral
from clusterwatt.nvml.constants import (
    FIELD_ENERGY,
    FIELD_POWER_AVERAGE,
    FIELD_POWER_INSTANT,
    NOT_AVAILABLE,
    SCOPE_GPU,
    SCOPE_MEMORY,
    SCOPE_MODULE,
    Field,
)
from clusterwatt.nvml.device import Device
from clusterwatt.readings.gpu import GpuPower, GpuPowerLimit
from clusterwatt.readings.gpu_measured import GpuEnergy

POWER = Table(GpuPower, labels=("gpu", "uuid", "scope", "kind"))
ENERGY = Table(GpuEnergy, labels=("gpu", "uuid", "scope", "method"))
LIMIT = Table(GpuPowerLimit, labels=("gpu", "uuid", "limit"))
METRICS = (
    POWER.gauge(
        "gpu_power_watts",
        "Power as the driver states it: an average over a second, or of this instant.",
        "power_watts",
        by=LevelBy("scope", {"gpu": STANDARD, "module": FULL, "memory": FULL}),
    ),
    ENERGY.counter(
        "gpu_energy_joules_total",
        "Energy since the agent started, by the driver's counter or by power integrated over time; a GPU "
        "that has both, since its counter was refused for a while, has used their sum.",
        "energy_joules",
    ),
    LIMIT.gauge(
        "gpu_power_limit_watts",
        "Power limit in force, by default, and the range that can be set.",
        "limit_watts",
        by=LevelBy("limit", {"enforced": CORE, "default": FULL, "min": FULL, "max": FULL}),
    ),
)

STATED: Mapping[Field, tuple[str, str]] = {
    (FIELD_POWER_INSTANT, SCOPE_GPU): ("gpu", "instant"),
    (FIELD_POWER_AVERAGE, SCOPE_GPU): ("gpu", "average"),
    (FIELD_POWER_INSTANT, SCOPE_MODULE): ("module", "instant"),
    (FIELD_POWER_AVERAGE, SCOPE_MODULE): ("module", "average"),
    (FIELD_POWER_INSTANT, SCOPE_MEMORY): ("memory", "instant"),
    (FIELD_POWER_AVERAGE, SCOPE_MEMORY): ("memory", "average"),
}
FIELDS: tuple[Field, ...] = (*STATED, FIELD_ENERGY)
GPU_FIELDS = ((FIELD_POWER_INSTANT, SCOPE_GPU), (FIELD_POWER_AVERAGE, SCOPE_GPU))

GA100 = (8, 0)  # compute capability of A100, A30 and their like
HOPPER = 9


class Power:
    """Power of one GPU, and what it adds up to.

    `counter_joules` is the driver's own energy counter at the last reading, `counter_scope` what it counts.
    """

    def __init__(self, device: Device, clock: Clock, interval_s: float) -> None:
        self._device = device
        self._clock = clock
        self._integral = Integral(interval_s)
        self._capability: tuple[int, ...] | None = None
        self.counter_joules: float | None = None
        self.counter_scope = "gpu"

    @property
    def integral_joules(self) -> float | None:
        """Power integrated over time; None while no power was ever stated."""
        return self._integral.total

    def read(self, values: Mapping[Field, float]) -> Iterator[GpuPower]:
        """What the driver states of power, from the fields just read; the integral moves on."""
        device = self._device
        now_s = self._clock.monotonic_s()
        stated = {
            STATED[field]: watts
            for field, milliwatts in values.items()
            if field in STATED and (watts := _watts(milliwatts)) is not None
        }
        if all(device.lacks(*field) for field in GPU_FIELDS):
            watts = _watts(device.ask("nvmlDeviceGetPowerUsage"))
            if watts is not None:
                stated["gpu", self._kind_of_usage()] = watts
        instant, average = stated.get(("gpu", "instant")), stated.get(("gpu", "average"))
        if instant is not None:
            self._integral.add(instant, now_s, averaged=False)
        elif average is not None:
            self._integral.add(average, now_s, averaged=True)
        self.counter_joules = self._energy(values)
        if any(scope == "module" for scope, _ in stated) and self._compute_capability()[0] == HOPPER:
            self.counter_scope = (
                "module"  # the counter of Grace-Hopper has the CPU in it (ml-energy/zeus#172)
            )
        for (scope, kind), watts in stated.items():
            yield GpuPower(gpu=device.gpu, uuid=device.uuid, scope=scope, kind=kind, power_watts=watts)

    def _energy(self, values: Mapping[Field, float]) -> float | None:
        millijoules = values.get(FIELD_ENERGY)
        if millijoules is None and self._device.lacks(*FIELD_ENERGY):
            millijoules = self._device.ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1000

    def _kind_of_usage(self) -> str:
        """What nvmlDeviceGetPowerUsage states: an average from Ampere on, but for GA100 (nvml.h)."""
        return "average" if self._compute_capability() > GA100 else "instant"

    def _compute_capability(self) -> tuple[int, ...]:
        if self._capability is None:
            answer = self._device.ask("nvmlDeviceGetCudaComputeCapability")
            if answer is None:
                return (0, 0)
            self._capability = tuple(answer)
        return self._capability


def limits(device: Device) -> Iterator[GpuPowerLimit]:
    """The limit in force, the default one, and the range that an administrator may set."""
    low, high = device.ask("nvmlDeviceGetPowerManagementLimitConstraints") or (None, None)
    stated = {
        "enforced": device.ask("nvmlDeviceGetEnforcedPowerLimit"),
        "default": device.ask("nvmlDeviceGetPowerManagementDefaultLimit"),
        "min": low,
        "max": high,
    }
    for limit, milliwatts in stated.items():
        watts = _watts(milliwatts)
        if watts is not None:
            yield GpuPowerLimit(gpu=device.gpu, uuid=device.uuid, limit=limit, limit_watts=watts)


def _watts(milliwatts: float | None) -> float | None:
    return None if milliwatts is None or milliwatts == NOT_AVAILABLE else milliwatts / 1000
