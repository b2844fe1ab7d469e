"""Readings of earlier snapshots, as far as rates and sliding counts need them.

Fed with every snapshot that is published, so that the page does not depend on who asks for it, and how often.
"""

from __future__ import annotations

from collections.abc import Collection

from clusterwatt.readings.base import Reading
from clusterwatt.readings.snapshot import Snapshot


class Recent:
    """Keeps readings of some types for `reach_s`: of the first snapshot in each `every_s`."""

    def __init__(self, kinds: Collection[type[Reading]], *, every_s: float, reach_s: float) -> None:
        self._kinds = kinds
        self._every_s = every_s
        self._reach_s = reach_s + every_s  # one beyond it, so that one is always that old
        self._kept: tuple[Snapshot, ...] = ()

    def take(self, snapshot: Snapshot) -> tuple[Snapshot, ...]:
        """What is kept from before this snapshot, oldest first; of this one, what later ones will need."""
        if not self._kinds:
            return ()
        now_s = snapshot.monotonic_s
        before = tuple(past for past in self._kept if now_s - past.monotonic_s <= self._reach_s)
        self._kept = before
        if not before or now_s // self._every_s > before[-1].monotonic_s // self._every_s:
            part = {kind: snapshot.of(kind) for kind in self._kinds}
            self._kept = (*before, Snapshot(snapshot.tick, snapshot.wall_s, now_s, part))
        return before


def ago(kept: tuple[Snapshot, ...], now_s: float, age_s: float) -> Snapshot | None:
    """The newest one that is so old; None when none is."""
    old = (past for past in reversed(kept) if now_s - past.monotonic_s >= age_s)
    return next(old, None)
