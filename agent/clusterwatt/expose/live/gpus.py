"""What the live page shows of the driver and its GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from clusterwatt.expose.history import Curve, Curves, gpu_power_watts
from clusterwatt.expose.live import work
from clusterwatt.expose.live.work import HolderView
from clusterwatt.readings.gpu import (
    GpuClock,
    GpuClockMax,
    GpuInfo,
    GpuMemory,
    GpuPerformanceState,
    GpuPowerLimit,
    GpuTemperature,
    GpuTemperatureMargin,
    GpuThrottle,
    GpuUse,
)
from clusterwatt.readings.gpu_health import GpuRecoveryAction, GpuRowRemap
from clusterwatt.readings.gpu_measured import DriverDown, DriverInfo, DriverUp, GpuDown, GpuUp
from clusterwatt.readings.snapshot import Snapshot

NO_SLOWDOWN = frozenset({"idle", "app_clocks", "sync_boost", "display", "low_utilization"})


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
    held_by: tuple[HolderView, ...]
    work: str
    curves: Mapping[str, Curve]


def driver(snapshot: Snapshot) -> DriverView:
    """The driver, as far as it answers."""
    up, down, info = snapshot.one(DriverUp), snapshot.one(DriverDown), snapshot.one(DriverInfo)
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


def gpus(snapshot: Snapshot, curves: Curves) -> Iterator[GpuView]:
    """GPUs and MIG instances, in the order of their numbers."""
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
    held = work.holders(snapshot)
    states_of_work = work.gpu_states(curves, indices)
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
            work=states_of_work.get(uuid, ""),
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


def words(reason: str) -> str:
    """A reason label as words: `reset_required` is read as "reset required"."""
    return reason.replace("_", " ")


def _natural(gpu: str) -> list[int]:
    """Order of `3`, `3:1`, `10`: by number, not by text."""
    return [int(part) if part.isdecimal() else -1 for part in gpu.split(":")]
