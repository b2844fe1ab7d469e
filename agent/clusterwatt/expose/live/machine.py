"""What the live page shows of the machine: network, disks, file systems, CPU and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from clusterwatt.expose.history import SHOWN_INTERFACES, Curve, Curves
from clusterwatt.readings.host import BlockedProcesses, CpuCount, Load, Memory, NodePower
from clusterwatt.readings.network import Network, RdmaPort, RdmaPortExpectation, RdmaPortInfo
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.readings.storage import Disk, DiskInfo, Filesystem, FilesystemProbe, MdArray


class PortView(msgspec.Struct, frozen=True):
    """A network interface or an RDMA port; `detail` says what it is."""

    name: str
    detail: str
    up: bool | None
    expected: bool | None
    link_rate_bytes_per_second: float | None
    receive_bytes_per_second: float | None
    transmit_bytes_per_second: float | None
    curves: Mapping[str, Curve]


class DiskView(msgspec.Struct, frozen=True):
    """A disk, or a RAID array with members missing."""

    name: str
    detail: str
    missing_members: float
    read_bytes_per_second: float | None
    written_bytes_per_second: float | None
    busy_ratio: float | None
    curves: Mapping[str, Curve]


class FilesystemView(msgspec.Struct, frozen=True):
    """Space of a mount; `used_ratio` is of what users can have, as df counts it.

    `silent_seconds`: how long the mount has not answered; null while it does.
    """

    mountpoint: str
    fstype: str
    size_bytes: float | None
    available_bytes: float | None
    used_ratio: float | None
    readonly: bool
    silent_seconds: float | None


class HostView(msgspec.Struct, frozen=True):
    """CPU, memory, pressure, and power by component."""

    cpus: float | None
    load1: float | None
    cpu_busy_ratio: float | None
    memory_total_bytes: float | None
    memory_available_bytes: float | None
    swap_total_bytes: float | None
    swap_free_bytes: float | None
    cpu_pressure_ratio: float | None
    memory_pressure_ratio: float | None
    io_pressure_ratio: float | None
    blocked_processes: float | None
    power_watts: Mapping[str, float]
    curves: Mapping[str, Curve]


def network(snapshot: Snapshot, curves: Curves) -> Iterator[PortView]:
    """Network interfaces of hardware, and bonds."""
    for interface in snapshot.of(Network):
        if interface.kind in SHOWN_INTERFACES:
            yield _port(
                interface.device,
                interface.kind,
                interface.up,
                None,
                interface.link_rate_bytes_per_second,
                curves.of("network", interface.device),
            )


def rdma(snapshot: Snapshot, curves: Curves) -> Iterator[PortView]:
    """RDMA ports."""
    expected = {(port.device, port.port): port.expected == 1 for port in snapshot.of(RdmaPortExpectation)}
    infos = {(info.device, info.port): info for info in snapshot.of(RdmaPortInfo)}
    for port in snapshot.of(RdmaPort):
        name = f"{port.device}/{port.port}"
        info = infos.get((port.device, port.port))
        yield _port(
            name,
            " · ".join(filter(None, (info.link_layer, info.netdev))) if info else "",
            port.up,
            expected.get((port.device, port.port)),
            port.link_rate_bytes_per_second,
            curves.of("rdma", name),
        )


def _port(
    name: str,
    detail: str,
    up: float | None,
    expected: bool | None,
    link_rate: float | None,
    curves: Mapping[str, Curve],
) -> PortView:
    return PortView(
        name=name,
        detail=detail,
        up=None if up is None else up == 1,
        expected=expected,
        link_rate_bytes_per_second=link_rate,
        receive_bytes_per_second=_newest(curves, "receive_bytes_per_second"),
        transmit_bytes_per_second=_newest(curves, "transmit_bytes_per_second"),
        curves=curves,
    )


def disks(snapshot: Snapshot, curves: Curves) -> Iterator[DiskView]:
    """Disks, then RAID arrays with members missing."""
    infos = {info.device: info for info in snapshot.of(DiskInfo)}
    for disk in snapshot.of(Disk):
        info = infos.get(disk.device)
        own = curves.of("disk", disk.device)
        yield DiskView(
            name=disk.device,
            detail=" · ".join(filter(None, (info.transport, info.model))) if info else "",
            missing_members=0.0,
            read_bytes_per_second=_newest(own, "read_bytes_per_second"),
            written_bytes_per_second=_newest(own, "written_bytes_per_second"),
            busy_ratio=_newest(own, "busy_ratio"),
            curves=own,
        )
    for array in snapshot.of(MdArray):
        if array.degraded:
            yield DiskView(array.array, "RAID array", array.degraded, None, None, None, {})


def filesystems(snapshot: Snapshot) -> Iterator[FilesystemView]:
    """Mounts that answer, then those that do not."""
    answered = set()
    for mount in snapshot.of(Filesystem):
        answered.add(mount.mountpoint)
        used_ratio = None
        if (
            mount.size_bytes is not None
            and mount.free_bytes is not None
            and mount.available_bytes is not None
        ):
            used_bytes = mount.size_bytes - mount.free_bytes
            if used_bytes + mount.available_bytes > 0:
                used_ratio = used_bytes / (used_bytes + mount.available_bytes)
        yield FilesystemView(
            mountpoint=mount.mountpoint,
            fstype=mount.fstype,
            size_bytes=mount.size_bytes,
            available_bytes=mount.available_bytes,
            used_ratio=used_ratio,
            readonly=mount.readonly == 1,
            silent_seconds=None,
        )
    for probe in snapshot.of(FilesystemProbe):
        if probe.mountpoint not in answered and probe.last_probe_timestamp_seconds is not None:
            silent_s = max(0.0, snapshot.wall_s - probe.last_probe_timestamp_seconds)
            yield FilesystemView(probe.mountpoint, probe.fstype, None, None, None, False, silent_s)


def host(snapshot: Snapshot, curves: Curves) -> HostView:
    """CPU, memory, pressure and power."""
    count = snapshot.one(CpuCount)
    load = snapshot.one(Load) or Load()
    memory = snapshot.one(Memory) or Memory()
    blocked = snapshot.one(BlockedProcesses)
    own = curves.of("host", "")
    return HostView(
        cpus=count.cpus if count else None,
        load1=load.load1,
        cpu_busy_ratio=_newest(own, "cpu_busy_ratio"),
        memory_total_bytes=memory.total_bytes,
        memory_available_bytes=memory.available_bytes,
        swap_total_bytes=memory.swap_total_bytes,
        swap_free_bytes=memory.swap_free_bytes,
        cpu_pressure_ratio=_newest(own, "cpu_pressure_ratio"),
        memory_pressure_ratio=_newest(own, "memory_pressure_ratio"),
        io_pressure_ratio=_newest(own, "io_pressure_ratio"),
        blocked_processes=blocked.processes if blocked else None,
        power_watts={power.component: power.power_watts for power in snapshot.of(NodePower)},
        curves=own,
    )


def _newest(curves: Mapping[str, Curve], quantity: str) -> float | None:
    curve = curves.get(quantity)
    return curve[-1] if curve else None
