"""Readings under node_exporter's names, for the page `/node/metrics`; they exist only when it is on.

They follow node_exporter's choices (which devices, which units, guest time inside user time) where those
differ from ours, so that its rules and boards read the same numbers. The space of file systems and other
tools' text files are not read again: the page takes them from the readings that are there anyway.

Three collectors, so that a sensor which answers slowly ages no counter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from clusterwatt.collectors import Collector
from clusterwatt.collectors.node_exporter import (
    disks,
    infiniband,
    kernel,
    mounts,
    network,
    sensors,
    sockets,
    system,
)
from clusterwatt.collectors.timesync import library_adjtimex
from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.sysfs import Files

Part = Callable[[], Iterable[Reading]]


class Parts:
    """A collector of parts: one that fails costs no other."""

    def __init__(self, name: str, **parts: Part) -> None:
        self.name = name
        self._parts = parts

    def collect(self) -> Iterator[Reading]:
        """What each part finds, in their order."""
        for name, part in self._parts.items():
            try:
                yield from part()
            except OSError as error:
                yield failure(name, error)
            except (ValueError, IndexError) as error:
                yield Failure(item=name, reason="format", detail=str(error))


class Entry(NamedTuple):
    """A collector: its name, its cadence, and how it is made."""

    name: str
    every_seconds: float
    make: Callable[[Files], Collector]


def tables(files: Files) -> Parts:
    """What the kernel has in tables: counters of CPUs, memory, interfaces and disks."""
    return Parts(
        "node_tables",
        stat=kernel.Stat(files).families,
        meminfo=partial(kernel.meminfo, files),
        vmstat=partial(kernel.vmstat, files),
        loadavg=partial(kernel.loadavg, files),
        pressure=partial(kernel.pressure, files),
        limits=partial(kernel.limits, files),
        netdev=partial(network.table_of_devices, files),
        netstat=partial(sockets.netstat, files),
        sockstat=partial(sockets.sockstat, files),
        softnet=partial(sockets.softnet, files),
        arp=partial(sockets.neighbours, files),
        entropy=partial(sockets.entropy, files),
        diskstats=partial(disks.diskstats, files),
    )


def devices(files: Files) -> Parts:
    """What drivers answer: links, RDMA ports, NFS, RAID, energy counters."""
    return Parts(
        "node_devices",
        netclass=network.Interfaces(files).families,
        bonding=partial(network.bonds, files),
        infiniband=infiniband.Infiniband(files).families,
        nfs=partial(mounts.nfs, files),
        mdadm=partial(disks.arrays, files),
        rapl=sensors.Rapl(files).families,
    )


def slow(files: Files) -> Parts:
    """What changes rarely, or takes its time to answer."""
    return Parts(
        "node_sensors",
        mounts=partial(mounts.sources, files),
        uname=system.uname,
        timex=partial(system.timex, library_adjtimex()),
        edac=partial(sensors.memory_errors, files),
        nvme=disks.Nvme(files).families,
        disk_info=partial(disks.disk_infos, files),
        thermal_zone=partial(sensors.thermal_zones, files),
        hwmon=sensors.Hwmon(files).families,
    )


COLLECTORS = (
    Entry("node_tables", 1.0, tables),
    Entry("node_devices", 2.0, devices),
    Entry("node_sensors", 15.0, slow),
)
