"""A flight bundle in place of the driver: its moments one after another, at their own pace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.flight.bundle import read
from clusterwatt.readings import CollectorState, DriverInfo, GpuInfo, Network, RdmaPort, Reading

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
        self._at = 0

    def collect(self) -> Iterator[Reading]:
        """Readings of GPUs and driver at this time of the flight, marked as replayed."""
        moments = self._moments
        if not moments:
            return
        into_s = self._clock.monotonic_s() - self._began_s
        first_s = moments[0].monotonic_s
        while self._at + 1 < len(moments) and moments[self._at + 1].monotonic_s - first_s <= into_s:
            self._at += 1
        for reading in moments[self._at].readings:
            if isinstance(reading, GpuInfo | DriverInfo):
                yield msgspec.structs.replace(reading, simulated="replay")
            elif not isinstance(reading, LIVE):
                yield reading
