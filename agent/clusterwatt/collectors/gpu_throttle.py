"""What holds the clocks of a GPU down, and for how long: clock event reasons (nvml.h).

The driver counts nanoseconds for some reasons; these counters catch what happens between two readings. For
the others the bit mask of the moment is integrated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from clusterwatt.catalog import CORE, FULL, STANDARD, LevelBy, Table
from clusterwatt.clock import Clock
from clusterwatt.collectors.gpu_integrals import Integral
from clusterwatt.nvml.constants import (
    FIELD_HELD_BOARD_LIMIT,
    FIELD_HELD_LOW_UTILIZATION,
    FIELD_HELD_POWER,
    FIELD_HELD_RELIABILITY,
    FIELD_HELD_SYNC_BOOST,
    FIELD_HELD_THERMAL,
    Field,
)
from clusterwatt.nvml.device import Device
from clusterwatt.readings.gpu import GpuThrottle

log = logging.getLogger("clusterwatt.gpu")

THROTTLE = Table(GpuThrottle, labels=("gpu", "uuid", "reason"))
METRICS = (
    THROTTLE.counter(
        "gpu_throttle_seconds_total",
        "Seconds for which a reason has held the clocks down, since the agent started.",
        "throttle_seconds",
        by=LevelBy(
            "reason",
            {
                "hw_thermal": CORE,
                "hw_power_brake": CORE,
                "hw_slowdown": STANDARD,
                "sw_thermal": STANDARD,
                "sw_power_cap": STANDARD,
                "idle": FULL,
                "app_clocks": FULL,
                "sync_boost": FULL,
                "display": FULL,
                "board_limit": FULL,
                "reliability": FULL,
                "low_utilization": FULL,
                "unknown": FULL,
            },
        ),
    ),
    THROTTLE.gauge("gpu_throttle_active", "1 while a reason holds the clocks down.", "active", FULL),
)

BITS = {
    "idle": 0x1,
    "app_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display": 0x100,
    "board_limit": 0x200,
    "reliability": 0x400,
}
REASONS = (*BITS, "low_utilization", "unknown")
KNOWN_BITS = sum(BITS.values())
USUAL_BITS = 0x1FF  # supported where the driver does not say which are; the others are of older headers
COUNTERS: Mapping[str, Field] = {
    "sw_power_cap": FIELD_HELD_POWER,
    "sw_thermal": FIELD_HELD_THERMAL,
    "sync_boost": FIELD_HELD_SYNC_BOOST,
    "board_limit": FIELD_HELD_BOARD_LIMIT,
    "low_utilization": FIELD_HELD_LOW_UTILIZATION,
    "reliability": FIELD_HELD_RELIABILITY,
}
CURRENT = (("nvmlDeviceGetCurrentClocksEventReasons",), ("nvmlDeviceGetCurrentClocksThrottleReasons",))
SUPPORTED = (("nvmlDeviceGetSupportedClocksEventReasons",), ("nvmlDeviceGetSupportedClocksThrottleReasons",))
SLACK_S = 1.0  # a counter may be brought up to date at its own time


def hardware_counters(driver_version: str) -> Mapping[str, Field]:
    """Counters of hardware slowdowns, whose ids have moved between driver branches.

    r575 and early r580 have them at 252 and 253, r590 and newer at 270 and 271, where early r580 has
    power smoothing: a plausible wrong number. When r580 changed over is not known, so it gets none beyond
    580.65, the newest that was seen with the old ids.
    """
    parts = [int(part) if part.isdigit() else 0 for part in driver_version.split(".")]
    branch, release = (*parts, 0, 0)[:2]
    if branch >= 590:
        return {"hw_thermal": (270, 0), "hw_power_brake": (271, 0)}
    if branch == 575 or (branch == 580 and release <= 65):
        return {"hw_thermal": (252, 0), "hw_power_brake": (253, 0)}
    return {}


class HeldDown:
    """Seconds for which one reason has held the clocks down: as the driver counts, else as seen."""

    def __init__(self, interval_s: float) -> None:
        self._counted_s: float | None = None
        self._seen = Integral(interval_s)
        self._last: tuple[float, float] | None = None  # time, nanoseconds
        self.distrusted = False

    @property
    def seconds(self) -> float | None:
        """Seconds so far; None while nothing is known."""
        if self._counted_s is None and self._seen.total is None:
            return None
        return (self._counted_s or 0.0) + (self._seen.total or 0.0)

    def count(self, nanoseconds: float, now_s: float) -> None:
        """Take the driver's counter. One that runs faster than time counts something else, and is dropped."""
        last, self._last = self._last, (now_s, nanoseconds)
        if last is None or self._counted_s is None:
            self._counted_s = 0.0
            return
        seconds = (nanoseconds - last[1]) / 1e9
        if seconds > now_s - last[0] + SLACK_S:
            self.distrusted = True
        else:
            self._counted_s += max(0.0, seconds)

    def see(self, active: float, now_s: float) -> None:
        """Take the state of the moment."""
        self._seen.add(active, now_s, averaged=False)


class Throttle:
    """The reasons of one GPU."""

    def __init__(self, device: Device, clock: Clock, interval_s: float) -> None:
        self._device = device
        self._clock = clock
        self._since_s = clock.monotonic_s()
        counters = {**COUNTERS, **hardware_counters(device.driver_version)}
        self._held = [(reason, HeldDown(interval_s), counters.get(reason)) for reason in REASONS]
        self._supported: int | None = None
        self._unknown = False  # a bit that has no name here was supported or set
        self.fields = tuple(counters.values())

    def read(self, values: Mapping[Field, float]) -> Iterator[GpuThrottle]:
        """All reasons that the card supports, from the fields just read and the mask of the moment."""
        now_s = self._clock.monotonic_s()
        active = self._active()
        for reason, held, field in self._held:
            state = active.get(reason)
            nanoseconds = None if field is None or held.distrusted else values.get(field)
            if nanoseconds is not None:
                held.count(nanoseconds, now_s)
                if held.distrusted:
                    log.warning("GPU %s: field %s is no counter of %s", self._device.gpu, field, reason)
            counted = (
                field is not None
                and not held.distrusted
                and (nanoseconds is not None or not self._device.lacks(*field))
            )
            if state is not None and not counted:
                held.see(state, now_s)
            seconds = held.seconds
            if seconds is not None or state is not None:
                yield GpuThrottle(
                    gpu=self._device.gpu,
                    uuid=self._device.uuid,
                    reason=reason,
                    since_s=self._since_s,
                    throttle_seconds=seconds,
                    active=state,
                )

    def _active(self) -> dict[str, float]:
        """0 or 1 for each supported reason; nothing when the driver does not tell now."""
        mask = self._device.ask_first(*CURRENT)
        if mask is None:
            return {}
        if self._supported is None:
            self._supported = self._device.ask_first(*SUPPORTED)
        supported = USUAL_BITS if self._supported is None else self._supported
        active = {reason: float(bool(mask & bit)) for reason, bit in BITS.items() if supported & bit}
        self._unknown = self._unknown or bool((supported | mask) & ~KNOWN_BITS)
        if self._unknown:
            active["unknown"] = float(bool(mask & ~KNOWN_BITS))
        return active
