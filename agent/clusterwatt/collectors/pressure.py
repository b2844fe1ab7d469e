"""Time in which work stood still for want of a resource (PSI), from /proc/pressure.

Documentation/accounting/psi.rst. Absent before Linux 4.20 and where PSI is built in but off: reading then
gives EOPNOTSUPP (prometheus/node_exporter#1961).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterwatt.catalog import STANDARD, Table
from clusterwatt.failures import failure
from clusterwatt.readings.base import Reading
from clusterwatt.readings.host import Pressure
from clusterwatt.sysfs import Files

MICROSECONDS = 1e6
RESOURCES = ("cpu", "memory", "io", "irq")
LINE = re.compile(r"^(some|full) .*\btotal=(\d+)", re.MULTILINE)

PRESSURE = Table(Pressure, labels=("resource", "kind"))
METRICS = (
    PRESSURE.counter(
        "pressure_seconds_total",
        "Seconds in which at least one task (some), or all at once (full), waited for the resource.",
        "pressure_seconds",
        level=STANDARD,
    ),
)


class PressureCollector:
    """Reads the file of each resource."""

    name = "pressure"

    def __init__(self, files: Files) -> None:
        self._files = files

    def collect(self) -> Iterator[Reading]:
        """One reading for each resource and kind that the kernel measures."""
        for resource in RESOURCES:
            try:
                text = self._files.text(f"/proc/pressure/{resource}")
            except OSError as error:
                yield failure(resource, error)
                continue
            for kind, microseconds in LINE.findall(text or ""):
                # Without a meaning for the machine as a whole, and set to zero since Linux 5.13 (psi.rst).
                if (resource, kind) == ("cpu", "full"):
                    continue
                yield Pressure(
                    resource=resource, kind=kind, pressure_seconds=int(microseconds) / MICROSECONDS
                )
