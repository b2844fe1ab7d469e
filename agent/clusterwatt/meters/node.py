"""Joules and watts of the node by component: gpu, cpu, dram, platform, other.

`platform` is the whole node as its own meter states it (a BMC, through ACPI) and is never added to the
parts; `other` is what it states beyond them, and without such a meter a configured share of the parts. Each
series says its method: a counter that was read, power integrated over time, or an estimate of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from clusterwatt.catalog import CORE, STANDARD, Table
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.gpu import GpuPower
from clusterwatt.readings.gpu_measured import GpuEnergy
from clusterwatt.readings.host import BoardPower, EnergyZone, NodeEnergy, NodePower, PowerFeed

ENERGY = Table(NodeEnergy, labels=("component", "method"))
POWER = Table(NodePower, labels=("component", "method"))
FEED = Table(PowerFeed, labels=("feed",))
METRICS = (
    ENERGY.counter(
        "node_energy_joules_total",
        "Energy of a component since the agent started; `platform` is the whole node, not a further part.",
        "energy_joules",
        CORE,
    ),
    POWER.gauge("node_power_watts", "Power of a component, as its energy.", "power_watts", STANDARD),
    FEED.gauge(
        "node_power_feed_ratio",
        "The share of the node's power that comes from a feed, as configured.",
        "feed_ratio",
        STANDARD,
    ),
    FEED.gauge(
        "power_feed_capacity_watts",
        "What the whole feed can carry, as configured; every node on it repeats the number.",
        "capacity_watts",
        STANDARD,
    ),
)

# No CPU package draws as much; a counter that began anew would look like it for one interval.
MOST_ZONE_WATTS = 2_000.0
LONGEST_GAP_S = 60.0  # power is not integrated across more: what happened in between is not known
PARTS = ("gpu", "cpu", "dram")


def power_feeds(ratios: Mapping[str, float], capacity_watts: Mapping[str, float]) -> Iterator[PowerFeed]:
    """The configured feeds as readings."""
    for feed, ratio in sorted(ratios.items()):
        yield PowerFeed(feed=feed, feed_ratio=ratio, capacity_watts=capacity_watts.get(feed))


class Zone:
    """One wrapping energy counter. The first reading is a baseline, not energy."""

    def __init__(self) -> None:
        self.joules = 0.0
        self.watts: float | None = None
        self._last: tuple[float, float] | None = None

    def add(self, joules: float, range_joules: float | None, read_s: float) -> str | None:
        """Take a reading; returns the reason when its difference to the last was not energy."""
        last = self._last
        if last is not None and read_s <= last[1]:
            return None
        self._last, self.watts = (joules, read_s), None
        if last is None:
            return None
        delta, seconds = joules - last[0], read_s - last[1]
        if delta < 0:
            if range_joules is None:
                return "counter_backwards"
            delta += range_joules
        if not 0 <= delta <= MOST_ZONE_WATTS * seconds:
            return "counter_jump"
        self.joules += delta
        self.watts = delta / seconds
        return None


class Integral:
    """Power over time, as rectangles: an averaged power stands for the time since the last reading."""

    def __init__(self) -> None:
        self.joules = 0.0
        self.watts: float | None = None
        self.stretches = 0  # unbroken ones: a gap begins the next
        self._last_s: float | None = None

    def add(self, watts: float, read_s: float) -> None:
        """Take a reading."""
        last_s = self._last_s
        if last_s is not None and read_s <= last_s:
            return
        if last_s is not None and read_s - last_s <= LONGEST_GAP_S:
            self.joules += watts * (read_s - last_s)
        else:
            self.stretches += 1
        self.watts, self._last_s = watts, read_s


class NodeMeter:
    """Adds up what the parts of the node have used since the agent started. Nothing in it falls."""

    def __init__(self) -> None:
        self._shared_out = 0.0  # joules of the parts of which `other` has its share
        self._zones: dict[str, tuple[str, Zone]] = {}
        self._platform: Integral | None = None
        self._gpus: dict[tuple[str, str], float] = {}  # uuid and method -> joules
        self._other = 0.0
        # The stretch in which the same parts were measured without a gap; rest and `other` when it began.
        self._base: tuple[object, float, float] = (None, 0.0, 0.0)

    def measure(
        self,
        gpu_energies: Iterable[GpuEnergy],
        gpu_powers: Iterable[GpuPower],
        zones: tuple[float, Iterable[EnergyZone]],
        board: tuple[float, Iterable[BoardPower]],
        *,
        other_ratio: float = 0.0,
    ) -> Iterator[Reading]:
        """Take what is known now; zones and board powers come with the monotonic time of their reading.

        `other_ratio`: `other` as a share of the parts, on a node whose whole is not measured; 0: unknown.
        """
        measured: set[str] = set()
        for energy in gpu_energies:
            if energy.scope == "gpu":  # a module holds a CPU too, which would count twice
                self._gpus[energy.uuid, energy.method] = energy.energy_joules
                measured.add("gpu")
        found = tuple(zones[1])
        measured.update(zone.component for zone in found)
        yield from self._take_zones(zones[0], found)
        platform = next((power for power in board[1] if power.scope == "platform"), None)
        if platform is not None:  # several sensors would show the same node
            self._platform = self._platform or Integral()
            self._platform.add(platform.power_watts, board[0])
        # A part that is not measured now has no series: a total that stands still would say it draws nothing.
        joules = {key: value for key, value in self._parts().items() if key[0] in measured}
        watts = {
            key: value
            for key, value in self._part_watts(gpu_powers).items()
            if key[0] in measured or key[0] == "gpu"  # their powers are of now
        }
        if self._platform is not None and platform:
            joules["platform", "integrated"] = self._platform.joules
            joules["other", "estimated"] = self._other_joules(self._platform, joules)
            if self._platform.watts is not None:
                watts["platform", "integrated"] = self._platform.watts
                rest = self._platform.watts - sum(watts[key] for key in watts if key[0] in PARTS)
                watts["other", "estimated"] = max(0.0, rest)
        self._add_share(other_ratio if self._platform is None else 0.0)
        if self._platform is None and other_ratio > 0 and joules:
            joules["other", "estimated"] = self._other
            watts["other", "estimated"] = other_ratio * sum(watts.values())
        for (component, method), value in joules.items():
            yield NodeEnergy(component=component, method=method, energy_joules=value)
        for (component, method), value in watts.items():
            yield NodePower(component=component, method=method, power_watts=value)

    def _take_zones(self, read_s: float, zones: Iterable[EnergyZone]) -> Iterator[Failure]:
        for zone in zones:
            _, meter = self._zones.setdefault(zone.zone, (zone.component, Zone()))
            refused = meter.add(zone.energy_joules, zone.range_joules, read_s)
            if refused:
                yield Failure(item=zone.zone, reason=refused, detail="the energy counter of a CPU")

    def _parts(self) -> dict[tuple[str, str], float]:
        joules: dict[tuple[str, str], float] = {}
        for (_, method), value in self._gpus.items():
            joules["gpu", method] = joules.get(("gpu", method), 0.0) + value
        for component, zone in self._zones.values():
            joules[component, "counter"] = joules.get((component, "counter"), 0.0) + zone.joules
        return joules

    def _part_watts(self, gpu_powers: Iterable[GpuPower]) -> dict[tuple[str, str], float]:
        watts: dict[tuple[str, str], float] = {}
        by_uuid: dict[str, GpuPower] = {}
        for power in gpu_powers:
            if power.scope == "gpu" and (power.uuid not in by_uuid or power.kind == "average"):
                by_uuid[power.uuid] = power
        methods = dict(self._gpus)
        for uuid, power in by_uuid.items():
            method = "counter" if (uuid, "counter") in methods else "integrated"
            watts["gpu", method] = watts.get(("gpu", method), 0.0) + power.power_watts
        for component, zone in self._zones.values():
            if zone.watts is not None:
                watts[component, "counter"] = watts.get((component, "counter"), 0.0) + zone.watts
        return watts

    def _add_share(self, ratio: float) -> None:
        """Let `other` grow with the parts."""
        parts = sum(self._parts().values())
        self._other += ratio * max(0.0, parts - self._shared_out)
        self._shared_out = parts

    def _other_joules(self, platform: Integral, joules: dict[tuple[str, str], float]) -> float:
        """What the platform used beyond its parts, while both were measured without a gap.

        Taken from the totals, so that readings at different times even out; the highest so far, so that it
        does not fall.
        """
        rest = platform.joules - sum(value for (component, _), value in joules.items() if component in PARTS)
        stretch = (platform.stretches, frozenset(joules))
        if self._base[0] != stretch:
            self._base = (stretch, rest, self._other)
        _, rest_then, other_then = self._base
        self._other = max(self._other, other_then + rest - rest_then)
        return self._other
