"""Whether the node is in maintenance: by the word of people on it, or of the scheduler that gives it work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from clusterwatt.readings.host import NodeMaintenance
from clusterwatt.readings.work import SchedulerNode


def of_node(flags: Iterable[NodeMaintenance], said: Iterable[SchedulerNode]) -> Iterator[NodeMaintenance]:
    """1 where the flag or a scheduler says so, 0 where none does; nothing where nobody says anything."""
    words = [flag.maintenance > 0 for flag in flags] + [node.maintenance for node in said]
    if words:
        yield NodeMaintenance(maintenance=float(any(words)))
