"""CPU time by mode, from /proc/stat (Documentation/filesystems/proc.rst, section 1.7)."""

from __future__ import annotations

import os
from collections.abc import Iterator

from clusterwatt.catalog import Table
from clusterwatt.readings.base import Reading
from clusterwatt.readings.host import CpuCount, CpuTime
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
        self._cpus: int | None = None
        self._highest: dict[str, float] = {}
        self._shift: dict[str, float] = {}

    def collect(self) -> Iterator[Reading]:
        """One reading for each mode. A counter does not step back, whatever the kernel does."""
        text = self._files.text("/proc/stat")
        if text is None:
            return
        lines = text.splitlines()
        cpus = sum(1 for line in lines[1:] if line.startswith("cpu"))
        seconds = seconds_by_mode([int(column) for column in lines[0].split()[1:]])
        if self._cpus not in {None, cpus}:
            # The idle time of a CPU that is offline is counted another way (get_idle_time in fs/proc/stat.c):
            # the sum can fall by days, and rises by as much when it is back. Go on from where we were.
            self._shift = {mode: self._highest[mode] - now for mode, now in seconds.items()}
        self._cpus = cpus
        for mode, now in seconds.items():
            # Idle and iowait may go back a little at any time, and are right again a moment later.
            self._highest[mode] = max(now + self._shift.get(mode, 0.0), self._highest.get(mode, 0.0))
            yield CpuTime(mode=mode, cpu_seconds=self._highest[mode])
        yield CpuCount(cpus=float(cpus))


def seconds_by_mode(ticks: list[int]) -> dict[str, float]:
    """Seconds in each mode that the kernel knows, guests taken out of the mode that holds them."""
    seconds = {}
    for mode, own in zip(MODES, ticks, strict=False):
        guest = GUEST_IN.get(mode, len(ticks))
        in_guests = ticks[guest] if guest < len(ticks) else 0
        seconds[mode] = (own - in_guests) / TICKS_PER_SECOND
    return seconds
