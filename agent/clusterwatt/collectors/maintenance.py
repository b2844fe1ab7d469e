"""Whether people work on the node: the flag that `clusterwatt maintenance` sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clusterwatt import maintenance
from clusterwatt.catalog import CORE, Table
from clusterwatt.clock import Clock
from clusterwatt.config.model import MaintenanceCollector as Settings
from clusterwatt.readings.host import NodeMaintenance

NODE = Table(NodeMaintenance)
METRICS = (
    NODE.gauge(
        "node_maintenance",
        "1: people work on the node (clusterwatt maintenance on), so alert rules leave it out; 0: not. "
        "A drain by the scheduler sets it only where a hook of it says so.",
        "maintenance",
        CORE,
    ),
)


class MaintenanceCollector:
    """Looks at the flag."""

    name = "maintenance"

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._path = Path(settings.file)
        self._clock = clock

    def collect(self) -> Iterator[NodeMaintenance]:
        """1 or 0; raises OSError when the flag cannot be looked at."""
        yield NodeMaintenance(maintenance=float(maintenance.look(self._path, self._clock.wall_s()).on))
