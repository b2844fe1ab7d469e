"""What the live page shows: one node, put together from a snapshot and the history.

It goes out as JSON at `api/v1/node`, for the page that comes with the agent. It is no interface for others:
its form may change with every release. Quantities are in base units; null means "not offered".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from clusterwatt.expose import view_work
from clusterwatt.expose.history import SHOWN_INTERFACES, Curve, Curves, gpu_power_watts
from clusterwatt.expose.render import NOT_UNICODE
from clusterwatt.readings.agent import BuildInfo, CollectorErrors, CollectorState
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import (
    GpuClock,
    GpuClockMax,
    GpuInfo,
    GpuMemory,
    GpuPerformanceState,
    GpuPowerLimit,
    GpuRecoveryAction,
    GpuRowRemap,
    GpuTemperature,
    GpuTemperatureMargin,
    GpuThrottle,
    GpuUse,
)
from clusterwatt.readings.gpu_measured import DriverDown, DriverInfo, DriverUp, GpuDown, GpuUp
from clusterwatt.readings.host import BlockedProcesses, Boot, CpuCount, Load, Memory, NodePower
from clusterwatt.readings.network import Network, RdmaPort, RdmaPortExpectation, RdmaPortInfo
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.readings.storage import Disk, DiskInfo, Filesystem, FilesystemProbe, MdArray

R = TypeVar("R", bound=Reading)

HOT_MARGIN_CELSIUS = 5.0
FULL_RATIO = 0.97
NO_SLOWDOWN = frozenset({"idle", "app_clocks", "sync_boost", "display", "low_utilization"})
ALARMING_SLOWDOWN = frozenset({"hw_thermal", "hw_power_brake", "sw_thermal"})


class DriverView(msgspec.Struct, frozen=True):
    """State of the driver; `up` is null when the agent runs without GPU part.

    `simulated`: there are no such GPUs. `recorded`: what is shown was captured before.
    """

    up: bool | None
    reason: str
    driver: str
    cuda: str
    simulated: bool
    recorded: bool
    gpus_visible: float | None
    gpus_expected: float | None


class GpuView(msgspec.Struct, frozen=True):
    """A GPU or a MIG instance; one that was lost has its identity and the reason only.

    `slowed_by`: what holds its clocks down now, apart from want of work. `repairs`: what it needs.
    `work`: active, idle (held and unused), free; empty where it is not known.
    """

    gpu: str
    uuid: str
    name: str
    mig_profile: str
    up: bool
    down_reason: str
    utilization_ratio: float | None
    power_watts: float | None
    power_limit_watts: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    temperature_celsius: float | None
    memory_temperature_celsius: float | None
    temperature_margin_celsius: float | None
    clock_hertz: float | None
    clock_max_hertz: float | None
    performance_state: float | None
    slowed_by: tuple[str, ...]
    repairs: tuple[str, ...]
    held_by: tuple[view_work.HolderView, ...]
    work: str
    curves: Mapping[str, Curve]


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


class CollectorView(msgspec.Struct, frozen=True):
    """A collector that is not well."""

    name: str
    age_seconds: float
    stuck_seconds: float
    reasons: tuple[str, ...]


class NodeView(msgspec.Struct, frozen=True):
    """All that the page shows.

    `attention`: what a person should look at first, one line each. `seconds_ago`: the age of the points of
    every curve, oldest first.
    """

    node: str
    version: str
    tick: int
    wall_s: float
    uptime_seconds: float | None
    attention: tuple[str, ...]
    driver: DriverView
    gpus: tuple[GpuView, ...]
    idle: view_work.IdleView
    jobs: tuple[view_work.JobView, ...]
    runs: tuple[view_work.RunView, ...]
    network: tuple[PortView, ...]
    rdma: tuple[PortView, ...]
    disks: tuple[DiskView, ...]
    filesystems: tuple[FilesystemView, ...]
    host: HostView
    collectors: int
    unwell_collectors: tuple[CollectorView, ...]
    seconds_ago: tuple[float, ...]


def node_view(node_name: str, snapshot: Snapshot, curves: Curves) -> NodeView:
    """Put the page's content together."""
    boot = _only(snapshot.of(Boot))
    build = _only(snapshot.of(BuildInfo))
    gpus = tuple(_gpus(snapshot, curves))
    states = {gpu.uuid: gpu.work for gpu in gpus}
    view = NodeView(
        node=node_name,
        version=build.version if build else "",
        tick=snapshot.tick,
        wall_s=snapshot.wall_s,
        uptime_seconds=max(0.0, snapshot.wall_s - boot.boot_timestamp_seconds) if boot else None,
        attention=(),
        driver=_driver(snapshot),
        gpus=gpus,
        idle=view_work.idle(states, curves),
        jobs=tuple(view_work.jobs(snapshot, states)),
        runs=tuple(view_work.runs(snapshot)),
        network=tuple(_network(snapshot, curves)),
        rdma=tuple(_rdma(snapshot, curves)),
        disks=tuple(_disks(snapshot, curves)),
        filesystems=tuple(_filesystems(snapshot)),
        host=_host(snapshot, curves),
        collectors=len(snapshot.of(CollectorState)),
        unwell_collectors=tuple(_unwell(snapshot)),
        seconds_ago=curves.seconds_ago,
    )
    return msgspec.structs.replace(view, attention=tuple(_attention(view)))


