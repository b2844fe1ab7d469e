"""When a process was started: field 22 of /proc/PID/stat, after `btime` of /proc/stat (proc(5))."""

from __future__ import annotations

import os
import re

from clusterwatt.sysfs import Files, read_once

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
START_TIME = 19  # of the fields behind the command's closing parenthesis
MAX_BYTES = 4096
BOOT_TIME = re.compile(r"^btime ([0-9]+)", re.MULTILINE)


def started_s(files: Files, pid: int) -> float | None:
    """Unix time at which a process was started; None when it is gone."""
    boot = BOOT_TIME.search(files.text("/proc/stat") or "")
    fields = read_once(f"{files.root}/proc/{pid}/stat", MAX_BYTES).rpartition(b")")[2].split()
    if boot is None or len(fields) <= START_TIME:
        return None
    return int(boot[1]) + int(fields[START_TIME]) / TICKS_PER_SECOND
