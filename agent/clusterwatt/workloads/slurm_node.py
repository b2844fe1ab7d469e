"""What Slurm says of this node itself: whether it is drained, and how many GPUs it should have.

Asked is `sinfo` (man page: NODE STATE CODES, --Format), for one node: slurmctld then answers with that node
alone. `scontrol show node NAME` has it send the table of all nodes, which from every node of a large cluster
is too much. While Slurm cannot be asked its last word stands, for a day at most: alerts are held back by it.
"""

from __future__ import annotations

import errno
import functools
import re
from collections.abc import Iterator
from pathlib import PurePath

from clusterwatt.clock import Clock
from clusterwatt.config.model import SlurmNode as Settings
from clusterwatt.config.model import node_name
from clusterwatt.failures import failure
from clusterwatt.program import lines_of
from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import LAST_WORD_SECONDS, SchedulerNode
from clusterwatt.workloads.slurm_queue import Lines, counted

STATE_WIDTH, GRES_WIDTH = 32, 512
SINFO = (
    "sinfo",
    "--noheader",
    "--all",  # hidden partitions too
    "--local",  # of this cluster, whatever it is federated with
    "--Node",
    f"--Format=StateLong:{STATE_WIDTH},Gres:{GRES_WIDTH}",
)
VARIABLES = ("SLURM_CONF",)

# By people, by a reservation for maintenance, or by Slurm after its own checks. A node that is down is not
# among them: nobody has said that it should be.
WITHDRAWN = frozenset({"drained", "draining", "maint", "fail", "failing", "reboot"})
STATE = re.compile(r"([a-z_]+)([^a-z_]*)")
BY_MARK = frozenset("$^")  # $: reserved for maintenance; ^: Slurm has it reboot
BEHIND = re.compile(r"\([^)]*\)")  # sockets of GPUs: gpu:a100:8(S:0-1)
MIG = re.compile(r"\d+g\.\d+gb")


class SlurmNodeCollector:
    """Asks slurmctld for this node."""

    name = "slurm_node"

    def __init__(self, settings: Settings, clock: Clock, lines: Lines | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self._node = settings.node_name or node_name().partition(".")[0]
        self._lines = lines or functools.partial(lines_of, variables=VARIABLES)
        self._last: tuple[float, SchedulerNode] | None = None

    def collect(self) -> Iterator[Reading]:
        """What Slurm says, else what it said last. Raises OSError when it has said nothing for a day."""
        now_s = self._clock.monotonic_s()
        try:
            self._last = now_s, self._ask()
        except OSError as error:
            if self._last is None or now_s - self._last[0] > LAST_WORD_SECONDS:
                raise
            yield failure("", error)
        yield self._last[1]

    def _ask(self) -> SchedulerNode:
        program, *arguments = SINFO
        path = str(PurePath(self._settings.commands, program))
        command = (path, *arguments, f"--nodes={self._node}")
        told = [line for line in self._lines(command, self._settings.timeout_seconds) if line.strip()]
        if not told:
            text = f"Slurm has no node {self._node} in a partition: set workloads.slurm_node.node_name"
            raise OSError(errno.ENOENT, text)
        line = told[0].decode("utf-8", "replace")  # each partition that the node is in has one
        state, gres = line[:STATE_WIDTH].strip(), line[STATE_WIDTH:].strip()
        drained = self._settings.drain_is_maintenance and withdrawn(state)
        return SchedulerNode(scheduler="slurm", maintenance=drained, gpus=gpus(gres))


def withdrawn(state: str) -> bool:
    """Whether a node gets no more work because somebody said so. Raises OSError when that is no state."""
    found = STATE.fullmatch(state)
    if found is None:
        raise OSError(errno.EPROTO, f"sinfo printed what is no state: {state[:100]!r}")
    return found[1] in WITHDRAWN or not BY_MARK.isdisjoint(found[2])


def gpus(gres: str) -> int | None:
    """GPUs among a node's resources; None where it has none, or where they are MIG instances."""
    return None if MIG.search(gres) else counted(BEHIND.sub("", gres)) or None
