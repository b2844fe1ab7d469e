"""Clocks and P-state of a GPU (nvml.h)."""

from __future__ import annotations

from collections.abc import Iterator

from clusterwatt.catalog import CORE, FULL, STANDARD, LevelBy, Table
from clusterwatt.nvml.constants import CLOCK_GRAPHICS, CLOCK_MEMORY, CLOCK_SM, CLOCK_VIDEO, NOT_AVAILABLE
from clusterwatt.nvml.device import Device
from clusterwatt.readings.gpu import GpuClock, GpuClockMax, GpuPerformanceState

CLOCK = Table(GpuClock, labels=("gpu", "uuid", "domain"))
CLOCK_MAX = Table(GpuClockMax, labels=("gpu", "uuid", "domain"))
STATE = Table(GpuPerformanceState, labels=("gpu", "uuid"))
METRICS = (
    CLOCK.gauge(
        "gpu_clock_hertz",
        "Clock now.",
        "clock_hertz",
        by=LevelBy("domain", {"sm": CORE, "memory": STANDARD, "graphics": FULL, "video": FULL}),
    ),
    CLOCK_MAX.gauge(
        "gpu_clock_max_hertz",
        "Highest clock that the GPU can be set to.",
        "max_hertz",
        by=LevelBy("domain", {"sm": STANDARD, "memory": STANDARD, "graphics": FULL, "video": FULL}),
    ),
    STATE.gauge(
        "gpu_performance_state", "P-state: 0 is the fastest, 15 the slowest.", "performance_state", STANDARD
    ),
)

DOMAINS = {"sm": CLOCK_SM, "memory": CLOCK_MEMORY, "graphics": CLOCK_GRAPHICS, "video": CLOCK_VIDEO}
SLOWEST_STATE = 15  # 32 means unknown


def sm_clock(device: Device) -> Iterator[GpuClock]:
    """The clock that work runs at."""
    yield from _clocks(device, "sm")


def other_clocks(device: Device) -> Iterator[GpuClock]:
    """Clocks of memory, graphics and video."""
    yield from _clocks(device, "memory", "graphics", "video")


def max_clocks(device: Device) -> Iterator[GpuClockMax]:
    """The highest setting of each clock."""
    for domain, number in DOMAINS.items():
        hertz = _hertz(device.ask("nvmlDeviceGetMaxClockInfo", number))
        if hertz is not None:
            yield GpuClockMax(gpu=device.gpu, uuid=device.uuid, domain=domain, max_hertz=hertz)


def performance_state(device: Device) -> Iterator[GpuPerformanceState]:
    """The P-state, where it is known."""
    state = device.ask_first(("nvmlDeviceGetPerformanceState",), ("nvmlDeviceGetPowerState",))
    if state is not None and 0 <= state <= SLOWEST_STATE:
        yield GpuPerformanceState(gpu=device.gpu, uuid=device.uuid, performance_state=float(state))


def _clocks(device: Device, *domains: str) -> Iterator[GpuClock]:
    for domain in domains:
        hertz = _hertz(device.ask("nvmlDeviceGetClockInfo", DOMAINS[domain]))
        if hertz is not None:
            yield GpuClock(gpu=device.gpu, uuid=device.uuid, domain=domain, clock_hertz=hertz)


def _hertz(megahertz: int | None) -> float | None:
    return None if megahertz is None or megahertz == NOT_AVAILABLE else megahertz * 1e6
