"""A whole node in this process: every collector over a tree of files, a simulated driver, one snapshot.

Clock, answers of `statvfs` and `adjtimex`, and versions stand still, so that the same tree always gives the
same snapshot. What the agent costs itself is left out: that is real.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from clusterwatt.collectors import Collector, node_exporter
from clusterwatt.collectors.filesystem import FilesystemCollector
from clusterwatt.collectors.timesync import TimesyncCollector, Timex
from clusterwatt.config.model import Collectors, Driver, Simulate
from clusterwatt.driver.client import DriverClient
from clusterwatt.driver.frames import HostSettings
from clusterwatt.driver.host import Host
from clusterwatt.expose import node_exporter as node_exporter_page
from clusterwatt.expose.render import Page, Renderer
from clusterwatt.inventory import CATALOG, COLLECTORS
from clusterwatt.nvml.session import Session
from clusterwatt.pipeline import Pipeline
from clusterwatt.readings.agent import BuildInfo, ConfigReload
from clusterwatt.readings.base import Failure, Reading, by_type
from clusterwatt.readings.node_exporter import NodeFamily
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.simulate.nvml import SimulatedLibrary, install, uninstall
from clusterwatt.source import Account, Source
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock

GPUS = 8
SEED = 1
TICKS = 12  # seconds: within them even what is read slowly has been read again
PATIENT_S = 60.0  # real seconds for what the tick waits for: a busy machine changes nothing
MAX_SERIES = 20_000

# f_bsize, f_frsize, f_blocks, f_bfree, f_bavail, f_files, f_ffree, f_favail, f_flag, f_namemax
ANSWER = os.statvfs_result((4096, 4096, 1_000_000, 400_000, 350_000, 250_000, 200_000, 200_000, 0, 255))


class DriverHere(DriverClient):
    """The agent's end of the driver host, with the host in this process, over a simulated driver."""

    def __init__(
        self, profile: str, clock: FakeClock, mig: Mapping[int, Sequence[str]] | None = None
    ) -> None:
        settings = HostSettings(1.0, 30.0, PATIENT_S, 5.0, Simulate(profile=profile))  # type: ignore[arg-type]
        super().__init__(settings, Driver(), clock)
        library = SimulatedLibrary(profile, GPUS, SEED, clock.wall_s)
        install(library)
        for board, layout in (mig or {}).items():
            library.configure_mig(board, layout)
        self._host = Host(settings, Session(simulated=True, clock=clock), clock)

    def supervise(self) -> None:
        """Take a frame, in place of looking after a process."""
        self._heard(None, self._host.tick())  # type: ignore[arg-type]  # no process: none was started


def adjtimex(timex: Timex) -> int:
    """A clock that is disciplined, 250 microseconds off."""
    timex.offset, timex.status = 250_000, 0x2000
    return 0


def collectors(files: Path | str, clock: FakeClock) -> Iterator[tuple[Collector, float]]:
    """Every collector that is on by default, and its cadence."""
    settings = Collectors()
    for entry in COLLECTORS:
        own = getattr(settings, entry.name)
        if not own.enabled:
            continue
        collector = entry.make(Files(files, clock), own, clock)
        if entry.name == "filesystem":
            collector = FilesystemCollector(Files(files, clock), own, clock, lambda _: ANSWER, None)
        elif entry.name == "timesync":
            collector = TimesyncCollector(adjtimex)
        yield collector, own.every_seconds


def in_their_words(root: Path | str, clock: FakeClock | None = None) -> list[Reading]:
    """What a node with this tree has for the page /node/metrics, and what could not be read."""
    return [
        reading
        for entry in node_exporter.COLLECTORS
        for reading in entry.make(Files(root, clock or FakeClock())).collect()
    ]


def about_agent() -> Iterator[Reading]:
    yield BuildInfo(version="1.2.3", revision="abc", python="3.11.0")
    yield ConfigReload(success=1.0)


def snapshot_of(
    root: Path | str | None, profile: str = "", mig: Mapping[int, Sequence[str]] | None = None
) -> Snapshot:
    """What is published after some seconds on a node with this tree (None: no collector), and these GPUs.

    `mig`: boards that are cut, and their instances.
    """
    clock = FakeClock()
    sources = [
        Source(collector, every_s, clock, Account(collector.name, clock))
        for collector, every_s in (collectors(root, clock) if root is not None else ())
    ]
    published: list[Snapshot] = []
    driver = DriverHere(profile, clock, mig) if profile else None
    pipeline = Pipeline(sources, driver, clock, published.append, every_s=PATIENT_S, about_agent=about_agent)
    try:
        for _ in range(TICKS):
            asyncio.run(pipeline.tick())
            clock.advance(1.0)
    finally:
        if driver is not None:
            uninstall()
        for source in sources:
            source.close()
    return published[-1]


def page_in_their_words(root: Path | str) -> Page:
    """The page /node/metrics of a tree, without what is of this machine whatever the tree says."""
    clock = FakeClock()
    readings = in_their_words(root, clock)
    parts = by_type(reading for reading in readings if not isinstance(reading, Failure))
    families = (f for f in parts.get(NodeFamily, ()) if not f.name.startswith(("node_uname_", "node_timex_")))
    snapshot = Snapshot(1, clock.wall_s(), clock.monotonic_s(), {NodeFamily: tuple(families)})
    return node_exporter_page.render(snapshot, MAX_SERIES, openmetrics=False)


def page_of(snapshot: Snapshot, level: str = "full") -> Page:
    """The page in the text format."""
    return Renderer(CATALOG, level, {}, MAX_SERIES).render(snapshot, openmetrics=False)
