"""One node of the fleet: the parts of an agent, wired without threads, on a simulated driver and sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from clusterwatt.bookkeeping import Bookkeeping
from clusterwatt.clock import Clock
from clusterwatt.collectors.agent import build_info
from clusterwatt.config.model import Config, Driver, Ledger, Limits, Meters, Simulate
from clusterwatt.driver.client import DriverClient, Heard
from clusterwatt.driver.frames import HostSettings
from clusterwatt.driver.inside import HostInside
from clusterwatt.event_log import EventLog
from clusterwatt.expose.history import History
from clusterwatt.expose.render import Renderer
from clusterwatt.expose.server import Site
from clusterwatt.feeds import price
from clusterwatt.inventory import CATALOG
from clusterwatt.ledger.keeper import Keeper
from clusterwatt.meters.node import power_feeds
from clusterwatt.pipeline import Pipeline
from clusterwatt.readings.agent import ConfigReload
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu_measured import DriverUp
from clusterwatt.readings.network import Imex
from clusterwatt.readings.snapshot import EMPTY, Snapshot
from clusterwatt.simulate.cards import BLACKWELL
from clusterwatt.simulate.claims import NodeClaims
from clusterwatt.simulate.cluster import Cluster, NodeWork
from clusterwatt.simulate.market import Market
from clusterwatt.simulate.node import Part, PartCollector, SimulatedNode
from clusterwatt.simulate.nvml import SimulatedLibrary, another_binding, install
from clusterwatt.simulate.queue import QUEUES, Queue
from clusterwatt.simulate.runs import Log
from clusterwatt.simulate.troubles import Troubles
from clusterwatt.simulate.work import EPOCH_S
from clusterwatt.source import Account, Source
from clusterwatt.worker import AtOnce

ALIVE_WITHIN_TICKS = 10
SILENT_TICKS = 10
STOP_WITHIN_S = 5.0
PUE = 1.25
FEEDS = {"A": 0.5, "B": 0.5}
FEED_WATTS_OF_GPU = 900.0  # of both feeds of the cluster, for each of its GPUs


class FleetSettings(msgspec.Struct, frozen=True):
    """What a fleet is made of.

    `profiles`: of the nodes in turn. `every_s`: seconds of its own clock between two ticks.
    """

    nodes: int
    gpus: int
    profiles: tuple[str, ...]
    seed: int
    every_s: float
    level: str


class FleetNode:
    """A node. `tick` measures once; its pages show what was measured last."""

    def __init__(
        self,
        settings: FleetSettings,
        cluster: Cluster,
        number: int,
        clock: Clock,
        folder: Path,
        *,
        troubles: Troubles,
        logs: Sequence[Log],
    ) -> None:
        self.name = node_name(number)
        self.number = number
        self.snapshot: Snapshot = EMPTY
        self._clock = clock
        self._every_s = settings.every_s
        self._host: HostInside | None = None
        started_s = clock.wall_s()
        profile = settings.profiles[number % len(settings.profiles)]
        claims = NodeClaims(cluster, number, library_seed(settings.seed, number), troubles)
        machine = SimulatedNode(
            cluster, number, clock, started_s=started_s, gpu_watts=self._gpu_watts, troubles=troubles
        )
        self.library = library(cluster, number, profile, clock.wall_s, loaded_s=machine.boot_s + 90.0)
        for gpu in self.library.gpus:
            if gpu.card.architecture >= BLACKWELL:
                gpu.power_profiles = (0,)  # NVML_POWER_PROFILE_MAX_P
        self._binding = another_binding()
        install(self.library, self._binding)
        config = _config(settings, profile, folder / f"{self.name}.db")
        host_settings = _host_settings(settings, config)
        self.driver = DriverClient(
            host_settings,
            config.driver,
            clock,
            gpus_expected=lambda: settings.gpus,
            make_host=self._make_host,
        )
        keeper = Keeper(config.ledger, clock, make_worker=AtOnce)
        self._books = Bookkeeping(config, clock, f"simulated-{number}-{machine.boot_s:.0f}", keeper)
        self.site = Site(
            Renderer(CATALOG, config.limits.profile, {}, config.limits.max_series),
            History(),
            node_name=self.name,
            ready=lambda: (True, "ok"),
            alive=self.alive,
        )
        self.pipeline = Pipeline(
            (),
            self.driver,
            clock,
            self._publish,
            every_s=settings.every_s,
            about_agent=lambda: self._about(config, troubles),
            books=self._books,
        )
        self.pipeline.on_event(EventLog(clock))
        market = Market(self.library.gpus[0].card.name, settings.nodes * settings.gpus, troubles)
        parts = [
            *machine.parts(),
            Part(claims.scheduler, 2.0, claims.readings),
            Part("grid", 60.0, market.grid),
            Part("price", 1.0, market.price),
        ]
        if self.library.gpus[0].card.c2c_links:
            parts.append(Part("imex", 60.0, lambda _: iter((Imex(ready=1.0),))))
        if number == 0:  # of a real cluster, too, one agent asks
            queues = [Queue(name, settings.seed, settings.nodes * settings.gpus) for name in QUEUES]
            parts += [Part(queue.name, 60.0, queue.readings) for queue in queues]
        if logs:
            parts.append(Part("training", 2.0, lambda now_s: _of_all(logs, now_s)))
        self.pipeline.use([self._source(part, clock, troubles) for part in parts], self.driver)

    def tick(self) -> None:
        """Read everything, measure, publish."""
        self.driver.supervise()
        if self._host is not None:
            self._host.tick()
        self.pipeline.tick_at_once()

    def alive(self) -> bool:
        """Whether its ticks go on."""
        last_s = self.pipeline.last_tick_s
        lasting_s = ALIVE_WITHIN_TICKS * self._every_s
        return last_s is not None and self._clock.monotonic_s() - last_s < lasting_s

    def stop(self) -> None:
        """Close the books."""
        self._books.stop(STOP_WITHIN_S)
        self.driver.stop(STOP_WITHIN_S)

    @property
    def gpus_visible(self) -> int:
        """GPUs that the driver shows."""
        return int(sum(state.gpus_visible for state in self.snapshot.of(DriverUp)))

    def _make_host(self, settings: HostSettings, heard: Heard) -> HostInside:
        self._host = HostInside(settings, heard, self._clock, self._binding, pid=1_000 + self.number)
        return self._host

    def _source(self, part: Part, clock: Clock, troubles: Troubles) -> Source:
        every_s = max(part.every_seconds, self._every_s)
        collector = PartCollector(part, clock, troubles)
        return Source(collector, every_s, clock, Account(part.name, clock), AtOnce)

    def _gpu_watts(self) -> float:
        now_s = self._clock.wall_s()
        return sum(gpu.mean_power_w(now_s, 1.0) for gpu in self.library.gpus)

    def _publish(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.site.publish(snapshot)

    def _about(self, config: Config, troubles: Troubles) -> Iterator[Reading]:
        yield build_info()
        yield ConfigReload(success=1.0)
        yield from self.site.readings()
        cut = troubles.now("feed_capacity", self._clock.wall_s())
        part = 1.0 if cut is None else cut.amount
        capacity = {feed: part * watts for feed, watts in config.node.power_feed_capacity_watts.items()}
        yield from power_feeds(config.node.power_feed_ratios, capacity)
        yield from price.effectiveness(config.meters.pue)


def node_name(number: int) -> str:
    """The name of a node: the first is node-0001."""
    return f"node-{number + 1:04d}"


def library_seed(seed: int, number: int) -> int:
    """The seed of a node's driver and of what is beside it."""
    return seed * 1_000_003 + number


