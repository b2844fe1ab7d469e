"""The last five minutes, one point each two seconds: what the live page draws its small curves from."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

import msgspec

from clusterwatt.readings.gpu import GpuMemory, GpuPower, GpuTemperature, GpuUse
from clusterwatt.readings.host import CpuCount, CpuTime, Memory, Pressure
from clusterwatt.readings.network import Network, RdmaPort
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.readings.storage import Disk
from clusterwatt.readings.work import GpuState, GpuStateCost

POINTS = 150
STEP_S = 2.0
GAP_S = 30.0
SHOWN_INTERFACES = ("physical", "bond")  # a node full of pods has hundreds of others

Key = tuple[str, str, str]  # kind of thing, which one, quantity
Curve = tuple[float | None, ...]


class Curves(msgspec.Struct, frozen=True):
    """A copy of the history: how old each point is, and the curves of each thing; None is a hole."""

    seconds_ago: tuple[float, ...]
    things: Mapping[tuple[str, str], Mapping[str, Curve]]

    def of(self, kind: str, item: str) -> Mapping[str, Curve]:
        """The curves of one thing, by quantity."""
        return self.things.get((kind, item), {})


class History:
    """A ring of points for each curve. A curve that has had no point for its whole length is forgotten."""

    def __init__(self, points: int = POINTS, step_s: float = STEP_S) -> None:
        self._points = points
        self._step_s = step_s
        self._times_s: deque[float] = deque(maxlen=points)
        self._curves: dict[Key, deque[float | None]] = {}
        self._counters: dict[Key, float] = {}

    def append(self, snapshot: Snapshot) -> None:
        """Add a point to each curve if it is time for one.

        A rate has no point where its counter was absent before, fell, or was not looked at for half a minute;
        such a pause leaves a hole in every curve.
        """
        now_s = snapshot.monotonic_s
        elapsed_s = now_s - self._times_s[-1] if self._times_s else 0.0
        if self._times_s and elapsed_s < 0.9 * self._step_s:  # ticks come a little early and late
            return
        if elapsed_s > GAP_S:
            self._add(now_s - elapsed_s / 2, {})
            self._counters = {}
        points = dict(_gauges(snapshot))
        counters = dict(_counters(snapshot))
        for key, counter in counters.items():
            before = self._counters.get(key)
            if before is not None and counter >= before and elapsed_s > 0:
                points[key] = (counter - before) / elapsed_s
        self._counters = counters
        self._add(now_s, points)

    def curves(self) -> Curves:
        """A copy that does not change any more."""
        newest_s = self._times_s[-1] if self._times_s else 0.0
        things: dict[tuple[str, str], dict[str, Curve]] = {}
        for (kind, item, quantity), points in self._curves.items():
            things.setdefault((kind, item), {})[quantity] = tuple(points)
        return Curves(tuple(round(newest_s - time_s, 1) for time_s in self._times_s), things)

    def _add(self, time_s: float, points: Mapping[Key, float]) -> None:
        for key in points.keys() - self._curves.keys():
            self._curves[key] = deque([None] * len(self._times_s), maxlen=self._points)
        self._times_s.append(time_s)
        for key, curve in tuple(self._curves.items()):
            point = points.get(key)
            curve.append(None if point is None else float(f"{point:.4g}"))  # finer than any screen
            if point is None and not any(value is not None for value in curve):
                del self._curves[key]


def gpu_power_watts(snapshot: Snapshot) -> dict[str, float]:
    """Power of each GPU by uuid: the average where the driver gives it, else the instant."""
    own = [reading for reading in snapshot.of(GpuPower) if reading.scope == "gpu"]
    own.sort(key=lambda reading: reading.kind == "average")
    return {reading.uuid: reading.power_watts for reading in own}


def _gauges(snapshot: Snapshot) -> Iterator[tuple[Key, float]]:
    for use in snapshot.of(GpuUse):
        if use.utilization_ratio is not None:
            yield ("gpu", use.uuid, "utilization_ratio"), use.utilization_ratio
    for uuid, watts in gpu_power_watts(snapshot).items():
        yield ("gpu", uuid, "power_watts"), watts
    for memory in snapshot.of(GpuMemory):
        if memory.used_bytes is not None and memory.total_bytes:
            yield ("gpu", memory.uuid, "memory_used_ratio"), memory.used_bytes / memory.total_bytes
    for temperature in snapshot.of(GpuTemperature):
        if temperature.sensor == "core":
            yield ("gpu", temperature.uuid, "temperature_celsius"), temperature.temperature_celsius
    for main in snapshot.of(Memory):
        if main.available_bytes is not None and main.total_bytes:
            yield ("host", "", "memory_used_ratio"), 1 - main.available_bytes / main.total_bytes


def _counters(snapshot: Snapshot) -> Iterator[tuple[Key, float]]:
    """Counters, and what their rate is called."""
    for interface in snapshot.of(Network):
        if interface.kind in SHOWN_INTERFACES:
            yield from _traffic(
                "network", interface.device, interface.receive_bytes, interface.transmit_bytes
            )
    for port in snapshot.of(RdmaPort):
        yield from _traffic("rdma", f"{port.device}/{port.port}", port.receive_bytes, port.transmit_bytes)
    for disk in snapshot.of(Disk):
        yield ("disk", disk.device, "read_bytes_per_second"), disk.read_bytes
        yield ("disk", disk.device, "written_bytes_per_second"), disk.written_bytes
        yield ("disk", disk.device, "busy_ratio"), disk.busy_seconds
    for state in snapshot.of(GpuState):
        yield ("gpu", state.uuid, f"{state.state}_ratio"), state.state_seconds
    costs: dict[tuple[str, str], float] = {}
    for cost in snapshot.of(GpuStateCost):
        costs[cost.state, cost.currency] = costs.get((cost.state, cost.currency), 0.0) + cost.cost
    for (name, currency), total in costs.items():
        yield ("cost_per_second", name, currency), total
    cpus = sum(count.cpus for count in snapshot.of(CpuCount))
    modes = {time.mode: time.cpu_seconds for time in snapshot.of(CpuTime)}
    if cpus and modes:
        idle_seconds = modes.get("idle", 0.0) + modes.get("iowait", 0.0)
        yield ("host", "", "cpu_busy_ratio"), (sum(modes.values()) - idle_seconds) / cpus
    for pressure in snapshot.of(Pressure):
        if pressure.kind == "some":
            yield ("host", "", f"{pressure.resource}_pressure_ratio"), pressure.pressure_seconds


def _traffic(
    kind: str, item: str, receive_bytes: float | None, transmit_bytes: float | None
) -> Iterator[tuple[Key, float]]:
    if receive_bytes is not None:
        yield (kind, item, "receive_bytes_per_second"), receive_bytes
    if transmit_bytes is not None:
        yield (kind, item, "transmit_bytes_per_second"), transmit_bytes
