"""Chosen variables of a process's environment: /proc/PID/environ (proc_pid_environ(5)).

Environments hold passwords and tokens. So a reader names exactly what it wants, and nothing else leaves this
file: the content is matched where it was read, bound to no name that outlives the match, and no error carries
any of it. The text is what the process was started with, and a user may have put anything there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from clusterwatt.sysfs import read_once

MAX_BYTES = 1 << 20  # the kernel fills one read up to its size (environ_read in fs/proc/base.c)
MAX_VALUE_BYTES = 4096


class Variables:
    """Reads the variables of these names, spelled exactly so, and no others."""

    def __init__(self, names: Iterable[str]) -> None:
        wanted = "|".join(re.escape(name) for name in sorted(names))
        self._pattern = re.compile(rf"(?:^|(?<=\0))({wanted})=([^\0]{{0,{MAX_VALUE_BYTES}}})".encode())

    def of(self, root: str, pid: int) -> dict[str, str]:
        """Those that a process has, the first of several as getenv(3); none when the process has ended.

        Raises PermissionError for a process that the agent may not trace.
        """
        found: dict[str, str] = {}
        for match in self._pattern.finditer(read_once(f"{root}/proc/{pid}/environ", MAX_BYTES)):
            found.setdefault(match[1].decode(), match[2].decode("utf-8", "replace"))
        return found
