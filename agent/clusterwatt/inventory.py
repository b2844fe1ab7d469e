"""The catalogue: every family that the agent can export, in the order of the page."""

from __future__ import annotations

from clusterwatt import selfstats
from clusterwatt.catalog import Metric
from clusterwatt.collectors import (
    cpu,
    disk,
    ethernet,
    ethtool,
    filesystem,
    gpu,
    host,
    md,
    memory,
    pressure,
    processes,
    rdma,
    timesync,
)
from clusterwatt.meters import node

CATALOG: tuple[Metric, ...] = (
    *gpu.METRICS,
    *ethernet.METRICS,
    *ethtool.METRICS,
    *rdma.METRICS,
    *disk.METRICS,
    *md.METRICS,
    *filesystem.METRICS,
    *cpu.METRICS,
    *memory.METRICS,
    *pressure.METRICS,
    *host.METRICS,
    *processes.METRICS,
    *timesync.METRICS,
    *node.METRICS,
    *selfstats.METRICS,
)
