"""Load, kills for want of memory, and boot time: /proc/loadavg, /proc/vmstat, /proc/stat.

Documentation/filesystems/proc.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterwatt.catalog import Table
from clusterwatt.clock import Clock
from clusterwatt.readings.base import Reading
from clusterwatt.readings.host import Boot, Load
from clusterwatt.sysfs import Files

BOOT_SECONDS = 60.0  # /proc/stat is dear on machines with many CPUs and interrupts
OOM_KILL = re.compile(rb"^oom_kill (\d+)", re.MULTILINE)  # since Linux 4.13
BTIME = re.compile(rb"^btime (\d+)", re.MULTILINE)

LOAD = Table(Load)
BOOT = Table(Boot)
METRICS = (
    LOAD.gauge(
        "load1",
        "Processes that run, wait for a CPU, or sleep without interruption: mean of a minute.",
        "load1",
    ),
    LOAD.counter("oom_kills_total", "Processes that the kernel killed for want of memory.", "oom_kills"),
    BOOT.gauge("boot_timestamp_seconds", "When the machine was started.", "boot_timestamp_seconds"),
)


class HostCollector:
    """Reads three small facts of the machine."""

    name = "host"

    def __init__(self, files: Files, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._boot: tuple[float, Boot | None] | None = None

    def collect(self) -> Iterator[Reading]:
        """Load and kills at each pass; the boot time as old as a minute: it moves when the clock is set."""
        loadavg = self._files.raw("/proc/loadavg")
        kills = OOM_KILL.search(self._files.raw("/proc/vmstat") or b"")
        yield Load(
            load1=float(loadavg.split()[0]) if loadavg else None,
            oom_kills=float(kills[1]) if kills else None,
        )
        now_s = self._clock.monotonic_s()
        if self._boot is None or now_s - self._boot[0] >= BOOT_SECONDS:
            btime = BTIME.search(self._files.raw("/proc/stat") or b"")
            self._boot = now_s, Boot(boot_timestamp_seconds=float(btime[1])) if btime else None
        if self._boot[1] is not None:
            yield self._boot[1]
