"""Which RDMA ports should be up, and how fast: configured, else learnt from what was seen.

A port is expected once it was up for an hour without a break, so an uncabled one never is. Virtual functions
come and go with their pods and are expected only when configured. What was learnt lives as long as the agent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.config.model import RdmaCollector as Settings

UP_FOR_SECONDS = 3600.0
GIGABIT_BYTES = 125_000_000


class _Seen(msgspec.Struct):
    """What was seen of a port: since when it is up, whether that was ever long enough, its highest rate."""

    up_since_s: float | None = None
    long_enough: bool = False
    highest_rate: float | None = None


class Expectations:
    """Remembers ports by their name, `device/port`."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self._configured = frozenset(settings.expected_ports)
        self._configured_rate = settings.expected_link_gbit * GIGABIT_BYTES or None
        self._seen: dict[str, _Seen] = {}

    def see(self, item: str, *, up: bool, rate: float | None, virtual: bool) -> None:
        """Take in the state of a port and its link rate in bytes per second."""
        seen = self._seen.setdefault(item, _Seen())
        if not up:
            # The rate of a port that is down is what it would try first, not what it had.
            seen.up_since_s = None
            return
        now_s = self._clock.monotonic_s()
        if seen.up_since_s is None:
            seen.up_since_s = now_s
        if now_s - seen.up_since_s >= UP_FOR_SECONDS and not virtual:
            seen.long_enough = True
        if rate is not None:
            seen.highest_rate = max(rate, seen.highest_rate or 0.0)

    def expected(self, item: str) -> bool:
        """Whether a port should be up."""
        if self._configured:
            return item in self._configured
        seen = self._seen.get(item)
        return seen is not None and seen.long_enough

    def rate(self, item: str) -> float | None:
        """The rate that a port should have, in bytes per second; None while it is unknown."""
        if self._configured_rate is not None and self.expected(item):
            return self._configured_rate
        seen = self._seen.get(item)
        return None if seen is None else seen.highest_rate

    def missing(self, present: Collection[str]) -> Iterator[str]:
        """Ports that should be up and are not even there."""
        for item in sorted(self._configured | self._seen.keys()):
            if item not in present and self.expected(item):
                yield item
