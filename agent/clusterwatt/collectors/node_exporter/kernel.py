"""Tables of the kernel: /proc/stat, meminfo, vmstat, loadavg, pressure, file-nr and connection tracking.

Documentation/filesystems/proc.rst, Documentation/accounting/psi.rst.
"""

from __future__ import annotations

import re

from clusterwatt.collectors.cpu import MODES, TICKS_PER_SECOND
from clusterwatt.collectors.node_exporter.families import COUNTER, GAUGE, UNTYPED, Found, Row, single, table
from clusterwatt.failures import failure
from clusterwatt.sysfs import Files

STAT = (
    ("intr", "node_intr_total", COUNTER),
    ("ctxt", "node_context_switches_total", COUNTER),
    ("processes", "node_forks_total", COUNTER),
    ("btime", "node_boot_time_seconds", GAUGE),
    ("procs_running", "node_procs_running", GAUGE),
    ("procs_blocked", "node_procs_blocked", GAUGE),
)
GUEST_MODES = ("user", "nice")
HOTPLUG_SECONDS = 3.0  # idle time that falls by more belongs to a CPU that was away

MEMINFO_LINE = re.compile(r"^(\S+):\s*(\d+)( kB)?", re.MULTILINE)
KIBIBYTE = 1024
VMSTAT_LINE = re.compile(r"^((?:oom_kill|pgpg|pswp|pg.*fault)\S*) (\d+)", re.MULTILINE)

PRESSURE = (
    ("cpu", "some", "node_pressure_cpu_waiting_seconds_total"),
    ("io", "some", "node_pressure_io_waiting_seconds_total"),
    ("io", "full", "node_pressure_io_stalled_seconds_total"),
    ("memory", "some", "node_pressure_memory_waiting_seconds_total"),
    ("memory", "full", "node_pressure_memory_stalled_seconds_total"),
    ("irq", "full", "node_pressure_irq_stalled_seconds_total"),
)
PRESSURE_LINE = re.compile(r"^(some|full) .*\btotal=(\d+)", re.MULTILINE)
MICROSECONDS = 1e6

CONNTRACK = "/proc/sys/net/netfilter/nf_conntrack_"


class Stat:
    """/proc/stat: CPU times by CPU and mode, which do not fall, and counters of the whole machine."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._seconds: dict[str, list[float]] = {}

    def families(self) -> Found:
        """Guest time is in user and nice as well, as node_exporter has it."""
        lines = [line.split() for line in (self._files.text("/proc/stat") or "").splitlines()]
        now = {words[0][3:]: words[1:] for words in lines if words and re.fullmatch(r"cpu\d+", words[0])}
        self._seconds = {cpu: self._steady(cpu, ticks) for cpu, ticks in now.items()}
        times: list[Row] = []
        guests: list[Row] = []
        for cpu, seconds in self._seconds.items():
            times += [((cpu, mode), (own,)) for mode, own in zip(MODES, seconds, strict=False)]
            in_guests = seconds[len(MODES) :]
            guests += [((cpu, mode), (own,)) for mode, own in zip(GUEST_MODES, in_guests, strict=False)]
        labels = ("cpu", "mode")
        yield from table("/proc/stat", labels, (("node_cpu_seconds_total", COUNTER),), times)
        yield from table("/proc/stat", labels, (("node_cpu_guest_seconds_total", COUNTER),), guests)
        totals = {words[0]: float(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
        yield from single("/proc/stat", ((name, kind, totals.get(word)) for word, name, kind in STAT))

    def _steady(self, cpu: str, ticks: list[str]) -> list[float]:
        seconds = [int(word) / TICKS_PER_SECOND for word in ticks]
        before = self._seconds.get(cpu)
        idle = MODES.index("idle")
        if before is None or len(before) != len(seconds) or before[idle] - seconds[idle] >= HOTPLUG_SECONDS:
            return seconds
        return [max(pair) for pair in zip(seconds, before, strict=True)]


def meminfo(files: Files) -> Found:
    """/proc/meminfo, a family for each line; what is in kB becomes bytes."""
    lines = MEMINFO_LINE.findall(files.text("/proc/meminfo") or "")
    yield from single(
        "/proc/meminfo",
        (
            (
                f"node_memory_{re.sub(r'[()]', '_', name).rstrip('_')}{'_bytes' if unit else ''}",
                GAUGE,
                float(int(value) * KIBIBYTE if unit else int(value)),
            )
            for name, value, unit in lines
        ),
    )


def vmstat(files: Files) -> Found:
    """Lines of /proc/vmstat on paging, swapping, page faults and kills for want of memory."""
    lines = VMSTAT_LINE.findall(files.text("/proc/vmstat") or "")
    yield from single(
        "/proc/vmstat", ((f"node_vmstat_{name}", UNTYPED, float(value)) for name, value in lines)
    )


def loadavg(files: Files) -> Found:
    """The three load averages."""
    words = (files.text("/proc/loadavg") or "").split()
    names = ("node_load1", "node_load5", "node_load15")
    yield from single(
        "/proc/loadavg", ((name, GAUGE, float(word)) for name, word in zip(names, words, strict=False))
    )


def pressure(files: Files) -> Found:
    """Time in which work stood still; what `full` says of the CPU has no meaning for a whole machine."""
    seconds: dict[tuple[str, str], float] = {}
    for resource in ("cpu", "io", "memory", "irq"):
        try:
            text = files.text(f"/proc/pressure/{resource}")
        except OSError as error:
            yield failure(resource, error)
            continue
        for kind, microseconds in PRESSURE_LINE.findall(text or ""):
            seconds[resource, kind] = int(microseconds) / MICROSECONDS
    yield from single(
        "/proc/pressure",
        ((name, COUNTER, seconds.get((resource, kind))) for resource, kind, name in PRESSURE),
    )


def limits(files: Files) -> Found:
    """Open files and tracked connections, with the most that there may be."""
    words = (files.text("/proc/sys/fs/file-nr") or "").split()
    if len(words) == 3:
        yield from single(
            "/proc/sys/fs/file-nr",
            (
                ("node_filefd_allocated", GAUGE, float(words[0])),
                ("node_filefd_maximum", GAUGE, float(words[2])),
            ),
        )
    yield from single(
        "/proc/sys/net/netfilter",
        (
            ("node_nf_conntrack_entries", GAUGE, files.integer(f"{CONNTRACK}count")),
            ("node_nf_conntrack_entries_limit", GAUGE, files.integer(f"{CONNTRACK}max")),
        ),
    )
