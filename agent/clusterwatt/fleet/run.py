"""Builds a fleet, ticks it and serves it until told to stop. Nobody but the command line imports this."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import tempfile
from pathlib import Path

from clusterwatt import descriptors
from clusterwatt.clock import Clock, SystemClock
from clusterwatt.fleet.clock import FleetClock
from clusterwatt.fleet.node import FleetNode, FleetSettings
from clusterwatt.fleet.site import FleetSite
from clusterwatt.simulate.cluster import Cluster
from clusterwatt.simulate.runs import Log
from clusterwatt.simulate.troubles import Troubles

log = logging.getLogger("clusterwatt.fleet")


class Fleet:
    """All nodes of a simulated cluster, on one clock. `folder`: for their ledgers."""

    def __init__(self, settings: FleetSettings, clock: Clock, folder: Path) -> None:
        self.cluster = Cluster(settings.nodes, settings.gpus, settings.seed)
        logs: dict[int, list[Log]] = {}
        for lane in self.cluster.lanes:
            logs.setdefault(lane.places[0][0], []).append(Log(lane))
        self.nodes = [
            FleetNode(
                settings, self.cluster, number, clock, folder, troubles=Troubles(), logs=logs.get(number, ())
            )
            for number in range(settings.nodes)
        ]

    async def tick(self) -> None:
        """One tick of each node; requests are answered in between."""
        for node in self.nodes:
            node.tick()
            await asyncio.sleep(0)

    def stop(self) -> None:
        """Close the books of all nodes."""
        for node in self.nodes:
            node.stop()


def run(settings: FleetSettings, listen: str, speed: float) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status. Raises OSError where it cannot listen."""
    descriptors.raise_limit()
    with tempfile.TemporaryDirectory(prefix="clusterwatt-fleet-") as folder:
        return asyncio.run(_run(settings, listen, speed, Path(folder)))


async def _run(settings: FleetSettings, listen: str, speed: float, folder: Path) -> int:
    clock = FleetClock(SystemClock(), speed, settings.every_s)
    fleet = Fleet(settings, clock, folder)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    site = FleetSite(fleet.nodes, absent=frozenset, dead=frozenset)
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
