"""Sums of the driver host that are shown as it states them, as counters that begin with the agent.

Seconds of the video engines, and seconds for which a reason has held down the clocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from operator import attrgetter
from typing import Generic, TypeVar

import msgspec

from clusterwatt.meters.energy import Total
from clusterwatt.readings.gpu import GpuEngines, GpuThrottle

T = TypeVar("T", GpuEngines, GpuThrottle)


class CarriedMeter(Generic[T]):
    """Carries `sums` across driver hosts, for each thing that `key` tells apart."""

    def __init__(self, key: Callable[[T], Hashable], sums: tuple[str, ...]) -> None:
        self._key: Callable[[T], Hashable] = key
        self._sums = sums
        self._totals: defaultdict[tuple[Hashable, str], Total] = defaultdict(Total)
        self._newest: dict[Hashable, tuple[T, T]] = {}  # as said, as shown

    def measure(self, readings: Iterable[T]) -> Iterator[T]:
        """The same readings with the sums since the agent began to watch."""
        for said in readings:
            key = self._key(said)
            newest = self._newest.get(key)
            if newest is None or newest[0] != said:
                sums = {name: self._carried(key, name, said) for name in self._sums}
                newest = self._newest[key] = (said, msgspec.structs.replace(said, **sums))
            yield newest[1]

    def _carried(self, key: Hashable, name: str, said: T) -> float | None:
        seconds: float | None = getattr(said, name)
        total = self._totals[key, name]
        total.add(seconds, said.since_s)
        return None if seconds is None else total.value


def engines() -> CarriedMeter[GpuEngines]:
    """A meter of the video engines."""
    sums = ("encoder_busy_seconds", "decoder_busy_seconds", "jpeg_busy_seconds", "ofa_busy_seconds")
    return CarriedMeter(attrgetter("uuid"), sums)


def throttle() -> CarriedMeter[GpuThrottle]:
    """A meter of what holds down the clocks."""
    return CarriedMeter(attrgetter("uuid", "reason"), ("throttle_seconds",))
