"""CPU, memory, sensors and energy of the node."""

from __future__ import annotations

from clusterwatt.readings.base import Reading


class CpuTime(Reading, frozen=True):
    """Seconds that all CPUs spent in a mode; guest time is left out of user."""

    mode: str
    cpu_seconds: float


class CpuCount(Reading, frozen=True):
    """CPUs that are online."""

    cpus: float


class Memory(Reading, frozen=True):
    """Main memory, from /proc/meminfo."""

    total_bytes: float | None = None
    available_bytes: float | None = None
    free_bytes: float | None = None
    cached_bytes: float | None = None
    dirty_bytes: float | None = None
    swap_total_bytes: float | None = None
    swap_free_bytes: float | None = None


class MemoryErrors(Reading, frozen=True):
    """Errors that the memory controllers report (EDAC). type: corrected, uncorrected."""

    type: str
    errors: float


class Load(Reading, frozen=True):
    """The one-minute load average, and processes that the kernel killed for want of memory."""

    load1: float | None = None
    oom_kills: float | None = None


class Pressure(Reading, frozen=True):
    """Seconds in which work stood still for want of a resource. kind: some, full."""

    resource: str
    kind: str
    pressure_seconds: float


class BlockedProcesses(Reading, frozen=True):
    """Processes in uninterruptible sleep, and how long the oldest has been seen so (0 = none)."""

    processes: float
    oldest_age_seconds: float


class Boot(Reading, frozen=True):
    """When the machine was started (Unix time)."""

    boot_timestamp_seconds: float


class ClockSync(Reading, frozen=True):
    """The kernel's word on its clock: 1 = disciplined; offset signed."""

    synchronized: float
    offset_seconds: float


class Temperature(Reading, frozen=True):
    """A sensor of the machine: chip, device and place, as `nvme/nvme0/Composite`."""

    sensor: str
    temperature_celsius: float


class EnergyZone(Reading, frozen=True):
    """The energy counter of a part of a CPU (RAPL), as it stands. component: cpu, dram.

    It starts again from zero behind `range_joules`; None: the range is not known. Zones do not overlap.
    """

    zone: str
    component: str
    energy_joules: float
    range_joules: float | None = None


class BoardPower(Reading, frozen=True):
    """A power sensor on the board. kind: average, instant.

    scope: platform (the whole node), module (a superchip, with its GPU), socket (a Grace CPU with its
    memory), rail (part of a socket), other. A scope contains those named after it: they are not to be added
    up.
    """

    sensor: str
    scope: str
    kind: str
    power_watts: float


class NodeEnergy(Reading, frozen=True):
    """Joules of a component of the node since the agent started.

    component: gpu, cpu, dram, platform (the whole, apart from the parts), other; method: counter, integrated,
    estimated.
    """

    component: str
    method: str
    energy_joules: float


class NodeMaintenance(Reading, frozen=True):
    """1: people work on the node, and say so."""

    maintenance: float


class PowerFeed(Reading, frozen=True):
    """The share of the node's power that comes from a feed, and what the whole feed can carry."""

    feed: str
    feed_ratio: float
    capacity_watts: float | None


class NodePower(Reading, frozen=True):
    """Watts of a component of the node, by the words of `NodeEnergy`."""

    component: str
    method: str
    power_watts: float
