"""A flight bundle in place of the driver: its moments one after another, at their own pace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.flight.bundle import Moment, read
from clusterwatt.flight.ring import OFTEN
from clusterwatt.readings.agent import CollectorState
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuInfo
from clusterwatt.readings.gpu_measured import DriverInfo
from clusterwatt.readings.network import Network, RdmaPort

# What the machine that replays has of its own; two of a kind on one page would be a riddle.
LIVE = (CollectorState, Network, RdmaPort)


class FlightCollector:
    """Plays a bundle once from its first moment, then stands at its last."""

    name = "flight"

    def __init__(self, path: Path, clock: Clock) -> None:
        """Read the bundle. Raises BundleError."""
        _, self._moments = read(path)
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._at = -1
        self._shown: dict[type[Reading], list[Reading]] = {}

    def collect(self) -> Iterator[Reading]:
        """Readings of GPUs and driver at this time of the flight, marked as replayed."""
        moments = self._moments
        if not moments:
            return
        into_s = self._clock.monotonic_s() - self._began_s
        first_s = moments[0].monotonic_s
        while self._at + 1 < len(moments) and moments[self._at + 1].monotonic_s - first_s <= into_s:
            self._at += 1
            self._show(moments[self._at])
        for readings in self._shown.values():
            yield from readings

    def _show(self, moment: Moment) -> None:
        """Take a moment; what is recorded now and then stands until it comes again."""
        for kind in OFTEN:
            self._shown.pop(kind, None)
        fresh: dict[type[Reading], list[Reading]] = {}
        for reading in moment.readings:
            if isinstance(reading, GpuInfo | DriverInfo):
                fresh.setdefault(type(reading), []).append(
                    msgspec.structs.replace(reading, simulated="replay")
                )
            elif not isinstance(reading, LIVE):
                fresh.setdefault(type(reading), []).append(reading)
        self._shown.update(fresh)
