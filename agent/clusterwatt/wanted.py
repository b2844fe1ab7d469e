"""Which sources a configuration wants, and how each is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from clusterwatt.clock import Clock
from clusterwatt.collectors import Collector, node_exporter
from clusterwatt.collectors.agent import AgentCollector
from clusterwatt.config.model import Collector as Settings
from clusterwatt.config.model import Config, node_name
from clusterwatt.feeds import price
from clusterwatt.feeds.grid import GridCollector
from clusterwatt.flight import bundle as flight_bundle
from clusterwatt.flight.replay import FlightCollector
from clusterwatt.inventory import COLLECTORS, WORKLOADS
from clusterwatt.learnt import Learnt
from clusterwatt.node_pids import NodePids
from clusterwatt.readings.gpu import GpuInfo, GpuMode, GpuProcess
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.readings.work import Job, JobPod, NodeLabels, SchedulerNode
from clusterwatt.simulate.jobs import SimulatedJobs
from clusterwatt.sysfs import Files
from clusterwatt.training.collector import TrainingCollector
from clusterwatt.training.reported import Mailbox
from clusterwatt.training.writers import Process, hosts_of_work
from clusterwatt.workloads.kubernetes.queue import KubernetesQueueCollector
from clusterwatt.workloads.process import Listed, ProcessCollector, listed
from clusterwatt.workloads.slurm_node import SlurmNodeCollector
from clusterwatt.workloads.slurm_queue import SlurmQueueCollector
from clusterwatt.workloads.writer import ProcessLookup

AGENT_EVERY_S = 5.0


class Known:
    """What sources may ask of the newest snapshot, on their own threads: each reference is replaced whole.

    `driver_pid`: process id of the driver host, None while none runs. `mailbox`: what runs report. `learnt`:
    what the hardware was like, to be added to. `gpus_by_scheduler`: how many it says the node should have; 0:
    it does not say.
    """

    def __init__(self, driver_pid: Callable[[], int | None], learnt: Learnt) -> None:
        self.learnt = learnt
        self.driver_pid = driver_pid
        self.simulates = False
        self.gpu_names: frozenset[str] = frozenset()
        self.on_gpus: Listed = {}
        self.hosts_of_work: Mapping[str, str] = {}
        self.node_labels: Mapping[str, str] = {}
        self.gpus_by_scheduler = 0
        self.mailbox = Mailbox()

    def take(self, snapshot: Snapshot) -> None:
        """Take the newest snapshot."""
        self.gpu_names = frozenset(info.name for info in snapshot.of(GpuInfo) if not info.parent_uuid)
        self.on_gpus = listed(snapshot.of(GpuProcess))
        self.hosts_of_work = hosts_of_work(snapshot.of(JobPod), snapshot.of(Job))
        self.node_labels = {name: value for told in snapshot.of(NodeLabels) for name, value in told.labels}
        # Of GPUs in MIG mode a scheduler may count the instances.
        cut = any(mode.mode == "mig" and mode.enabled for mode in snapshot.of(GpuMode))
        stated = [node.gpus for node in snapshot.of(SchedulerNode) if node.gpus is not None]
        self.gpus_by_scheduler = 0 if cut else max(stated, default=0)


class Wanted(NamedTuple):
    """A source: its name, its settings, how it is made, and what else it is made of."""

    name: str
    settings: Settings
    make: Callable[[], Collector]
    also: object = None


def wanted(config: Config, clock: Clock, known: Known) -> Iterator[Wanted]:
    """Every source that is switched on."""

    def files() -> Files:
        return Files(config.node.root, clock)

    for entry in COLLECTORS:
        settings: Settings = getattr(config.collectors, entry.name)
        if settings.enabled:
            also = (known.learnt,) if entry.learns else ()
            yield Wanted(entry.name, settings, partial(entry.make, files(), settings, clock, *also))
    yield from _of_work(config, clock, known)
    yield from _feeds(config, clock, known)
    yield from _training(config, clock, known)
    if config.expose.node_exporter_names:
        for extra in node_exporter.COLLECTORS:
            settings = Settings(every_seconds=extra.every_seconds)
            yield Wanted(extra.name, settings, partial(extra.make, files()))
    if replays_flight(config):
        path = Path(config.simulate.replay_file)
        yield Wanted("flight", Settings(), partial(FlightCollector, path, clock))

    def agent() -> Collector:
        return AgentCollector(known.driver_pid, NodePids(config.node.root))

    yield Wanted("agent", Settings(every_seconds=AGENT_EVERY_S), agent)


def replays_flight(config: Config) -> bool:
    """Whether a bundle of the flight recorder stands in for the driver."""
    path = config.simulate.replay_file
    return bool(path) and flight_bundle.is_flight(Path(path))


def _of_work(config: Config, clock: Clock, known: Known) -> Iterator[Wanted]:
    """Who holds which GPU. Nobody on this machine holds GPUs that were recorded on another."""
    simulate = config.simulate
    if simulate.label == "replay":
        return
    if simulate.profile and simulate.jobs:
        yield Wanted("simulated_jobs", Settings(), partial(SimulatedJobs, simulate, clock), simulate)
        return
    for entry in WORKLOADS:
        settings: Settings = getattr(config.workloads, entry.name)
        if settings.enabled:
            files = Files(config.node.root, clock)
            yield Wanted(entry.name, settings, partial(entry.make, files, settings, clock))
    process = config.workloads.process
    if (
        process.enabled and not simulate.profile
    ):  # the processes of a simulated driver are not of this machine

        def make() -> Collector:
            return ProcessCollector(Files(config.node.root, clock), clock, lambda: known.on_gpus)

        yield Wanted("process", process, make)
    slurm_node = config.workloads.slurm_node
    if slurm_node.enabled:
        yield Wanted("slurm_node", slurm_node, partial(SlurmNodeCollector, slurm_node, clock))
    yield from _queues(config, clock)


def _queues(config: Config, clock: Clock) -> Iterator[Wanted]:
    """What waits: asked by one agent of a cluster."""
    slurm, pods, kubernetes = (
        config.workloads.slurm_queue,
        config.workloads.kubernetes_queue,
        config.workloads.kubernetes,
    )
    if slurm.enabled and slurm.on_node in {"", node_name()}:
        yield Wanted("slurm_queue", slurm, partial(SlurmQueueCollector, slurm))
    if pods.enabled and pods.on_node in {"", node_name()}:
        make = partial(KubernetesQueueCollector, pods, kubernetes, clock)
        yield Wanted("kubernetes_queue", pods, make, kubernetes)


def _feeds(config: Config, clock: Clock, known: Known) -> Iterator[Wanted]:
    """What energy is multiplied by."""

    def simulates() -> bool:
        return known.simulates

    grid, prices = config.feeds.grid, config.feeds.price
    if grid.enabled:
        yield Wanted("grid", grid, lambda: GridCollector(grid, clock, example=simulates))
    if prices.enabled:
        yield Wanted(
            "price",
            prices,
            lambda: price.PriceCollector(
                prices, clock, lambda: known.gpu_names, node=node_name(), example=simulates
            ),
        )


def _training(config: Config, clock: Clock, known: Known) -> Iterator[Wanted]:
    """Training runs, from their event files and their reports."""
    settings, root = config.training, config.node.root

    def make() -> Collector:
        find = ProcessLookup(Files(root, clock)).find

        def process(pid: int) -> Process | None:
            found = find(pid)
            return None if found is None else Process(*found)

        return TrainingCollector(
            root,
            settings,
            clock,
            process=process,
            members=lambda: known.hosts_of_work,
            mailbox=known.mailbox,
        )

    if settings.enabled and (settings.directories or settings.api.enabled or settings.api.socket):
        yield Wanted("training", settings, make)
