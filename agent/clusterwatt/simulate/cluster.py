"""A simulated cluster: its lanes, the jobs on them, and what each GPU does, by seed and time alone.

Sixteen nodes make a block, and each block has the same lanes with other jobs (`simulate.kinds`). The first
ten of its nodes belong to Slurm, the others to Kubernetes.
"""

from __future__ import annotations

import hashlib
import math
import random
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import msgspec

from clusterwatt.simulate import plans
from clusterwatt.simulate.acts import LATCHED, Act
from clusterwatt.simulate.kinds import Kind, block, first_block
from clusterwatt.simulate.timetable import WEEK_S, Timetable
from clusterwatt.simulate.work import (
    EPOCH_S,
    FREE,
    NOTHING,
    Flat,
    Process,
    Signal,
    Signals,
    Tenant,
    Then,
    Work,
)

BLOCK = 16  # nodes
SLURM_NODES = 10  # of a block; the others are Kubernetes'


class JobRun(msgspec.Struct, frozen=True):
    """A job that is there, with its times in Unix seconds. `number`: since the epoch, on its lane."""

    lane: Lane
    number: int
    start_s: float
    end_s: float
    job_id: str
    name: str

    @property
    def kind(self) -> Kind:
        """What it has in common with its lane's other jobs."""
        return self.lane.kind


class Change(msgspec.Struct, frozen=True):
    """From one Unix time to another a lane does something else, on all of its GPUs or on some."""

    from_s: float
    until_s: float
    act: Act
    boards: frozenset[tuple[int, int]] = frozenset()
    silent: bool = False  # the run goes on, and logs nothing


class Lane:
    """GPUs that always belong to one job at a time. `places`: boards by node; the first has rank 0.

    `begins_s`: whole Unix seconds at which its week begins; by default it follows from the seed.
    """

    def __init__(
        self,
        kind: Kind,
        number: int,
        seed: int,
        places: Sequence[tuple[int, tuple[int, ...]]],
        slow: int = 0,
        *,
        begins_s: int | None = None,
    ) -> None:
        self.kind, self.number, self.seed = kind, number, seed
        self.places = tuple((node, boards) for node, boards in places if boards)
        self.gpus = sum(len(boards) for _, boards in self.places)
        chance = random.Random(f"{seed}/{number}/{kind.name}")  # noqa: S311 - reproducible, no secret
        self.shift_s = 0.0 if kind.kind == "service" or "night" in kind.name else chance.uniform(0, WEEK_S)
        self._first_number = 0
        if begins_s is not None:
            self.shift_s = (EPOCH_S - begins_s) % WEEK_S
            # Jobs of a lane that begins at another time are others.
            self._first_number = int(begins_s - EPOCH_S) // 60
        self.shifts = tuple(kind.weeks(chance))
        self._starts_s = [shift.start_s for shift in self.shifts]
        self._turns = plans.spells_of(self.shifts)
        self._turn_starts_s = [start_s for start_s, _ in self._turns]
        self.boards = tuple((node, board) for node, boards in self.places for board in boards)
        node, boards = self.places[0]
        self.slow = (node, boards[slow % len(boards)])  # the one that holds up the others
        self.changes: tuple[Change, ...] = ()

    # --- jobs ----------------------------------------------------------------------------------------

    def job(self, time_s: float) -> JobRun | None:
        """The job of this moment."""
        weeks, offset_s = divmod(time_s - EPOCH_S + self.shift_s, WEEK_S)
        place = bisect_right(self._starts_s, offset_s) - 1
        if place < 0 or offset_s >= self.shifts[place].end_s:
            return None
        shift = self.shifts[place]
        began_s = time_s - offset_s
        number = self._first_number + int(weeks) * len(self.shifts) + place
        return JobRun(
            lane=self,
            number=number,
            start_s=round(began_s + shift.start_s, 3),
            end_s=round(began_s + shift.end_s, 3),
            job_id=self._job_id(number),
            name=self.kind.name,
        )

    def _job_id(self, number: int) -> str:
        """The same on all nodes, another for each job, never used again."""
        if self.kind.controller:
            return f"k8s/{uid(self.seed, self.number, self.kind.name, number)}"
        return f"slurm/{number * 1_000 + self.number}"

    def act(self, time_s: float) -> Act | None:
        """What the job does at this moment, None between jobs; changes that hold for all GPUs count."""
        for change in self.changes:
            if not change.boards and change.from_s <= time_s < change.until_s:
                return None if self.job(time_s) is None else change.act
        return self._turns[self._turn(time_s)][1]

    def turns_before(self, time_s: float) -> Iterator[tuple[float, Act | None]]:
        """Start (Unix time) and act of this moment's turn and those before it, of this week, newest first."""
        began_s = time_s - (time_s - EPOCH_S + self.shift_s) % WEEK_S
        for place in range(self._turn(time_s), -1, -1):
            start_s, act = self._turns[place]
            yield began_s + start_s, act

    def _turn(self, time_s: float) -> int:
        offset_s = (time_s - EPOCH_S + self.shift_s) % WEEK_S
        return bisect_right(self._turn_starts_s, offset_s) - 1

    # --- signals -------------------------------------------------------------------------------------

    def signals(self, node: int, board: int) -> Signals:
        """What a GPU of the lane does."""
        signals = self._slow_signals if (node, board) == self.slow else self._signals
        changes = [c for c in self.changes if not c.boards or (node, board) in c.boards]
        return changed(signals, changes, slow=(node, board) == self.slow)

    @cached_property
    def _signals(self) -> Signals:
        return self._table_of(lambda act: act.signals)

    @cached_property
    def _slow_signals(self) -> Signals:
        if all(act is None or act.slow is None for _, act in self._turns):
            return self._signals
        return self._table_of(lambda act: act.slow or act.signals)

    def _table_of(self, pick: Callable[[Act], Signals]) -> Signals:
        def table(name: str) -> Signal:
            return self._timetable(lambda act: pick(act).of(name), NOTHING.of(name))

        return Signals(**{name: table(name) for name in Signals.__struct_fields__})

    def rate(self, name: str) -> Signal:
        """What the job does around each GPU: pace, fabric, cpus, read or written of its acts."""

        def value(act: Act) -> Signal:
            of_act = getattr(act, name)
            return Flat(of_act) if isinstance(of_act, float) else of_act

        signal = self._timetable(value, Flat(0.0))
        for change in self.changes:
            if not change.boards:
                signal = during(signal, change.from_s, change.until_s, value(change.act))
        return signal

    def _timetable(self, pick: Callable[[Act], Signal], otherwise: Signal) -> Signal:
        picked = [otherwise if act is None else pick(act) for _, act in self._turns]
        return Timetable(self._turn_starts_s, picked, self.shift_s)


