"""Builds a fleet, ticks it and serves it until told to stop. Nobody but the command line imports this."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import tempfile
from pathlib import Path

from clusterwatt import descriptors
from clusterwatt.clock import Clock, SystemClock
from clusterwatt.fleet import placed
from clusterwatt.fleet.clock import FleetClock
from clusterwatt.fleet.naming import lines_of, name_nodes
from clusterwatt.fleet.node import FleetNode, FleetSettings
from clusterwatt.fleet.play import Play
from clusterwatt.fleet.scenario import CALM, Scenario
from clusterwatt.fleet.site import FleetSite
from clusterwatt.simulate.cluster import Cluster
from clusterwatt.simulate.runs import Log

log = logging.getLogger("clusterwatt.fleet")


class Fleet:
    """All nodes of a simulated cluster, on one clock. `folder`: for their ledgers."""

    def __init__(
        self, settings: FleetSettings, clock: Clock, folder: Path, scenario: Scenario = CALM
    ) -> None:
        self._clock = clock
        size = settings.nodes, settings.gpus, settings.seed
        own = tuple(placed.lanes(scenario.jobs, clock.wall_s(), *size))
        self.cluster = Cluster(*size, own)
        self._play = Play(scenario, self.cluster, clock.wall_s())
        logs: dict[int, list[Log]] = {}
        for lane in self.cluster.lanes:
            logs.setdefault(lane.places[0][0], []).append(self._play.log(lane))
        self.nodes = [
            FleetNode(
                settings,
                self.cluster,
                number,
                clock,
                folder,
                troubles=self._play.troubles(number),
                logs=logs.get(number, ()),
            )
            for number in range(settings.nodes)
        ]
        for node in self.nodes:
            self._play.prepare(node.number, node.library)

    async def tick(self) -> None:
        """One tick of each node; requests are answered in between."""
        for node in self.nodes:
            self._play.apply(node.number, node.library, self._clock.wall_s())
            with lines_of(node.name):
                node.tick()
            await asyncio.sleep(0)

    def absent(self) -> frozenset[int]:
        """Numbers of the nodes that have left the cluster."""
        return self._play.absent(self._clock.wall_s())

    def dead(self) -> frozenset[int]:
        """Numbers of the nodes whose exporter does not answer."""
        return self._play.dead(self._clock.wall_s())

    def stop(self) -> None:
        """Close the books of all nodes."""
        for node in self.nodes:
            with lines_of(node.name):
                node.stop()


def run(settings: FleetSettings, listen: str, speed: float, scenario: Scenario = CALM) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status. Raises OSError where it cannot listen."""
    descriptors.raise_limit()
    name_nodes()
    with tempfile.TemporaryDirectory(prefix="clusterwatt-fleet-") as folder:
        return asyncio.run(_run(settings, listen, speed, Path(folder), scenario))


async def _run(settings: FleetSettings, listen: str, speed: float, folder: Path, scenario: Scenario) -> int:
    clock = FleetClock(SystemClock(), speed, settings.every_s)
    fleet = Fleet(settings, clock, folder, scenario)
    gc.collect()
    gc.freeze()  # what a fleet is made of stays: to look through it again and again is half of a tick
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    site = FleetSite(fleet.nodes, absent=fleet.absent, dead=fleet.dead)
    address = await site.start(listen)
    log.info("simulated cluster of %d nodes on http://%s", settings.nodes, address)
    try:
        while not stop.is_set():
            await fleet.tick()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), clock.wait_s())
            clock.step()
    finally:
        await site.stop()
        fleet.stop()
    return 0
