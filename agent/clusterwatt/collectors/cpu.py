"""CPU time by mode, from /proc/stat (Documentation/filesystems/proc.rst, section 1.7)."""

from __future__ import annotations

import os
from collections.abc import Iterator

from clusterwatt.catalog import Table
from clusterwatt.readings import CpuCount, CpuTime, Reading
from clusterwatt.sysfs import Files

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
GUEST_IN = {
    "user": 8,
    "nice": 9,
}  # guest time is counted in user, guest_nice in nice as well: columns 9 and 10

TIME = Table(CpuTime, labels=("mode",))
COUNT = Table(CpuCount)
METRICS = (
    TIME.counter(
        "cpu_seconds_total", "Seconds that all CPUs spent in a mode, without guests.", "cpu_seconds"
    ),
    COUNT.gauge("cpus", "CPUs that are online.", "cpus"),
)


class CpuCollector:
    """Reads the `cpu` line of /proc/stat and counts the lines of single CPUs."""

    name = "cpu"

    def __init__(self, files: Files) -> None:
        self._files = files
        self._highest: dict[str, float] = {}

    def collect(self) -> Iterator[Reading]:
        """One reading for each mode; the kernel may take idle and iowait back a little, a counter may not."""
        text = self._files.text("/proc/stat")
        if text is None:
            return
        lines = text.splitlines()
        ticks = [int(column) for column in lines[0].split()[1:]]
        for column, mode in enumerate(MODES[: len(ticks)]):
            own = ticks[column]
            guest = GUEST_IN.get(mode, len(ticks))
            if guest < len(ticks):
                own -= ticks[guest]
            seconds = max(own / TICKS_PER_SECOND, self._highest.get(mode, 0.0))
            self._highest[mode] = seconds
            yield CpuTime(mode=mode, cpu_seconds=seconds)
        yield CpuCount(cpus=float(sum(1 for line in lines[1:] if line.startswith("cpu"))))
