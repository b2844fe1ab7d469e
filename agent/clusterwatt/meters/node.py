"""Joules and watts of the node by component: gpu, cpu, dram, platform, other.

`platform` is the whole node as its own meter states it (a BMC, through ACPI) and is never added to the
parts; `other` is what it states beyond those that are there (docs/ATTRIBUTION.md), and without such a meter a
configured share of the parts. Each series says its method: a counter that was read, power integrated over
time, or an estimate of the others.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from clusterwatt.catalog import CORE, STANDARD, Table
from clusterwatt.clock import GAP_INTERVALS
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
SETTLE_S = 30.0  # after the first reading of the platform: the driver may answer later than a BMC
USUAL_S, SHORTEST_S = 1.0, 0.8  # intervals of readings of GPUs


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


class Draw:
    """Mean power of a GPU between its newest two readings; None where that was not measured."""

    def __init__(self) -> None:
        self.watts: float | None = None
        self._last: tuple[float, float] | None = None
        self._seconds = USUAL_S  # between the two readings before

    def add(self, joules: float, read_s: float) -> None:
        """Take the GPU's total as it stood when the driver was read.

        Readings that follow faster than `SHORTEST_S` are taken together: drivers renew their counters seldom.
        """
        last = self._last
        if last is not None and read_s - last[1] < SHORTEST_S:
            return
        self._last, self.watts = (joules, read_s), None
        if last is None:
            return
        delta, seconds = joules - last[0], read_s - last[1]
        # Every board draws something: a total that stands still was not measured.
        if delta > 0 and seconds <= GAP_INTERVALS * max(self._seconds, USUAL_S):
            self.watts = delta / seconds
        self._seconds = seconds


class Integral:
    """Power over time, as rectangles: an averaged power stands for the time since the last reading."""

    def __init__(self) -> None:
        self.joules = 0.0
        self.watts: float | None = None
        self._last_s: float | None = None
        self._intervals: deque[float] = deque(maxlen=2)

    def add(self, watts: float, read_s: float) -> float | None:
        """Take a reading; returns the seconds that it stands for, None where it is not a new one."""
        last_s = self._last_s
        if last_s is not None and read_s <= last_s:
            return None
        self.watts, self._last_s = watts, read_s
        if last_s is None:
            return 0.0
        seconds = read_s - last_s
        # A BMC may be read so seldom that its usual interval would look like a gap.
        usual_s = min(self._intervals, default=0.0)
        self._intervals.append(seconds)
        if seconds > max(LONGEST_GAP_S, GAP_INTERVALS * usual_s):
            return 0.0
        self.joules += watts * seconds
        return seconds


class Rest:
    """What the platform draws beyond its parts: their powers of one moment, over the time since the last.

    Both are noisy, and are not averaged over the same time: what is less than nothing is kept as a debt of
    what comes, so that the total does not fall and noise does not make it grow.
    """

    def __init__(self) -> None:
        self.joules = 0.0
        self.watts: float | None = None  # None: not every part was measured
        self._debt_joules = 0.0

    def owe(self, joules: float) -> None:
        """Take back what turns out to be in a part: it is missing from what comes."""
        self._debt_joules += joules

    def add(self, platform_watts: float, parts_watts: float | None, seconds: float) -> None:
        """Take a new reading of the platform; `parts_watts` is None unless every known part is measured."""
        known_at_both_ends = self.watts is not None and parts_watts is not None
        self.watts = None if parts_watts is None else max(0.0, platform_watts - parts_watts)
        if not known_at_both_ends or parts_watts is None:
            return
        balance = (platform_watts - parts_watts) * seconds - self._debt_joules
        self.joules += max(0.0, balance)
        self._debt_joules = max(0.0, -balance)


class NodeMeter:
    """Adds up what the parts of the node have used since the agent started. Nothing in it falls."""

    def __init__(self) -> None:
        self._shared_out = 0.0  # joules of the parts of which `other` has its share
        self._zones: dict[str, tuple[str, Zone]] = {}
        self._platform: Integral | None = None
        self._platform_since_s = 0.0
        self._gpus: dict[tuple[str, str], float] = {}  # uuid and method -> joules
        self._methods: dict[str, str] = {}  # by which a GPU's newest joules were measured, by UUID
        self._draws: dict[str, Draw] = {}  # of each GPU that was ever measured
        self._rest = Rest()
        self._left: dict[str, float] = {}  # joules of the rest when a GPU was gone, by UUID
        self._balanced = frozenset[str]()  # GPUs that the newest reading of the platform was held against
        self._share = 0.0  # joules of `other` as a share of the parts

    def measure(
        self,
        gpu_energies: Iterable[GpuEnergy],
        gpu_powers: Iterable[GpuPower],
        zones: tuple[float, Iterable[EnergyZone]],
        board: tuple[float, Iterable[BoardPower]],
        *,
        gpu_read_s: Mapping[str, float],
        gone: Collection[str] = (),
        other_ratio: float = 0.0,
    ) -> Iterator[Reading]:
        """Take what is known now; zones and board powers come with the monotonic time of their reading.

        `gpu_read_s`: when each GPU's energy was read, monotonic, by UUID.
        `gone`: UUIDs of GPUs that the driver has no more; what others draw that are silent is not known.
        `other_ratio`: `other` as a share of the parts, on a node whose whole is not measured; 0: unknown.
        """
        gpus = self._take_gpus(gpu_energies, gpu_read_s)
        for uuid in self._draws.keys() & set(gone) - gpus:
            self._left.setdefault(uuid, self._rest.joules)
        found = tuple(zones[1])
        measured = {zone.component for zone in found} | ({"gpu"} if gpus else set[str]())
        yield from self._take_zones(zones[0], found)
        platform = next((power for power in board[1] if power.scope == "platform"), None)
        if platform is not None:  # several sensors would show the same node
            if self._platform is None:
                self._platform, self._platform_since_s = Integral(), board[0]
            seconds = self._platform.add(platform.power_watts, board[0])
            if seconds is not None:
                settled = board[0] - self._platform_since_s >= SETTLE_S
                parts_watts = self._draw_of_all(gpus, {zone.zone for zone in found})
                self._rest.add(platform.power_watts, parts_watts if settled else None, seconds)
        # A part that is not measured now has no series: a total that stands still would say it draws nothing.
        joules = {key: value for key, value in self._parts().items() if key[0] in measured}
        watts = {
            key: value
            for key, value in self._part_watts(gpu_powers).items()
            if key[0] in measured or key[0] == "gpu"  # their powers are of now
        }
        if self._platform is not None and platform:
            joules["platform", "integrated"] = self._platform.joules
            if self._platform.watts is not None:
                watts["platform", "integrated"] = self._platform.watts
            if self._rest.watts is not None:
                joules["other", "estimated"] = self._rest.joules
                watts["other", "estimated"] = self._rest.watts
        self._add_share(other_ratio if self._platform is None else 0.0)
        if self._platform is None and other_ratio > 0 and joules:
            joules["other", "estimated"] = self._share
            watts["other", "estimated"] = other_ratio * sum(watts.values())
        for (component, method), value in joules.items():
            yield NodeEnergy(component=component, method=method, energy_joules=value)
        for (component, method), value in watts.items():
            yield NodePower(component=component, method=method, power_watts=value)

    def _take_gpus(self, energies: Iterable[GpuEnergy], read_s: Mapping[str, float]) -> set[str]:
        """Take the GPUs' totals, of which a GPU may have one for each method; returns who is measured."""
        by_uuid: defaultdict[str, list[GpuEnergy]] = defaultdict(list)
        for energy in energies:
            if energy.scope == "gpu":  # a module holds a CPU too, which would count twice
                by_uuid[energy.uuid].append(energy)
        for uuid, totals in by_uuid.items():
            grown = 0.0
            for energy in totals:
                joules = energy.energy_joules - self._gpus.get((uuid, energy.method), 0.0)
                self._gpus[uuid, energy.method] = energy.energy_joules
                if joules > 0 or uuid not in self._methods:
                    self._methods[uuid] = energy.method
                grown += joules
            self._come_back(uuid, grown)
            draw = self._draws.setdefault(uuid, Draw())
            if uuid in read_s:
                draw.add(sum(energy.energy_joules for energy in totals), read_s[uuid])
        return set(by_uuid)

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
        for uuid, power in by_uuid.items():
            method = self._methods.get(uuid, "integrated")
            watts["gpu", method] = watts.get(("gpu", method), 0.0) + power.power_watts
        for component, zone in self._zones.values():
            if zone.watts is not None:
                watts[component, "counter"] = watts.get((component, "counter"), 0.0) + zone.watts
        return watts

    def _add_share(self, ratio: float) -> None:
        """Let `other` grow with the parts."""
        parts = sum(self._parts().values())
        self._share += ratio * max(0.0, parts - self._shared_out)
        self._shared_out = parts

    def _come_back(self, uuid: str, used_joules: float) -> None:
        """Take out of the rest what a GPU that was gone has used meanwhile, as its counter tells now."""
        rest_then = self._left.pop(uuid, None)
        if rest_then is not None:
            self._rest.owe(min(used_joules, self._rest.joules - rest_then))

    def _draw_of_all(self, gpus: Collection[str], zones: Collection[str]) -> float | None:
        """Power of all parts together; None unless each that is known and not gone is measured now.

        What a GPU draws that does not answer is not known, and so not what is left without it. Nor is it for
        the reading in which one goes: the platform may state a mean with that GPU in it.
        """
        there = frozenset(self._draws.keys() - self._left.keys())
        as_before, self._balanced = there == self._balanced, there
        watts = [self._draws[uuid].watts if uuid in gpus else None for uuid in there]
        watts += [meter.watts if zone in zones else None for zone, (_, meter) in self._zones.items()]
        known = [each for each in watts if each is not None]
        return sum(known) if as_before and len(known) == len(watts) else None
