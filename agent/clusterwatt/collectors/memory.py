"""Main memory, from /proc/meminfo, and its errors, from EDAC.

Documentation/filesystems/proc.rst (meminfo), Documentation/ABI/testing/sysfs-devices-edac.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterwatt.catalog import STANDARD, Table
from clusterwatt.failures import failure
from clusterwatt.readings.base import Reading
from clusterwatt.readings.host import Memory, MemoryErrors
from clusterwatt.sysfs import Files

KIBIBYTE = 1024
# The blank after the colon is not always there (giampaolo/psutil#2809).
LINE = re.compile(rb"^(\w+):\s*(\d+)", re.MULTILINE)
CONTROLLERS = "/sys/devices/system/edac/mc"
ERROR_FILES = (("corrected", "ce_count"), ("uncorrected", "ue_count"))

MEMORY = Table(Memory)
ERRORS = Table(MemoryErrors, labels=("type",))
METRICS = (
    MEMORY.gauge("memory_total_bytes", "Main memory that the kernel has.", "total_bytes"),
    MEMORY.gauge(
        "memory_available_bytes", "Memory that a new process could have without swapping.", "available_bytes"
    ),
    MEMORY.gauge("memory_free_bytes", "Memory that nothing uses, caches included.", "free_bytes", STANDARD),
    MEMORY.gauge("memory_cached_bytes", "Memory that holds file contents.", "cached_bytes", STANDARD),
    MEMORY.gauge("memory_dirty_bytes", "File contents that wait to be written out.", "dirty_bytes", STANDARD),
    MEMORY.gauge("memory_swap_total_bytes", "Swap space.", "swap_total_bytes", STANDARD),
    MEMORY.gauge("memory_swap_free_bytes", "Swap space that is free.", "swap_free_bytes", STANDARD),
    ERRORS.counter(
        "memory_errors_total", "Memory errors that the memory controllers report.", "errors", STANDARD
    ),
)


class MemoryCollector:
    """Reads the table of the kernel's memory and the error counts of all memory controllers."""

    name = "memory"

    def __init__(self, files: Files) -> None:
        self._files = files

    def collect(self) -> Iterator[Reading]:
        """One reading of the memory; errors by type where the machine counts them."""
        table = self._files.raw("/proc/meminfo")
        if table is not None:
            bytes_of = {name: float(int(kib) * KIBIBYTE) for name, kib in LINE.findall(table)}
            yield Memory(
                total_bytes=bytes_of.get(b"MemTotal"),
                available_bytes=bytes_of.get(b"MemAvailable"),
                free_bytes=bytes_of.get(b"MemFree"),
                cached_bytes=bytes_of.get(b"Cached"),
                dirty_bytes=bytes_of.get(b"Dirty"),
                swap_total_bytes=bytes_of.get(b"SwapTotal"),
                swap_free_bytes=bytes_of.get(b"SwapFree"),
            )
        for kind, file in ERROR_FILES:
            yield from self._errors(kind, file)

    def _errors(self, kind: str, file: str) -> Iterator[Reading]:
        """The sum over all controllers; none when one fails, because a sum without it would step back."""
        total = None
        for name in self._files.names(CONTROLLERS):
            if not name.startswith("mc"):
                continue
            try:
                errors = self._files.integer(f"{CONTROLLERS}/{name}/{file}")
            except OSError as error:
                yield failure(name, error)
                return
            if errors is not None:
                total = (total or 0) + errors
        if total is not None:
            yield MemoryErrors(type=kind, errors=float(total))
