"""Writes a history of the simulated cluster for `promtool tsdb create-blocks-from openmetrics`.

promtool reads a file several times, once for each block of two hours that it makes, maps the whole file and
keeps a block in memory: so a file holds two hours of some of the nodes. Each file becomes a block of its own;
Prometheus merges those of the same hours.
https://prometheus.io/docs/prometheus/latest/storage/#backfilling-from-openmetrics-format
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from clusterwatt.clock import SystemClock
from clusterwatt.fleet.history import asked, spells
from clusterwatt.fleet.history.moving import History
from clusterwatt.fleet.history.still import StillLife
from clusterwatt.fleet.history.text import Block
from clusterwatt.fleet.node import FleetSettings
from clusterwatt.simulate.cluster import BLOCK, Cluster

BLOCK_S = 7_200  # of Prometheus, counted from 1970
BOARD = "cluster"
NODES_A_FILE = 8 * BLOCK  # lanes of jobs end with a block; with eight GPUs a node, 2 GB at a step of a minute


class Span(msgspec.Struct, frozen=True):
    """The times of a history: Unix seconds, the last one left out, and seconds between two samples."""

    from_s: int
    until_s: int
    step_s: int

    def blocks(self) -> Iterator[Sequence[float]]:
        """The times by block of Prometheus."""
        at_s = self.from_s
        while at_s < self.until_s:
            end_s = min(self.until_s, (at_s // BLOCK_S + 1) * BLOCK_S)
            times = [float(time_s) for time_s in range(at_s, end_s, self.step_s)]
            yield times
            at_s = int(times[-1]) + self.step_s


class Written(msgspec.Struct, frozen=True):
    """A file, its samples and the seconds that they took."""

    path: Path
    samples: int
    took_s: float


def backfill(settings: FleetSettings, span: Span, folder: Path, *, healthy: bool) -> Iterator[Written]:
    """Write the files, in the order of time. `healthy`: nothing is wrong with any job. Raises OSError."""
    families = asked.by_rules() | asked.by_board(BOARD)
    cluster = Cluster(settings.nodes, settings.gpus, settings.seed)
    if healthy:
        spells.heal(cluster, span.from_s, span.until_s)
    folder.mkdir(parents=True, exist_ok=True)
    clock = SystemClock()
    began_s = clock.monotonic_s()
    still = StillLife(settings, cluster, families, span.from_s)
    history = History(cluster, settings.profiles, from_s=span.from_s, until_s=span.until_s)
    for times in span.blocks():
        for first in range(0, settings.nodes, NODES_A_FILE):
            numbers = range(first, min(settings.nodes, first + NODES_A_FILE))
            path = folder / f"{math.floor(times[0])}-{first}.om"
            with Block(path, families, times) as block:
                still.write(block, numbers)
                history.write(block, numbers)
            now_s = clock.monotonic_s()
            yield Written(path, block.samples, now_s - began_s)
            began_s = clock.monotonic_s()
