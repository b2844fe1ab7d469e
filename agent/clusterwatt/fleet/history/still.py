"""The series that stand still on a node without faults, as the real pipeline has them after a few ticks.

Nodes of the same model, scheduler and logs differ in the names of their GPUs alone, so few of them are asked.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from clusterwatt.catalog import PROFILES
from clusterwatt.fleet.history.moving import MOVING
from clusterwatt.fleet.history.text import FAMILIES, Block, Lines, labels_of, value_of
from clusterwatt.fleet.node import FleetNode, FleetSettings, library_seed, node_name
from clusterwatt.simulate.cluster import Cluster, scheduler_of
from clusterwatt.simulate.gpu import simulated_serial, simulated_uuid
from clusterwatt.simulate.runs import Log
from clusterwatt.simulate.troubles import Troubles

TICKS = 5


class Standing(NamedTuple):
    """A series and the value that it keeps."""

    family: str
    labels: dict[str, str]
    value: float


class Instant:
    """A clock that somebody sets."""

    def __init__(self, wall_s: float) -> None:
        self._wall_s = wall_s
        self._monotonic_s = 1_000.0

    def wall_s(self) -> float:
        """Unix time."""
        return self._wall_s

    def monotonic_s(self) -> float:
        """Seconds since some moment."""
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._wall_s += seconds
        self._monotonic_s += seconds


class StillLife:
    """Standing series of every node of a cluster."""

    def __init__(
        self, settings: FleetSettings, cluster: Cluster, families: Collection[str], from_s: float
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._families = [FAMILIES[name] for name in FAMILIES if name in families and name not in MOVING]
        self._from_s = from_s
        self._seen: dict[tuple[object, ...], tuple[int, list[Standing]]] = {}
        asyncio.run(self._look())

    def write(self, block: Block, numbers: Iterable[int]) -> None:
        """The standing series of some nodes in a block of time."""
        flat: dict[float, Lines] = {}
        for number in numbers:
            like, series = self._seen[self._kind_of(number)]
            names = dict(zip(self._names(like), self._names(number), strict=True))
            name = node_name(number)
            for family, labels, value in series:
                if value not in flat:
                    flat[value] = block.flat(value)
                own = {label: names.get(text, text) for label, text in labels.items()}
                block.add(family, name, own, flat[value])

    async def _look(self) -> None:
        """See a node of each kind."""
        for number in range(self._cluster.nodes):
            key = self._kind_of(number)
            if key not in self._seen:
                self._seen[key] = (number, await self._of(number))

    def _kind_of(self, number: int) -> tuple[object, ...]:
        return (
            self._settings.profiles[number % len(self._settings.profiles)],
            scheduler_of(number),
            any(lane.places[0][0] == number for lane in self._cluster.on(number)),
            number == 0,
        )

    def _names(self, number: int) -> list[str]:
        """UUIDs and serial numbers of a node's boards."""
        seed, boards = library_seed(self._cluster.seed, number), range(self._cluster.gpus)
        return [made(seed, board) for made in (simulated_uuid, simulated_serial) for board in boards]

    async def _of(self, number: int) -> list[Standing]:
        clock = Instant(self._from_s)
        logs = [Log(lane) for lane in self._cluster.on(number) if lane.places[0][0] == number]
        with tempfile.TemporaryDirectory(prefix="clusterwatt-history-") as folder:
            node = FleetNode(
                self._settings, self._cluster, number, clock, Path(folder), troubles=Troubles(), logs=logs
            )
            for _ in range(TICKS):
                node.tick()
                clock.advance(self._settings.every_s)
            snapshot = node.snapshot
            await node.site.stop()
            node.stop()
        level = PROFILES[self._settings.level]
        return [
            Standing(metric.name, labels_of(metric, reading), value)
            for metric in self._families
            for reading in snapshot.of(metric.reading)
            if metric.level_of(reading) <= level and (value := value_of(metric, reading)) is not None
        ]
