"""Every setting of the agent, with its default, its limits and its unit.

A setting stands in the file that is named after the first word of its name: `ledger.path` in `ledger.py`,
`collectors.nfs.exclude_mountpoints` in `collectors.py`. One frozen type for each section: `config.load` fills
them from file, environment and command line; the docstring of a section is its documentation, and
`config.write` prints it. Every number has a lowest and a highest value: what is out of range is refused,
never bent.
"""

from __future__ import annotations

import msgspec

from clusterwatt.config.model.addresses import http_address, listen_address
from clusterwatt.config.model.collectors import (
    Collectors,
    DiskCollector,
    EthernetCollector,
    FilesystemCollector,
    GpuCollector,
    ImexCollector,
    IpmiCollector,
    MaintenanceCollector,
    NfsCollector,
    RdmaCollector,
    TextfileCollector,
)
from clusterwatt.config.model.driver import Driver
from clusterwatt.config.model.expose import DcgmPage, Expose
from clusterwatt.config.model.feeds import Feeds, Grid, GridService, Price
from clusterwatt.config.model.http import Http
from clusterwatt.config.model.ledger import Ledger
from clusterwatt.config.model.limits import Limits
from clusterwatt.config.model.log import Log
from clusterwatt.config.model.meters import Meters
from clusterwatt.config.model.node import Node, node_name
from clusterwatt.config.model.places import SYSTEM_RELEASE_FILE, SYSTEM_STATE_FOLDER
from clusterwatt.config.model.recorder import Recorder
from clusterwatt.config.model.section import Collector, NotEmpty, Pattern, Section
from clusterwatt.config.model.simulate import Simulate
from clusterwatt.config.model.training import Quantity, Training, TrainingModel
from clusterwatt.config.model.workloads import (
    Kubernetes,
    KubernetesQueue,
    Slurm,
    SlurmNode,
    SlurmQueue,
    Workloads,
)

__all__ = [
    "SYSTEM_RELEASE_FILE",
    "SYSTEM_STATE_FOLDER",
    "Collector",
    "Collectors",
    "Config",
    "DcgmPage",
    "DiskCollector",
    "Driver",
    "EthernetCollector",
    "Expose",
    "Feeds",
    "FilesystemCollector",
    "GpuCollector",
    "Grid",
    "GridService",
    "Http",
    "ImexCollector",
    "IpmiCollector",
    "Kubernetes",
    "KubernetesQueue",
    "Ledger",
    "Limits",
    "Log",
    "MaintenanceCollector",
    "Meters",
    "NfsCollector",
    "Node",
    "NotEmpty",
    "Pattern",
    "Price",
    "Quantity",
    "RdmaCollector",
    "Recorder",
    "Section",
    "Simulate",
    "Slurm",
    "SlurmNode",
    "SlurmQueue",
    "TextfileCollector",
    "Training",
    "TrainingModel",
    "Workloads",
    "http_address",
    "listen_address",
    "node_name",
]


class Config(Section, frozen=True):
    """All sections."""

    node: Node = Node()
    collectors: Collectors = Collectors()
    driver: Driver = msgspec.field(default_factory=Driver)
    simulate: Simulate = Simulate()
    http: Http = Http()
    expose: Expose = Expose()
    limits: Limits = Limits()
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    recorder: Recorder = msgspec.field(default_factory=Recorder)
    training: Training = Training()
    workloads: Workloads = Workloads()
    feeds: Feeds = Feeds()
    meters: Meters = Meters()
    log: Log = Log()
