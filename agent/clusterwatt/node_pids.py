"""The node's process ids, from /proc below its root (proc_pid_stat(5), pid_namespaces(7)).

The driver knows nothing of PID namespaces: it lists processes by the ids of the first one, the host's. In a
container with a namespace of its own the same number is another process or none.

That a /proc shows the first namespace is seen by process 2. There it is kthreadd, and no other namespace has
kernel threads; their mark in the stat line is the kernel's own and cannot be taken by a process. The link
/proc/1/ns/pid would tell too, but may be read only by who may trace process 1. What /proc/self shows is of no
use: below a mounted root it is the agent as the host sees it.
"""

from __future__ import annotations

import os
from pathlib import Path

KTHREADD = 2
PF_KTHREAD = 0x0020_0000  # include/linux/sched.h
FLAGS = 6  # place in the stat line, counted from behind the command's closing parenthesis


class NodePids:
    """Which processes there are on the node. `root` is the node's."""

    def __init__(self, root: str) -> None:
        self._proc = f"{root.rstrip('/')}/proc"

    def visible(self) -> bool:
        """Whether /proc shows the host's PID namespace, with the processes of all users (hidepid)."""
        try:
            stat = Path(f"{self._proc}/{KTHREADD}/stat").read_bytes()
        except OSError:  # none, or hidepid: others' processes are hidden, or all that is in their folders
            return False
        fields = stat[stat.rfind(b")") + 2 :].split()
        return len(fields) > FLAGS and bool(int(fields[FLAGS]) & PF_KTHREAD)

    def exists(self, pid: int) -> bool:
        """Whether there is a process with this id now."""
        return os.path.exists(f"{self._proc}/{pid}")
