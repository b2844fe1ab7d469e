"""Which RDMA ports should be up, and how fast: configured, else learnt from what was seen.

A port is expected once it was up for an hour without a break, so an uncabled one never is. Virtual functions
come and go with their pods and are expected only when configured. What was learnt is kept over restarts of
the agent; a port that was up for no moment of the last week is forgotten with one, and another card (by its
node_guid) begins anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.config.model import RdmaCollector as Settings
from clusterwatt.learnt import Learnt

UP_FOR_SECONDS = 3600.0
GIGABIT_BYTES = 125_000_000
PORT, RATE = "rdma_port", "rdma_link_rate_bytes_per_second"  # what is remembered
OF = " of "  # between a port and its card


class _Seen(msgspec.Struct):
    """What was seen of a port: since when it is up, whether that was ever long enough, its highest rate."""

    up_since_s: float | None = None
    long_enough: bool = False
    highest_rate: float | None = None


class Expectations:
    """Remembers ports by their name, `device/port`."""

    def __init__(self, settings: Settings, clock: Clock, learnt: Learnt) -> None:
        self._clock = clock
        self._learnt = learnt
        self._configured = frozenset(settings.expected_ports)
        self._configured_rate = settings.expected_link_gbit * GIGABIT_BYTES or None
        self._seen: dict[str, _Seen] = {}
        self._cards: dict[str, str] = {}
        self._earlier = learnt.of(PORT)
        self._earlier_rates = learnt.of(RATE)

    def see(self, item: str, *, up: bool, rate: float | None, virtual: bool, card: str = "") -> None:
        """Take in the state of a port and its link rate in bytes per second. `card`: what it is part of."""
        if item not in self._seen or (card and card != self._cards[item]):
            key = f"{item}{OF}{card}"
            self._cards[item] = card
            self._seen[item] = _Seen(
                long_enough=key in self._earlier, highest_rate=self._earlier_rates.get(key)
            )
        seen = self._seen[item]
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
        if seen.long_enough:
            key = f"{item}{OF}{self._cards[item]}"
            self._learnt.most(PORT, key, 1.0)
            if seen.highest_rate is not None:
                self._learnt.most(RATE, key, seen.highest_rate)

    def expected(self, item: str) -> bool:
        """Whether a port should be up."""
        if self._configured:
            return item in self._configured
        seen = self._seen.get(item)
        return item in self._gone() if seen is None else seen.long_enough

    def rate(self, item: str) -> float | None:
        """The rate that a port should have, in bytes per second; None while it is unknown."""
        if self._configured_rate is not None and self.expected(item):
            return self._configured_rate
        seen = self._seen.get(item)
        if seen is not None:
            return seen.highest_rate
        return max(
            (r for key, r in self._earlier_rates.items() if key.partition(OF)[0] == item), default=None
        )

    def missing(self, present: Collection[str]) -> Iterator[str]:
        """Ports that should be up and are not even there."""
        for item in sorted(self._configured | self._seen.keys() | self._gone()):
            if item not in present and self.expected(item):
                yield item

    def _gone(self) -> set[str]:
        """Ports that an earlier agent expected and this one has never seen."""
        return {key.partition(OF)[0] for key in self._earlier} - self._seen.keys()
