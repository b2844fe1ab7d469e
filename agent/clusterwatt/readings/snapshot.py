"""Everything that is published in one tick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from clusterwatt.readings.base import R, Reading


class Snapshot(msgspec.Struct, frozen=True):
    """Everything published in one tick. Immutable: readers share it and never cause work."""

    tick: int
    wall_s: float
    monotonic_s: float
    readings: Mapping[type[Reading], tuple[Any, ...]]

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """All readings of one type, in the order in which their source gave them; empty when none."""
        return self.readings.get(kind, ())

    def one(self, kind: type[R]) -> R | None:
        """The reading of a type of which a node has one; None when there is none."""
        return next(iter(self.of(kind)), None)


EMPTY = Snapshot(tick=0, wall_s=0.0, monotonic_s=0.0, readings={})
