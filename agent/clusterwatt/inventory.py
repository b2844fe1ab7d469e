"""Every source of the agent, how it is made, and the catalogue of all families in the order of the page.

A new collector is one line here, its file, and its settings in `config.model`. GPUs are not in the list: the
driver host reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from clusterwatt.attribution import accounting, runs, xid_jobs
from clusterwatt.catalog import Metric
from clusterwatt.collectors import (
    Collector,
    agent,
    cpu,
    disk,
    ethernet,
    ethtool,
    filesystem,
    gpu,
    host,
    hwmon,
    imex,
    ipmi,
    kmsg,
    lustre,
    maintenance,
    md,
    memory,
    nfs,
    nvme,
    pressure,
    processes,
    rapl,
    rdma,
    textfile,
    timesync,
)
from clusterwatt.feeds import grid, price
from clusterwatt.ledger import series
from clusterwatt.meters import activity, deviation, node, peak, suspect, xid
from clusterwatt.training import collector as training
from clusterwatt.workloads import queue, slurm
from clusterwatt.workloads.container import ContainerCollector
from clusterwatt.workloads.kubernetes.collector import KubernetesCollector

Metrics = tuple[Metric, ...]


class Entry(NamedTuple):
    """A collector: name of its settings, its families, and how it is made of files, settings and clock.

    `learns`: it is also handed what an earlier agent has learnt.
    """

    name: str
    metrics: Metrics
    make: Callable[..., Collector]
    learns: bool = False


COLLECTORS = (
    Entry("ethernet", ethernet.METRICS, ethernet.EthernetCollector, learns=True),
    Entry("ethtool", ethtool.METRICS, lambda files, *_: ethtool.EthtoolCollector(files)),
    Entry("rdma", rdma.METRICS, rdma.RdmaCollector, learns=True),
    Entry("imex", imex.METRICS, lambda _, settings, __: imex.ImexCollector(settings)),
    Entry("disk", disk.METRICS + md.METRICS, lambda files, settings, _: disk.DiskCollector(files, settings)),
    Entry("filesystem", filesystem.METRICS, filesystem.FilesystemCollector),
    Entry("nfs", nfs.METRICS, lambda files, settings, _: nfs.NfsCollector(files, settings)),
    Entry("lustre", lustre.METRICS, lambda files, *_: lustre.LustreCollector(files)),
    Entry("cpu", cpu.METRICS, lambda files, *_: cpu.CpuCollector(files)),
    Entry("memory", memory.METRICS, lambda files, *_: memory.MemoryCollector(files)),
    Entry("pressure", pressure.METRICS, lambda files, *_: pressure.PressureCollector(files)),
    Entry("host", host.METRICS, lambda files, _, clock: host.HostCollector(files, clock)),
    Entry("processes", processes.METRICS, lambda files, _, clock: processes.ProcessesCollector(files, clock)),
    Entry("timesync", timesync.METRICS, lambda *_: timesync.TimesyncCollector()),
    Entry("rapl", (), lambda files, *_: rapl.RaplCollector(files)),
    Entry("hwmon", hwmon.METRICS, lambda files, *_: hwmon.HwmonCollector(files)),
    Entry("kmsg", (), lambda files, _, clock: kmsg.KmsgCollector(files.root, clock)),
    Entry("nvme", nvme.METRICS, lambda files, *_: nvme.NvmeCollector(files)),
    Entry("ipmi", (), lambda _, settings, __: ipmi.IpmiCollector(settings)),
    Entry(
        "maintenance",
        maintenance.METRICS,
        lambda _, settings, clock: maintenance.MaintenanceCollector(settings, clock),
    ),
    Entry("textfile", textfile.METRICS, textfile.TextfileCollector),
)

# Who holds which GPU; settings in `config.workloads`. Processes on GPUs are looked up as `wanted` says.
WORKLOADS: tuple[Entry, ...] = (
    Entry("slurm", (), slurm.SlurmCollector),
    Entry("kubernetes", (), KubernetesCollector),
    Entry("container", (), lambda files, _, clock: ContainerCollector(files, clock)),
)

# What energy is multiplied by; made in `wanted`; settings in `config.feeds`.
FEEDS: Metrics = (*grid.METRICS, *price.METRICS)

# What the agent says of itself comes first: the limit of the page cuts at the end, and the counter of what
# was cut must not be among that.
CATALOG: Metrics = (
    *agent.METRICS,
    *gpu.METRICS,
    *activity.METRICS,
    *suspect.METRICS,
    *peak.METRICS,
    *deviation.METRICS,
    *xid.METRICS,
    *(metric for entry in (*COLLECTORS, *WORKLOADS) for metric in entry.metrics),
    *FEEDS,
    *accounting.METRICS,
    *queue.METRICS,
    *xid_jobs.METRICS,
    *series.METRICS,
    *training.METRICS,
    *runs.METRICS,
    *node.METRICS,
)
