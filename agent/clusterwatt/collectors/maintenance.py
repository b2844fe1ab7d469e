"""Whether people work on the node: the flag that `clusterwatt maintenance` sets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from clusterwatt import maintenance
from clusterwatt.catalog import CORE, Table
from clusterwatt.clock import Clock
from clusterwatt.config.model import MaintenanceCollector as Settings
from clusterwatt.readings.host import NodeMaintenance

log = logging.getLogger("clusterwatt.collectors.maintenance")

NODE = Table(NodeMaintenance)
METRICS = (
    NODE.gauge(
        "node_maintenance",
        "1: people work on the node (clusterwatt maintenance on), or its scheduler has it drained or "
        "cordoned, so alert rules leave it out; 0: not. Slurm is asked where workloads.slurm_node is on.",
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
        self._told = False  # that the flag, as it is, says no time

    def collect(self) -> Iterator[NodeMaintenance]:
        """1 or 0; raises OSError when the flag cannot be looked at."""
        flag = maintenance.look(self._path, self._clock.wall_s())
        if not flag.understood and not self._told:
            log.warning(
                "%s: expected nothing or a Unix time; the node is in maintenance until "
                "`clusterwatt maintenance off`",
                self._path,
            )
        self._told = not flag.understood
        yield NodeMaintenance(maintenance=float(flag.on))