def as_json(view: NodeView) -> bytes:
    """The view as JSON; text that is not Unicode, as in names of files, is replaced."""
    try:
        return msgspec.json.encode(view)
    except UnicodeEncodeError:
        return msgspec.json.encode(_readable(msgspec.to_builtins(view)))


def _readable(part: object) -> object:
    if isinstance(part, str):
        return NOT_UNICODE.sub("\ufffd", part)
    if isinstance(part, dict):
        return {_readable(key): _readable(value) for key, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [_readable(value) for value in part]
    return part


def _attention(view: NodeView) -> Iterator[str]:
    """What stands out, worst first. States and hard limits only: judgement over time is for alert rules.

    Lines have no numbers that move: screen readers speak each new one.
    """
    yield from _gpu_attention(view)
    for port in view.rdma:
        if port.expected and port.up is False:
            yield f"RDMA port {port.name} is down"
    for disk in view.disks:
        if disk.missing_members:
            yield f"RAID array {disk.name}: members missing: {disk.missing_members:.0f}"
    for mount in view.filesystems:
        if mount.silent_seconds is not None:
            yield f"{mount.mountpoint} does not answer"
        elif mount.used_ratio is not None and mount.used_ratio >= FULL_RATIO and not mount.readonly:
            yield f"{mount.mountpoint} is {mount.used_ratio:.0%} full"
    for collector in view.unwell_collectors:
        yield f"Collector {collector.name} gives nothing new"


def _gpu_attention(view: NodeView) -> Iterator[str]:
    driver = view.driver
    if driver.up is False:
        yield f"The NVIDIA driver does not answer: {words(driver.reason) or 'unknown reason'}"
    for gpu in view.gpus:
        if not gpu.up:
            yield f"GPU {gpu.gpu or gpu.uuid} does not answer: {words(gpu.down_reason) or 'unknown reason'}"
    if driver.gpus_visible is not None and driver.gpus_visible < (driver.gpus_expected or 0):
        yield f"{driver.gpus_visible:.0f} of {driver.gpus_expected:.0f} GPUs are visible"
    for gpu in view.gpus:
        for repair in gpu.repairs:
            yield f"GPU {gpu.gpu} needs: {repair}"
        if alarming := ALARMING_SLOWDOWN.intersection(gpu.slowed_by):
            yield f"GPU {gpu.gpu} is slowed down: {', '.join(map(words, sorted(alarming)))}"
        margin = gpu.temperature_margin_celsius
        if margin is not None and margin < HOT_MARGIN_CELSIUS:
            yield f"GPU {gpu.gpu} is within {HOT_MARGIN_CELSIUS:.0f} °C of its thermal slowdown"


def words(reason: str) -> str:
    """A reason label as words: `reset_required` is read as "reset required"."""
    return reason.replace("_", " ")


def _driver(snapshot: Snapshot) -> DriverView:
    up, down, info = (
        _only(snapshot.of(DriverUp)),
        _only(snapshot.of(DriverDown)),
        _only(snapshot.of(DriverInfo)),
    )
    return DriverView(
        up=up.up == 1 if up else None,
        reason=down.reason if down else "",
        driver=info.driver if info else "",
        cuda=info.cuda if info else "",
        simulated=info is not None and info.simulated == "true",
        recorded=info is not None and info.simulated == "replay",
        gpus_visible=up.gpus_visible if up else None,
        gpus_expected=up.gpus_expected if up else None,
    )


def _gpus(snapshot: Snapshot, curves: Curves) -> Iterator[GpuView]:
    infos = {info.uuid: info for info in snapshot.of(GpuInfo)}
    ups = {state.uuid: state.up for state in snapshot.of(GpuUp)}
    reasons = {down.uuid: down.reason for down in snapshot.of(GpuDown)}
    uses = {use.uuid: use for use in snapshot.of(GpuUse)}
    memories = {memory.uuid: memory for memory in snapshot.of(GpuMemory)}
    power = gpu_power_watts(snapshot)
    limits = {
        limit.uuid: limit.limit_watts for limit in snapshot.of(GpuPowerLimit) if limit.limit == "enforced"
    }
    temperatures = {
        (reading.uuid, reading.sensor): reading.temperature_celsius for reading in snapshot.of(GpuTemperature)
    }
    margins = {margin.uuid: margin.margin_celsius for margin in snapshot.of(GpuTemperatureMargin)}
    clocks = {clock.uuid: clock.clock_hertz for clock in snapshot.of(GpuClock) if clock.domain == "sm"}
    fastest = {clock.uuid: clock.max_hertz for clock in snapshot.of(GpuClockMax) if clock.domain == "sm"}
    states = {state.uuid: state.performance_state for state in snapshot.of(GpuPerformanceState)}
    slowed_by: dict[str, list[str]] = {}
    for throttle in snapshot.of(GpuThrottle):
        if throttle.active and throttle.reason not in NO_SLOWDOWN:
            slowed_by.setdefault(throttle.uuid, []).append(throttle.reason)
    repairs: dict[str, list[str]] = {}
    for needy, repair in _repairs(snapshot):
        repairs.setdefault(needy, []).append(repair)
    indices = {use.uuid: use.gpu for use in snapshot.of(GpuUse)}
    indices |= {info.uuid: info.gpu for info in snapshot.of(GpuInfo)}
    indices |= {state.uuid: state.gpu for state in snapshot.of(GpuUp)}
    held = view_work.holders(snapshot)
    work = view_work.gpu_states(curves, indices)
    for uuid, gpu in sorted(indices.items(), key=lambda pair: _natural(pair[1])):
        info = infos.get(uuid)
        use = uses.get(uuid, GpuUse(gpu, uuid))
        memory = memories.get(uuid, GpuMemory(gpu, uuid))
        yield GpuView(
            gpu=gpu,
            uuid=uuid,
            name=info.name if info else "",
            mig_profile=info.mig_profile if info else "",
            up=ups.get(uuid, 1.0) == 1,
            down_reason=reasons.get(uuid, ""),
            utilization_ratio=use.utilization_ratio,
            power_watts=power.get(uuid),
            power_limit_watts=limits.get(uuid),
            memory_used_bytes=memory.used_bytes,
            memory_total_bytes=memory.total_bytes,
            temperature_celsius=temperatures.get((uuid, "core")),
            memory_temperature_celsius=temperatures.get((uuid, "memory")),
            temperature_margin_celsius=margins.get(uuid),
            clock_hertz=clocks.get(uuid),
            clock_max_hertz=fastest.get(uuid),
            performance_state=states.get(uuid),
            slowed_by=tuple(slowed_by.get(uuid, ())),
            repairs=tuple(repairs.get(uuid, ())),
            held_by=held.get(uuid, ()),
            work=work.get(uuid, ""),
            curves=curves.of("gpu", uuid),
        )


def _repairs(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """What each GPU needs before it is whole again."""
    for recovery in snapshot.of(GpuRecoveryAction):
        if recovery.wanted and recovery.action != "none":
            yield recovery.uuid, words(recovery.action)
    for remap in snapshot.of(GpuRowRemap):
        if remap.failed:
            yield remap.uuid, "replacement, a row could not be remapped"
        elif remap.pending:
            yield remap.uuid, "reset to remap a row"


def _network(snapshot: Snapshot, curves: Curves) -> Iterator[PortView]:
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


def _rdma(snapshot: Snapshot, curves: Curves) -> Iterator[PortView]:
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


def _disks(snapshot: Snapshot, curves: Curves) -> Iterator[DiskView]:
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


def _filesystems(snapshot: Snapshot) -> Iterator[FilesystemView]:
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


def _host(snapshot: Snapshot, curves: Curves) -> HostView:
    count = _only(snapshot.of(CpuCount))
    load = _only(snapshot.of(Load)) or Load()
    memory = _only(snapshot.of(Memory)) or Memory()
    blocked = _only(snapshot.of(BlockedProcesses))
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


def _unwell(snapshot: Snapshot) -> Iterator[CollectorView]:
    reasons: dict[str, list[str]] = {}
    for errors in snapshot.of(CollectorErrors):
        if errors.errors:
            reasons.setdefault(errors.collector, []).append(errors.reason)
    for state in snapshot.of(CollectorState):
        if state.up != 1:
            yield CollectorView(
                state.collector,
                state.age_seconds,
                state.stuck_seconds,
                tuple(reasons.get(state.collector, ())),
            )


def _newest(curves: Mapping[str, Curve], quantity: str) -> float | None:
    curve = curves.get(quantity)
    return curve[-1] if curve else None


def _natural(gpu: str) -> list[int]:
    """Order of `3`, `3:1`, `10`: by number, not by text."""
    return [int(part) if part.isdecimal() else -1 for part in gpu.split(":")]


def _only(readings: Sequence[R]) -> R | None:
    return readings[0] if readings else None
