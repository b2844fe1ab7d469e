"""Seconds of use of the video engines: counters that begin with the agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from clusterwatt.meters.energy import Total
from clusterwatt.readings.gpu import GpuEngines

SUMS = ("encoder_busy_seconds", "decoder_busy_seconds", "jpeg_busy_seconds", "ofa_busy_seconds")


class EnginesMeter:
    """Carries the driver host's sums across driver hosts, by GPU and engine."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], Total] = {}

    def measure(self, engines: Iterable[GpuEngines]) -> Iterator[GpuEngines]:
        """The same readings with the seconds since the agent began to watch."""
        for each in engines:
            yield msgspec.structs.replace(each, **{name: self._total(each, name) for name in SUMS})

    def _total(self, engines: GpuEngines, name: str) -> float | None:
        seconds: float | None = getattr(engines, name)
        total = self._totals.setdefault((engines.uuid, name), Total())
        total.add(seconds, engines.since_s)
        return None if seconds is None else total.value
