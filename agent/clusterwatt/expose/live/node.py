"""What the live page shows: one node, put together from a snapshot and the history.

It goes out as JSON at `api/v1/node`, for the page that comes with the agent. It is no interface for others:
its form may change with every release. Quantities are in base units; null means "not offered".
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from clusterwatt.expose.history import Curves
from clusterwatt.expose.live import gpus, machine, work
from clusterwatt.expose.live.gpus import DriverView, GpuView, words
from clusterwatt.expose.live.machine import DiskView, FilesystemView, HostView, PortView
from clusterwatt.expose.render import NOT_UNICODE
from clusterwatt.readings.agent import BuildInfo, CollectorErrors, CollectorState
from clusterwatt.readings.host import Boot
from clusterwatt.readings.snapshot import Snapshot

HOT_MARGIN_CELSIUS = 5.0
FULL_RATIO = 0.97
ALARMING_SLOWDOWN = frozenset({"hw_thermal", "hw_power_brake", "sw_thermal"})


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
    idle: work.IdleView
    jobs: tuple[work.JobView, ...]
    runs: tuple[work.RunView, ...]
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
    boot = snapshot.one(Boot)
    build = snapshot.one(BuildInfo)
    shown = tuple(gpus.gpus(snapshot, curves))
    states = {gpu.uuid: gpu.work for gpu in shown}
    view = NodeView(
        node=node_name,
        version=build.version if build else "",
        tick=snapshot.tick,
        wall_s=snapshot.wall_s,
        uptime_seconds=max(0.0, snapshot.wall_s - boot.boot_timestamp_seconds) if boot else None,
        attention=(),
        driver=gpus.driver(snapshot),
        gpus=shown,
        idle=work.idle(states, curves),
        jobs=tuple(work.jobs(snapshot, states)),
        runs=tuple(work.runs(snapshot)),
        network=tuple(machine.network(snapshot, curves)),
        rdma=tuple(machine.rdma(snapshot, curves)),
        disks=tuple(machine.disks(snapshot, curves)),
        filesystems=tuple(machine.filesystems(snapshot)),
        host=machine.host(snapshot, curves),
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
