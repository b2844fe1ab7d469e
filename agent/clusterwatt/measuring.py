"""All meters in the order in which they need each other: from what sources said to counters and states."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

from clusterwatt.clock import Clock
from clusterwatt.driver.client import DriverClient
from clusterwatt.learnt import Learnt
from clusterwatt.meters import carried, maintenance, nvlinks, peak, suspect
from clusterwatt.meters.activity import ActivityMeter
from clusterwatt.meters.deviation import DeviationMeter
from clusterwatt.meters.energy import GpuMeter
from clusterwatt.meters.node import NodeMeter
from clusterwatt.meters.suspect import SuspectMeter
from clusterwatt.meters.xid import XidMeter
from clusterwatt.readings.base import ByType, Reading, by_type
from clusterwatt.readings.gpu import (
    GpuEngines,
    GpuGpm,
    GpuInfo,
    GpuIntegrals,
    GpuMode,
    GpuPower,
    GpuPowerLimit,
    GpuProcesses,
    GpuThrottle,
    GpuUse,
)
from clusterwatt.readings.gpu_links import GpuNvlinks, GpuPcieTraffic
from clusterwatt.readings.gpu_measured import GpuDown, GpuEnergy, HardwareEvent
from clusterwatt.readings.host import BoardPower, EnergyZone, NodeMaintenance
from clusterwatt.readings.kernel_log import KernelLog, KernelSxid, KernelXid
from clusterwatt.readings.work import SchedulerNode
from clusterwatt.source import Account


class Meters:
    """Holds every meter. An item that fails is counted for the collector that it belongs to."""

    def __init__(self, clock: Clock, learnt: Learnt | None = None) -> None:
        self._learnt = learnt or Learnt(None, clock)
        self._gpu = GpuMeter()
        self._throttle = carried.throttle()
        self._engines = carried.engines()
        self._deviation = DeviationMeter()
        self._activity = ActivityMeter()
        self._suspect = SuspectMeter()
        self._node = NodeMeter()
        self._xid = XidMeter()
        self._gpu_account = Account("gpu", clock)
        self._gpm_account = Account("gpm", clock)
        self._node_account = Account("node_energy", clock)

    def go_on_with(self, signals: Mapping[str, str]) -> None:
        """Take the activity signals that an earlier agent has chosen, by UUID, as they become known."""
        self._activity.go_on_with(signals)

    def measure_gpus(self, parts: ByType, driver: DriverClient, held: Collection[str] | None) -> ByType:
        """What the driver host said in `parts`, with what the GPU meters make of it.

        `held`: UUIDs of the GPUs that jobs hold; None when nobody knows.
        """
        parts = dict(parts)
        parts[GpuThrottle] = tuple(self._throttle.measure(parts.get(GpuThrottle, ())))
        parts[GpuEngines] = tuple(self._engines.measure(parts.get(GpuEngines, ())))
        if GpuNvlinks in parts:
            parts[GpuNvlinks] = tuple(nvlinks.remembered(parts[GpuNvlinks], self._learnt))
        measured = self._gpu.measure(parts.get(GpuIntegrals, ()), parts.get(GpuPowerLimit, ()))
        activity = self._measure_activity(parts, driver.every_seconds, held)
        failures = driver.take_failures()
        if failures is not None:  # else nothing new was said, so nothing new can have failed
            measured = iter(self._gpu_account.without_failures(itertools.chain(failures, measured)))
            failed = itertools.chain(driver.gpm.take_failures(), activity)
            activity = iter(self._gpm_account.without_failures(failed))
        for kind, made in by_type(itertools.chain(measured, activity)).items():
            parts[kind] = parts.get(kind, ()) + made
        return parts

    def measure_node(
        self, parts: ByType, read_s: Mapping[type[Reading], float], other_ratio: float
    ) -> list[Reading]:
        """Energy of the node by component, and whether it is in maintenance.

        `read_s`: when readings of a type were taken, monotonic.
        `other_ratio`: as in `NodeMeter.measure`.
        """
        measured = self._node.measure(
            parts.get(GpuEnergy, ()),
            parts.get(GpuPower, ()),
            (read_s.get(EnergyZone, 0.0), parts.get(EnergyZone, ())),
            (read_s.get(BoardPower, 0.0), parts.get(BoardPower, ())),
            gpu_read_s={each.uuid: each.read_s for each in parts.get(GpuIntegrals, ())},
            gone={down.uuid for down in parts.get(GpuDown, ()) if down.reason == "lost"},
            other_ratio=other_ratio,
        )
        in_maintenance = maintenance.of_node(parts.get(NodeMaintenance, ()), parts.get(SchedulerNode, ()))
        return [*self._node_account.without_failures(measured), *in_maintenance]

    def measure_xids(self, parts: ByType, driver: DriverClient | None) -> list[Reading]:
        """Counts of XIDs and SXids, of the driver and the kernel log."""
        readable = KernelLog in parts
        return list(
            self._xid.measure(
                parts.get(GpuInfo, ()),
                driver.take_xids() if driver else (),
                driver.xids_watched if driver else (),
                (*parts.get(KernelXid, ()), *parts.get(KernelSxid, ())) if readable else None,
            )
        )

    def take_events(self) -> list[HardwareEvent]:
        """The XIDs and SXids that have come since the last call."""
        return list(self._xid.take_events())

    def accounts(self) -> Iterator[Reading]:
        """How the collectors fare whose items the meters check."""
        yield from self._gpu_account.readings()
        yield from self._gpm_account.readings()
        yield from self._node_account.readings()

    def _measure_activity(
        self, parts: ByType, every_s: float, held: Collection[str] | None
    ) -> Iterator[Reading]:
        integrals, gpm = parts.get(GpuIntegrals, ()), parts.get(GpuGpm, ())
        uses = parts.get(GpuUse, ())
        in_mig_mode = {mode.uuid for mode in parts.get(GpuMode, ()) if mode.mode == "mig" and mode.enabled}
        yield from self._activity.measure(
            integrals,
            gpm,
            uses,
            parts.get(GpuPcieTraffic, ()),
            every_s=every_s,
            instances={info.uuid for info in parts.get(GpuInfo, ()) if info.parent_uuid},
            in_mig_mode=in_mig_mode,
            held=held,
        )
        yield from self._suspect.measure(
            integrals,
            gpm,
            uses,
            parts.get(GpuPower, ()),
            every_s=every_s,
            processes=suspect.holders(parts.get(GpuProcesses, ())),
        )
        yield from self._deviation.measure(integrals, every_s=every_s)
        yield from peak.measure(parts.get(GpuInfo, ()), in_mig_mode)