class Shifts(Tenant, frozen=True):
    """The tenants of a GPU in turn: the processes are those of the job of the moment."""

    lane: Lane | None = None
    rank: int = 0

    def present(self, time_s: float) -> tuple[Process, ...]:
        """The process of the job of this moment."""
        job = None if self.lane is None else self.lane.job(time_s)
        if job is None:
            return ()
        return (Process(pid(job, self.rank), "/usr/bin/python3", job.kind.memory),)


class NodeWork(Work):
    """What runs on the GPUs of one node of a cluster."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        self._cluster, self._node = cluster, node

    def tenant(self, gpu: int) -> Tenant:
        """The tenants of a GPU, in turn."""
        return self._cluster.tenant(self._node, gpu)


class Cluster:
    """All lanes of `nodes` nodes with `gpus` GPUs each. Nodes count from 0 here, and from 1 by name.

    `own`: lanes that somebody asks for; the usual ones do without their GPUs.
    """

    def __init__(self, nodes: int, gpus: int, seed: int, own: Sequence[Lane] = ()) -> None:
        self.nodes, self.gpus, self.seed = nodes, gpus, seed
        self.lanes = (*_lanes(nodes, gpus, seed, frozenset(b for lane in own for b in lane.boards)), *own)
        self.without_job: dict[tuple[int, int], list[Change]] = {}  # by GPU: what goes on there for nobody
        self._of_node: list[list[Lane]] = [[] for _ in range(nodes)]
        for lane in self.lanes:
            for node, _ in lane.places:
                self._of_node[node].append(lane)

    def on(self, node: int) -> Sequence[Lane]:
        """The lanes that have GPUs of a node."""
        return self._of_node[node]

    def lane(self, node: int, board: int) -> Lane | None:
        """The lane of a GPU; None: it is always free."""
        for lane in self._of_node[node]:
            if any(place == node and board in boards for place, boards in lane.places):
                return lane
        return None

    def tenant(self, node: int, board: int) -> Tenant:
        """The tenants of a GPU, in turn."""
        lane = self.lane(node, board)
        if lane is not None:
            return Shifts(lane.signals(node, board), lane=lane, rank=board)
        tenant = Tenant(LATCHED) if latched(node, board, self.gpus) else FREE
        return Tenant(changed(tenant.signals, self.without_job.get((node, board), ())))


def latched(node: int, board: int, gpus: int) -> bool:
    """The GPU of each block whose driver goes on to say 100 %."""
    return node % BLOCK == 8 and board == gpus - 1 and gpus > 1


def scheduler_of(node: int) -> str:
    """Who hands out the GPUs of a node."""
    return "slurm" if node % BLOCK < SLURM_NODES else "kubernetes"


def changed(signals: Signals, changes: Sequence[Change], *, slow: bool = False) -> Signals:
    """Signals with those of other acts in their place for a while. `slow`: of who holds up the others."""
    if not changes:
        return signals

    def one(name: str) -> Signal:
        signal = signals.of(name)
        for change in changes:
            own = change.act.slow if slow and change.act.slow is not None else change.act.signals
            signal = during(signal, change.from_s, change.until_s, own.of(name))
        return signal

    return Signals(**{name: one(name) for name in Signals.__struct_fields__})


def during(signal: Signal, from_s: float, until_s: float, other: Signal) -> Signal:
    """A signal with another one in its place for a while."""
    changed: Signal = Then(signal, from_s, other)
    return changed if math.isinf(until_s) else Then(changed, until_s, signal)


def pid(job: JobRun, rank: int) -> int:
    """The process of a job on a board."""
    return 10_000 + (job.number * 1_009 + job.lane.number * 131) % 4_000_000 + rank


def uid(*parts: object) -> str:
    """A name as Kubernetes gives it, the same for the same parts."""
    text = "/".join(str(part) for part in ("clusterwatt simulated", *parts))
    return str(uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=4))


def _lanes(nodes: int, gpus: int, seed: int, taken: frozenset[tuple[int, int]]) -> Iterator[Lane]:
    number = 0
    for first in range(0, nodes, BLOCK):
        for kind, places, slow in (*block(gpus), *(first_block(gpus) if first == 0 else ())):
            here = [
                (first + node, tuple(board for board in boards if (first + node, board) not in taken))
                for node, boards in places
                if first + node < nodes
            ]
            if any(boards for _, boards in here):
                yield Lane(kind, number, seed, here, slow)
            number += 1
