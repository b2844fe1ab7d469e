"""Utilisation that lies: at its maximum for ten minutes on a GPU that does nothing.

Drivers have been seen to state 100 % for days with no process on the card. That the GPU does nothing is known
from SM activity; without GPM, from an empty process list and power at the card's idle floor, which is learnt
while utilisation is 0. Where neither is known nothing is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from clusterwatt.catalog import Table
from clusterwatt.clock import GAP_INTERVALS
from clusterwatt.readings.gpu import GpuGpm, GpuIntegrals, GpuPower, GpuProcesses, GpuUse
from clusterwatt.readings.gpu_measured import GpuUtilizationSuspect

SUSPECT = Table(GpuUtilizationSuspect, labels=("gpu", "uuid"))
METRICS = (
    SUSPECT.gauge(
        "gpu_utilization_suspect",
        "1: utilization at or above 0.99 for ten minutes while the GPU does nothing; absent while not known.",
        "suspect",
    ),
)

LATCHED_RATIO = 0.99
QUIET_SM_RATIO = 0.005
ABOVE_FLOOR = 1.1
HELD_S = 600.0


class Watch:
    """One GPU: since when it is known, since when its utilisation contradicts the rest, its idle floor."""

    def __init__(self) -> None:
        self._newest_s = float("-inf")
        self._known_since_s: float | None = None
        self._known_s = float("-inf")
        self._latched_since_s: float | None = None
        self._floor_watts: float | None = None

    def take(
        self,
        read_s: float,
        utilization: float | None,
        gpm: GpuGpm | None,
        watts: float | None,
        processes: float | None,
        gap_s: float,
    ) -> None:
        """Take the GPU's readings of this time; the same again change nothing."""
        if read_s == self._newest_s:
            return
        self._newest_s = read_s
        if utilization == 0 and watts is not None:
            self._floor_watts = watts if self._floor_watts is None else min(watts, self._floor_watts)
        if gpm is not None and gpm.offered:
            sm = gpm.sm_active_ratio
            rests = None if sm is None else sm < QUIET_SM_RATIO
        else:
            rests = self._at_rest(watts, processes)
        if utilization is None or rests is None:
            if read_s - self._known_s > gap_s:
                self._known_since_s = self._latched_since_s = None
            return
        if self._known_since_s is None or read_s - self._known_s > gap_s:
            self._known_since_s, self._latched_since_s = read_s, None
        self._known_s = read_s
        if utilization < LATCHED_RATIO or not rests:
            self._latched_since_s = None
        elif self._latched_since_s is None:
            self._latched_since_s = read_s

    def suspect(self) -> bool | None:
        """Whether the utilisation lies; None while less than ten minutes are known."""
        if self._known_since_s is None or self._newest_s - self._known_since_s < HELD_S:
            return None
        return self._latched_since_s is not None and self._newest_s - self._latched_since_s >= HELD_S

    def _at_rest(self, watts: float | None, processes: float | None) -> bool | None:
        if processes:
            return False
        if processes is None or watts is None or self._floor_watts is None:
            return None
        return watts <= self._floor_watts * ABOVE_FLOOR


def holders(lists: Iterable[GpuProcesses]) -> dict[str, float]:
    """How many processes of any type hold each GPU, by UUID, where the driver lists those that compute."""
    counts: dict[str, float] = {}
    known: set[str] = set()
    for each in lists:
        counts[each.uuid] = counts.get(each.uuid, 0.0) + each.processes
        if each.type == "compute":
            known.add(each.uuid)
    return {uuid: counts[uuid] for uuid in known}


class SuspectMeter:
    """Watches the utilisation of every GPU, by UUID."""

    def __init__(self) -> None:
        self._watches: defaultdict[str, Watch] = defaultdict(Watch)

    def measure(
        self,
        gpus: Iterable[GpuIntegrals],
        gpm: Iterable[GpuGpm],
        uses: Iterable[GpuUse],
        powers: Iterable[GpuPower],
        *,
        every_s: float,
        processes: Mapping[str, float] | None = None,
    ) -> Iterator[GpuUtilizationSuspect]:
        """Take what the host says now; `processes`: how many hold each GPU, by UUID, where that is known."""
        gpm_of = {reading.uuid: reading for reading in gpm}
        utilization_of = {reading.uuid: reading.utilization_ratio for reading in uses}
        watts_of: dict[str, float] = {}
        for power in powers:
            if power.scope == "gpu" and (power.kind == "average" or power.uuid not in watts_of):
                watts_of[power.uuid] = power.power_watts
        known = processes or {}
        for now in gpus:
            uuid = now.uuid
            watch = self._watches[uuid]
            watch.take(
                now.read_s,
                utilization_of.get(uuid),
                gpm_of.get(uuid),
                watts_of.get(uuid),
                known.get(uuid),
                GAP_INTERVALS * every_s,
            )
            suspect = watch.suspect()
            if suspect is not None:
                yield GpuUtilizationSuspect(gpu=now.gpu, uuid=uuid, suspect=float(suspect))
