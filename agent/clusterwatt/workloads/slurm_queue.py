"""Jobs that wait in Slurm's queue, and the GPUs that they ask for, from `squeue` (man page, --Format).

For one agent of a cluster, where Slurm's commands are. Columns have a fixed width, since text behind a column
came with later versions than those that are in use. A line holds no job id: the tasks of an array have the
same, and are read once.
"""

from __future__ import annotations

import errno
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from clusterwatt.config.model import SlurmQueue as Settings
from clusterwatt.failures import failure
from clusterwatt.program import lines_of
from clusterwatt.readings.base import Reading
from clusterwatt.workloads.queue import Waiting, pending

COLUMNS = {
    "partition": 128,
    "numnodes": 12,
    "numtasks": 12,
    "sockets": 12,
    "tres-alloc": 256,
    "tres-per-job": 64,
    "tres-per-node": 64,
    "tres-per-socket": 64,
    "tres-per-task": 64,
}
SQUEUE = (
    "squeue",
    "--noheader",
    "--noconvert",  # 1024 nodes are 1024, not 1K
    "--all",  # hidden partitions too
    "--local",  # of this cluster, whatever it is federated with
    "--array",
    "--states=PENDING",
    "--Format=" + ",".join(f"{name}:{width}" for name, width in COLUMNS.items()),
)
PARTITIONS = ("scontrol", "--all", "--oneliner", "show", "partition")
PARTITION = re.compile(rb"PartitionName=(\S+)")
VARIABLES = ("SLURM_CONF",)
MAX_BYTES = 256 << 20  # some 350 000 jobs

MARKS = re.compile(r"[:=/]")
NODES = re.compile(r"(\d+)(?:-\d+)?")  # 2-4: at least 2
COUNT = re.compile(r"(\d+)([kKmM]?)")
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}

Lines = Callable[[Sequence[str], float], Iterator[bytes]]


class Asked(NamedTuple):
    """What a job asks for, in the words of Slurm. `sockets`: of each node."""

    partition: str
    nodes: str
    tasks: str
    sockets: str
    tres: str
    per_job: str
    per_node: str
    per_socket: str
    per_task: str


class SlurmQueueCollector:
    """Asks slurmctld for jobs that wait, and for its partitions, so that an empty one shows 0."""

    name = "slurm_queue"

    def __init__(self, settings: Settings, lines: Lines | None = None) -> None:
        self._settings = settings
        self._lines = lines or functools.partial(lines_of, max_bytes=MAX_BYTES, variables=VARIABLES)
        self._partitions: tuple[str, ...] = ()

    def collect(self) -> Iterator[Reading]:
        """A reading for each partition. Raises OSError when the jobs cannot be told."""
        waiting: list[Waiting] = []
        no_job: OSError | None = None
        for line in self._ask(SQUEUE):
            try:
                waiting.append(self._waiting(line))
            except OSError as error:
                no_job = no_job or error  # the first stands for all: there may be as many as jobs
        if no_job is not None:
            if not waiting:
                raise no_job
            yield failure("jobs", no_job)
        try:
            found = [PARTITION.match(line) for line in self._ask(PARTITIONS)]
            self._partitions = tuple(match[1].decode("utf-8", "replace") for match in found if match)
        except OSError as error:
            yield failure("partitions", error)
        yield from pending("slurm", self._partitions, waiting)

    def _ask(self, command: Sequence[str]) -> Iterator[bytes]:
        program, *arguments = command
        path = str(PurePath(self._settings.commands, program))
        return self._lines((path, *arguments), self._settings.timeout_seconds)

    @staticmethod
    @functools.lru_cache(maxsize=4_096)
    def _waiting(line: bytes) -> Waiting:
        return waiting(line)


def waiting(line: bytes) -> Waiting:
    """The job of a line. Raises OSError when it is none."""
    columns, begin = [], 0
    for width in COLUMNS.values():
        columns.append(_whole(line[begin : begin + width], width))
        begin += width
    asked = Asked(*columns)
    nodes = NODES.fullmatch(asked.nodes)
    if not asked.partition or nodes is None:
        raise OSError(errno.EPROTO, f"squeue printed what is no job: {line[:100]!r}")
    # A job that may run in several partitions is counted in the first it names, so that sums stay true.
    return Waiting(asked.partition.partition(",")[0], 1, gpus(asked._replace(nodes=nodes[1])))


def gpus(asked: Asked) -> int:
    """GPUs that a job asks for: by its TRES, where Slurm accounts GPUs, else by its options.

    Several options may state the same GPUs (--gpus=8 --gpus-per-node=4): what makes most of them counts.
    """
    nodes = int(asked.nodes)
    return counted(asked.tres) or max(
        counted(asked.per_job),
        counted(asked.per_node) * nodes,
        counted(asked.per_socket) * _number(asked.sockets) * nodes,
        counted(asked.per_task) * _number(asked.tasks),
    )


def counted(tres: str) -> int:
    """GPUs in a list of resources, as `gres:gpu:a100:2`, `gres/gpu=16,gres/gpu:a100=16` or `gpu`.

    The sum of all types stands beside the types, or is theirs.
    """
    untyped, typed = 0, 0
    for each in tres.split(","):
        words = MARKS.split(each.strip())
        if words[0] == "gres":
            del words[0]
        if words[:1] != ["gpu"]:
            continue
        number = COUNT.fullmatch(words[-1])
        count = 1 if number is None else int(number[1]) * UNITS[number[2].lower()]
        if len(words) - (number is not None) > 1:
            typed += count
        else:
            untyped += count
    return untyped or typed


def _whole(column: bytes, width: int) -> str:
    """A column's text; of a list that fills it the last item is left out, since it may have been cut."""
    text = column.decode("utf-8", "replace").strip()
    return text.rpartition(",")[0] if len(column) == width and not column.endswith(b" ") else text


def _number(text: str) -> int:
    """A count of sockets or tasks; `*` where the job states none, which is one."""
    return int(text) if text.isdigit() else 1
