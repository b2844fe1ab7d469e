"""Whose a process is that writes the files of a training run, by its cgroup and its environment.

Where Slurm does not track processes by cgroups, their cgroup is that of a unit or a session; SLURM_JOB_ID in
their environment then tells the job. A user can set it: it says to whom a run belongs, and nobody pays by it.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from clusterwatt.node_pids import NodePids
from clusterwatt.sysfs import Files
from clusterwatt.workloads import process
from clusterwatt.workloads.environ import Variables
from clusterwatt.workloads.process_start import BOOT_TIME

JOB = "SLURM_JOB_ID"
NAMED_BY_THEMSELVES = frozenset({"unit", "user"})  # owners where no scheduler is seen


class Writer(NamedTuple):
    """A process: its owner as in `ProcessOwner`, since when it runs (Unix time), and its user."""

    owner: str
    started_s: float
    uid: int


class ProcessLookup:
    """Finds processes of the node by their pids. Belongs to one collector and its thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._pids = NodePids(files.root)
        self._variables = Variables([JOB])

    def find(self, pid: int) -> Writer | None:
        """The process that has the pid now; None where there is none, or none of the node's can be seen."""
        root = self._files.root
        boot = BOOT_TIME.search(self._files.text("/proc/stat") or "")
        if boot is None or not self._pids.visible():
            return None
        try:
            seen = process.look(root, pid)
        except OSError:
            return None
        if seen is None:
            return None
        owner = seen.owner.name
        if seen.owner.kind in NAMED_BY_THEMSELVES:
            with contextlib.suppress(OSError):
                job = self._variables.of(root, pid).get(JOB, "")
                owner = f"slurm/{job}" if job.isdecimal() else owner
        return Writer(owner, int(boot[1]) + seen.started_s, int(seen.uid))
