"""Reads simulated GPUs and tells what would stand on the page, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clusterwatt.collectors.gpu import METRICS, GpuReader
from clusterwatt.node_pids import NodePids
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.gpu import HostReading
from clusterwatt.simulate.work import Cycle, Flat, Signals, Tenant
from tests.collectors.cards import Series
from tests.nvml.drivers import Bench


class Everywhere:
    """The same work on every GPU."""

    def __init__(self, busy: Flat | Cycle) -> None:
        self._signals = Signals(busy=busy, sm=busy, nvlink=Flat(0.0), pcie=Flat(0.0), capped=Flat(0.0))

    def tenant(self, board: int) -> Tenant:
        return Tenant(self._signals)


class Watch:
    """A reader of one GPU of a simulated driver, called on each tick."""

    def __init__(
        self,
        bench: Bench,
        index: int = 0,
        *,
        every_seconds: float = 1.0,
        slow_seconds: float = 30.0,
        pids: NodePids | None = None,
    ) -> None:
        self.bench = bench
        self.device = bench.device(index)
        self.every_seconds = every_seconds
        self.reader = GpuReader(
            self.device, bench.clock, every_seconds=every_seconds, slow_seconds=slow_seconds, pids=pids
        )
        self.failures: list[Failure] = []

    def read(self) -> list[HostReading]:
        groups, failures = self.reader.read()
        self.failures.extend(failures)
        return [reading for group in groups for reading in group]

    def tick(self, times: int = 1) -> list[HostReading]:
        """Time passes, then the GPU is read; the readings of the last time."""
        readings: list[HostReading] = []
        for _ in range(times):
            self.bench.clock.advance(self.every_seconds)
            readings = self.read()
        return readings

    def read_twice(self) -> None:
        self.read()
        self.tick()

    def page(self) -> dict[Series, float]:
        return page(self.tick())


def page(readings: Iterable[Reading]) -> dict[Series, float]:
    """Series and values: name without prefix and label values without gpu and uuid. No series comes twice."""
    series: dict[Series, float] = {}
    for reading in readings:
        for metric in METRICS:
            if type(reading) is not metric.reading:
                continue
            value: Any = 1.0 if metric.kind == "info" else getattr(reading, metric.field)
            if value is None:
                continue
            labels = tuple(getattr(reading, label) for label in metric.labels if label not in ("gpu", "uuid"))
            key = (metric.name, () if metric.kind == "info" else labels)
            assert key not in series, f"{key} twice"
            assert isinstance(value, float), f"{key} is a {type(value)}"
            series[key] = value
    return series


def only(kind: type[Any], readings: Iterable[Reading]) -> Any:
    """The one reading of a type."""
    (found,) = [reading for reading in readings if type(reading) is kind]
    return found
