"""What goes wrong around a simulated node's GPUs, when and for how long: windows of time, nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec


class Trouble(msgspec.Struct, frozen=True):
    """From one Unix time to another. `item`: what it is about (a port, a mount point); empty: all of them.

    `amount`: how bad, in the unit of its kind.
    """

    kind: str
    from_s: float
    until_s: float = float("inf")
    item: str = ""
    amount: float = 0.0

    def on(self, time_s: float) -> bool:
        """Whether it lasts at this moment."""
        return self.from_s <= time_s < self.until_s

    def seconds(self, time_s: float) -> float:
        """For how long it has lasted until this moment."""
        return max(0.0, min(time_s, self.until_s) - self.from_s)


class Troubles:
    """All troubles of a node."""

    def __init__(self, troubles: Iterable[Trouble] = ()) -> None:
        self._by_kind: defaultdict[str, list[Trouble]] = defaultdict(list)
        for trouble in troubles:
            self._by_kind[trouble.kind].append(trouble)

    def all(self, kind: str, item: str = "") -> Sequence[Trouble]:
        """Those of a kind that concern an item, also past and future ones."""
        return [t for t in self._by_kind.get(kind, ()) if not t.item or not item or t.item == item]

    def now(self, kind: str, time_s: float, item: str = "") -> Trouble | None:
        """The one of a kind that lasts now."""
        return next((trouble for trouble in self.all(kind, item) if trouble.on(time_s)), None)

    def total(self, kind: str, time_s: float, item: str = "") -> float:
        """Amounts of a kind, each a second, summed up until now."""
        return sum(trouble.amount * trouble.seconds(time_s) for trouble in self.all(kind, item))
