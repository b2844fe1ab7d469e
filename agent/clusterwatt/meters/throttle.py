"""Seconds for which each reason has held down the clocks: counters that begin with the agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from clusterwatt.meters.energy import Total
from clusterwatt.readings.gpu import GpuThrottle


class ThrottleMeter:
    """Carries the driver host's sums across driver hosts, by GPU and reason."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], Total] = {}

    def measure(self, throttles: Iterable[GpuThrottle]) -> Iterator[GpuThrottle]:
        """The same readings with the seconds since the agent began to watch."""
        for throttle in throttles:
            total = self._totals.setdefault((throttle.uuid, throttle.reason), Total())
            total.add(throttle.throttle_seconds, throttle.since_s)
            yield msgspec.structs.replace(throttle, throttle_seconds=total.value)
