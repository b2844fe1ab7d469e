"""Processes in uninterruptible sleep, from /proc/PID/stat and /proc/PID/status (proc_pid_stat(5)).

A process that waits for a dead file server or device sleeps so and cannot be killed. One that reads a busy
disk does too, but for moments: it counts as asleep all the time only if it was not scheduled in between.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator

import msgspec

from clusterwatt.catalog import Table
from clusterwatt.clock import Clock
from clusterwatt.node_pids import FLAGS, PF_KTHREAD
from clusterwatt.readings.base import Reading
from clusterwatt.readings.host import BlockedProcesses
from clusterwatt.sysfs import Files, read_once

STAT_BYTES = 1024  # a line has 52 numbers; those that are needed stand in its first half
STATUS_BYTES = 8192
SWITCHES = re.compile(rb"^voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)

# Fields of the stat line behind the command's closing parenthesis.
STATE, START_TIME = 0, 19
# A kernel thread may sleep so for ever by design. A frozen task shows the same state (include/linux/sched.h).
PF_FROZEN = 0x0001_0000

BLOCKED = Table(BlockedProcesses)
METRICS = (
    BLOCKED.gauge("blocked_processes", "Processes in uninterruptible sleep.", "processes"),
    BLOCKED.gauge(
        "blocked_process_age_seconds",
        "For how long the oldest of them has been seen asleep without a break; 0 = none.",
        "oldest_age_seconds",
    ),
)


class Sleep(msgspec.Struct, frozen=True):
    """One sleep of one process: another sleep, or another process under the pid, differs in a number."""

    pid: str
    start_time: bytes
    switches: bytes


class ProcessesCollector:
    """Looks at the main thread of every process."""

    name = "processes"

    def __init__(self, files: Files, clock: Clock) -> None:
        self._proc = f"{files.root}/proc"
        self._clock = clock
        self._since_s: dict[Sleep, float] = {}

    def collect(self) -> Iterator[Reading]:
        """How many processes are blocked and since when the oldest was seen so."""
        now_s = self._clock.monotonic_s()
        self._since_s = {sleep: self._since_s.get(sleep, now_s) for sleep in self._sleeps()}
        yield BlockedProcesses(
            processes=float(len(self._since_s)),
            oldest_age_seconds=now_s - min(self._since_s.values(), default=now_s),
        )

    def _sleeps(self) -> Iterator[Sleep]:
        pids = [name for name in os.listdir(self._proc) if name[0].isdigit()]
        if "1" not in pids:  # procfs mounted with hidepid=invisible: a count of what is left says nothing
            raise PermissionError(errno.EPERM, "processes of other users are hidden", self._proc)
        for pid in pids:
            stat = read_once(f"{self._proc}/{pid}/stat", STAT_BYTES)
            # The command may hold blanks and parentheses of its own.
            end = stat.rfind(b")") + 2
            if not stat.startswith(b"D", end):
                continue
            fields = stat[end:].split()
            if int(fields[FLAGS]) & (PF_KTHREAD | PF_FROZEN):
                continue
            switches = SWITCHES.search(read_once(f"{self._proc}/{pid}/status", STATUS_BYTES))
            yield Sleep(pid, fields[START_TIME], switches[1] if switches else b"")