def library(
    cluster: Cluster, number: int, profile: str, wall_s: Callable[[], float], *, loaded_s: float = EPOCH_S
) -> SimulatedLibrary:
    """A node's driver. What its boards draw, and have used since it was loaded, follows from the time."""
    seed = library_seed(cluster.seed, number)
    work = NodeWork(cluster, number)
    return SimulatedLibrary(profile, cluster.gpus, seed, wall_s, work=work, loaded_s=loaded_s)


def _of_all(logs: Sequence[Log], now_s: float) -> Iterator[Reading]:
    for log in logs:
        yield from log.readings(now_s)


def _config(settings: FleetSettings, profile: str, ledger: Path) -> Config:
    config = Config()
    watts = FEED_WATTS_OF_GPU * settings.nodes * settings.gpus
    return msgspec.structs.replace(
        config,
        node=msgspec.structs.replace(
            config.node,
            gpus_expected=settings.gpus,
            power_feed_ratios=FEEDS,
            power_feed_capacity_watts={feed: watts * ratio * 2 for feed, ratio in FEEDS.items()},
        ),
        driver=Driver(silent_seconds=max(15.0, SILENT_TICKS * settings.every_s), release_file=""),
        simulate=Simulate(profile=profile, gpus=settings.gpus, seed=settings.seed),  # type: ignore[arg-type]  # checked by the command line
        limits=Limits(profile=settings.level),  # type: ignore[arg-type]  # as above
        ledger=Ledger(path=str(ledger), commit_seconds=max(10.0, 2 * settings.every_s), receipts=False),
        meters=Meters(pue=PUE),
    )


def _host_settings(settings: FleetSettings, config: Config) -> HostSettings:
    gpu = config.collectors.gpu
    return HostSettings(
        every_seconds=settings.every_s,
        slow_seconds=max(gpu.slow_seconds, settings.every_s),
        deadline_seconds=config.driver.deadline_seconds,
        retry_seconds=config.driver.retry_seconds,
        simulate=config.simulate,
    )
