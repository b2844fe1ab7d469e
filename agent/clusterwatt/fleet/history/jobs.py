"""The series of jobs and accounts on a node: who they are, what they hold, use and cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone

from clusterwatt.attribution.idle import ACTIVE, FREE, IDLE
from clusterwatt.attribution.roster import Roster
from clusterwatt.config.model import Ledger
from clusterwatt.fleet.history.gpus import Board, by_lane, gpu_money
from clusterwatt.fleet.history.text import FAMILIES, Block, labels_of
from clusterwatt.fleet.history.voices import Sums
from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import Job, JobExempt, JobInfo
from clusterwatt.simulate.claims import NodeClaims
from clusterwatt.simulate.cluster import JobRun, scheduler_of
from clusterwatt.simulate.market import CURRENCY

LINGER_S = Ledger().linger_seconds
TENSOR_OF_SM = 0.52
NOBODY = ""
MOVING = frozenset(
    {
        "account_cost_month_to_date",
        "account_cost_total",
        "gpu_allocated",
        "job_activity_gpu_seconds_total",
        "job_end_timestamp_seconds",
        "job_energy_joules_total",
        "job_exempt",
        "job_gpu_seconds_total",
        "job_idle_cost_total",
        "job_idle_gpu_seconds_total",
        "job_info",
        "job_start_timestamp_seconds",
        "job_tensor_gpu_seconds_total",
        "scheduler_gpus_allocated",
    }
)


class JobSeries:
    """Of node `number`, whose name is `name`."""

    def __init__(self, name: str, number: int, boards: Sequence[Board], claims: NodeClaims) -> None:
        self._name = name
        self._number = number
        self._boards = boards
        self._lanes = by_lane(boards)
        self._claims = claims
        self._names: dict[JobRun, tuple[Job, list[Reading]]] = {}
        self._months: dict[str, tuple[str, float]] = {}

    def write(self, block: Block) -> None:
        """All of a block of time, once the voices of the boards have sung it."""
        self._jobs(block)
        self._accounts(block)

    def _jobs(self, block: Block) -> None:
        times = block.times
        for boards in self._lanes.values():
            for job in dict.fromkeys(job for job, _ in boards[0].voice.by_job):
                held = [job.start_s <= time_s < job.end_s for time_s in times]
                shown = [job.start_s <= time_s < job.end_s + LINGER_S for time_s in times]
                if any(shown):
                    self._job(block, job, shown)
                    self._job_sums(block, job, shown, boards)
                if any(held):
                    for board in boards:
                        self._allocated(block, job, held, board)
        for key in [job for job in self._names if job.end_s + LINGER_S < times[0]]:
            del self._names[key]
        held_gpus = [
            float(sum(len(on) for lane, on in self._lanes.items() if lane.job(time_s) is not None))
            for time_s in times
        ]
        scheduler = {"scheduler": scheduler_of(self._number)}
        block.add("scheduler_gpus_allocated", self._name, scheduler, block.lines(held_gpus))

    def _named(self, job: JobRun) -> tuple[Job, list[Reading]]:
        """What the scheduler says of a job, and what the agent makes of it."""
        found = self._names.get(job)
        if found is None:
            said = self._claims.readings((job.start_s + job.end_s) / 2)
            named = next(r for r in said if isinstance(r, Job) and r.job_id == job.job_id)
            roster = Roster(LINGER_S)
            roster.take({job.job_id: named}, wall_s=job.start_s, now_s=0.0)
            found = self._names[job] = (named, list(roster.readings()))
        return found

    def _job(self, block: Block, job: JobRun, shown: Sequence[bool]) -> None:
        present = block.lines([1.0 if there else None for there in shown])
        for reading in self._named(job)[1]:
            for family, kind in (("job_info", JobInfo), ("job_exempt", JobExempt)):
                if isinstance(reading, kind):
                    block.add(family, self._name, labels_of(FAMILIES[family], reading), present)
        one = {"job_id": job.job_id}
        start = block.lines([job.start_s if there else None for there in shown])
        block.add("job_start_timestamp_seconds", self._name, one, start)
        end = block.lines(
            [
                job.end_s if there and time_s >= job.end_s else None
                for there, time_s in zip(shown, block.times, strict=True)
            ]
        )
        block.add("job_end_timestamp_seconds", self._name, one, end)

    def _job_sums(self, block: Block, job: JobRun, shown: Sequence[bool], boards: Sequence[Board]) -> None:
        one, currency = {"job_id": job.job_id}, {"currency": CURRENCY}
        all_of = [
            (board, state, column)
            for board in boards
            for state in (ACTIVE, IDLE)
            if (column := board.voice.by_job.get((job, state))) is not None
        ]

        def add(family: str, of: Callable[[Board, Sums], float], more: dict[str, str], *states: str) -> None:
            parts = [(board, column) for board, state, column in all_of if state in states]
            values = [
                sum(of(board, column[index]) for board, column in parts) + 0.0 if there else None
                for index, there in enumerate(shown)
            ]
            block.add(family, self._name, one | more, block.lines(values))

        both = (ACTIVE, IDLE)
        add("job_gpu_seconds_total", lambda _, sums: sums.seconds, {}, *both)
        add("job_idle_gpu_seconds_total", lambda _, sums: sums.seconds, {}, IDLE)
        add("job_activity_gpu_seconds_total", lambda _, sums: sums.activity, {}, *both)
        add("job_tensor_gpu_seconds_total", lambda _, sums: TENSOR_OF_SM * sums.activity, {}, *both)
        of_gpus = {"component": "gpu", "method": "counter"}
        add("job_energy_joules_total", Board.energy, of_gpus, *both)
        add("job_idle_cost_total", Board.money, currency, IDLE)

    def _allocated(self, block: Block, job: JobRun, held: Sequence[bool], board: Board) -> None:
        labels = board.labels | {
            "job_id": job.job_id,
            "user": self._named(job)[0].user,
            "account": job.kind.account,
            "kind": job.kind.kind,
            "source": job.kind.scheduler,
        }
        lines = block.lines([1.0 if there else None for there in held])
        block.add("gpu_allocated", self._name, labels, lines)

    def _accounts(self, block: Block) -> None:
        energy: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * len(block.times))
        gpus: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * len(block.times))
        for board in self._boards:
            for state, column in board.voice.by_state.items():
                if board.lane is None and state != FREE:
                    continue
                account = NOBODY if state == FREE or board.lane is None else board.lane.kind.account
                for index, sums in enumerate(column):
                    energy[account][index] += board.energy_money(sums)
                    gpus[account][index] += gpu_money(sums)
        for account in energy:
            labels = {"account": account, "currency": CURRENCY}
            for kind, money in (("energy", energy[account]), ("gpu", gpus[account])):
                block.add("account_cost_total", self._name, labels | {"kind": kind}, block.lines(money))
            both = [sum(pair) for pair in zip(energy[account], gpus[account], strict=True)]
            month = block.lines(list(self._of_month(account, block.times, both)))
            block.add("account_cost_month_to_date", self._name, labels, month)

    def _of_month(self, account: str, times: Iterable[float], money: Iterable[float]) -> Iterator[float]:
        """Money since the month (UTC) began, or the history where that is later."""
        for time_s, spent in zip(times, money, strict=True):
            month = datetime.fromtimestamp(time_s, timezone.utc).strftime("%Y-%m")
            known, before = self._months.setdefault(account, (month, 0.0))
            if known != month:
                before = spent
                self._months[account] = (month, before)
            yield spent - before
