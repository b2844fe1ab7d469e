"""What the ledger knows about a period or a job, for reports. Reads only; an agent may write meanwhile.

    with reader(path) as books:                          # Raises LedgerError, with the remedy
        for row in books.usage(from_s, to_s, by="job"):  # or "user", "account", "namespace"
            ...
        books.largest(from_s, to_s, 100)                 # the hundred largest jobs, the others as one row
        books.unattributed(from_s, to_s)                 # what no job is charged with
        books.job("slurm/4711")                          # a job's whole life; None: not known
        books.jobs(running=True, limit=50)               # newest first

Books are kept by full hours (UTC): a period takes in every hour that begins in it, and the one it begins in.
A job that lies wholly within the period is read from its running totals, one that the period cuts from its
hours: a month with a hundred thousand jobs is read in less than a second.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from clusterwatt.attribution.entries import JobRecord, plus
from clusterwatt.ledger.reading import Connection, reading
from clusterwatt.ledger.rows import JOB_COLUMNS
from clusterwatt.ledger.totals import COLUMNS, ENERGY, Totals
from clusterwatt.readings.work import Job

HOUR_S = 3_600
RUNS_WITHIN_S = 600.0  # of the last commit: a job that was seen then, and whose end was not, runs

By = Literal["job", "user", "account", "namespace"]
Period = dict[str, float | str]  # parameters of the queries below


class Cost(msgspec.Struct, frozen=True, gc=False):
    """Money in one currency. None: nothing of the kind has a price. `idle` is part of the two others."""

    energy: float | None
    gpu: float | None
    idle: float | None


class UsageRow(msgspec.Struct, frozen=True, gc=False):  # a hundred thousand, and no cycles among them
    """What one job, or all jobs of one user, account or namespace used in a period.

    `key`: what the rows are grouped by. `jobs`: how many there are in it. `totals`: seconds, joules and
    grams, see `Totals`; its columns of money are None, money is in `costs` by currency. `record` and `gpus`
    (how many devices of each model) are known by job only. `gpu_seconds` are those that were measured;
    `unobserved_seconds`, in which devices were held and nobody measured them, come on top. Activity means
    something over `observed_seconds` only, tensor activity over `tensor_observed_seconds`.
    """

    key: str
    jobs: int
    totals: Totals
    costs: Mapping[str, Cost]
    record: JobRecord | None = None
    gpus: Mapping[str, int] = msgspec.field(default_factory=dict)


class LedgerInfo(msgspec.Struct, frozen=True):
    """The ledger about itself; times are Unix times. `kept_from_s`: older hours were removed; None: none."""

    schema_version: int
    bytes_used: int
    began_s: float
    committed_s: float | None
    first_hour_s: int | None
    last_hour_s: int | None
    kept_from_s: int | None
    jobs: int
    unobserved_seconds: float
    measured_joules: float
    booked_joules: float


@contextlib.contextmanager
def reader(path: Path) -> Iterator[Reader]:
    """Open a ledger to read; all answers are of one moment. Raises LedgerError, also within the block."""
    with reading(path) as connection:
        yield Reader(connection)


class Reader:
    """Answers about a period or a job."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def usage(self, from_s: float, to_s: float, by: By = "job") -> list[UsageRow]:
        """What jobs used from `from_s` to `to_s` (Unix time); most GPU seconds first, then by key."""
        period = _period(from_s, to_s)
        if by == "job":
            return _in_order(self._jobs_of(period))
        found = self._connection.execute(
            f"{PART} SELECT {GROUPS[by]}, part.currency, COUNT(DISTINCT part.job), {SUMS} "
            "FROM part JOIN job ON job.number = part.job GROUP BY 1, 2",
            period,
        )
        return _in_order(_grouped(found, lambda: self._counts(by, period)))

    def largest(self, from_s: float, to_s: float, limit: int) -> tuple[list[UsageRow], UsageRow | None]:
        """The first `limit` rows of `usage` by job, and all others as one; None: there are no others.

        The key of the others is their number.
        Of a hundred thousand jobs it takes half the time: no rows are made of those that nobody looks at.
        """
        period = _period(from_s, to_s)
        numbers = [number for number, *_ in self._connection.execute(IN_ORDER, period)]
        period["numbers"] = json.dumps(numbers[:limit])
        rows = _in_order(self._jobs_of(period, f"AND {AMONG}"))
        if len(numbers) <= limit:
            return rows, None
        ask = f"SELECT '', part.currency, 0, {SUMS} FROM ({{}}) part GROUP BY 2"
        whole, cut = (
            self._connection.execute(ask.format(f"{select} AND NOT {AMONG} {group}"), period)
            for select, group in ((WHOLE_TOTALS, ""), (FROM_HOURS, BY_JOB))
        )
        (others,) = _grouped(itertools.chain(whole, cut), dict)
        left_out = len(numbers) - limit
        return rows, msgspec.structs.replace(others, key=str(left_out), jobs=left_out)

    def unattributed(self, from_s: float, to_s: float) -> UsageRow:
        """What no job is charged with in the period; its key is empty."""
        period = _period(from_s, to_s, nobody=1)
        found = self._connection.execute(
            f"{PART} SELECT '', part.currency, 0, {PART_COLUMNS} FROM part", period
        )
        rows = _grouped(found, dict)
        return rows[0] if rows else UsageRow(key="", jobs=0, totals=Totals(), costs={})

    def job(self, job_id: str) -> UsageRow | None:
        """What a job used in its whole life here; None when the ledger does not know it."""
        rows = self._lives("job.job_id = ?", (job_id,))
        return rows[0] if rows else None

    def jobs(self, *, running: bool = False, limit: int = 100) -> list[UsageRow]:
        """The jobs that were seen last, with their whole lives, newest first; `running`: only such."""
        picked = (
            "job.number IN (SELECT number FROM job WHERE number <> 0 {} "
            "ORDER BY last_seen_s DESC, number DESC LIMIT ?)"
        )
        runs = ""
        values: tuple[object, ...] = (limit,)
        if running:
            runs = "AND ended_s IS NULL AND last_seen_s >= (SELECT committed_s FROM node) - ?"
            values = (RUNS_WITHIN_S, limit)
        rows = self._lives(picked.format(runs), values)
        rows.sort(key=lambda row: (row.record.last_seen_s if row.record else 0.0, row.key), reverse=True)
        return rows

    def info(self) -> LedgerInfo:
        """The ledger about itself."""
        ask = self._connection.execute
        node = ask(
            "SELECT began_s, committed_s, kept_from_s, unobserved_seconds, measured_joules FROM node"
        ).fetchone()
        first, last = ask("SELECT MIN(hour_s), MAX(hour_s) FROM usage").fetchone()
        pages, free, size = (ask(f"PRAGMA {name}").fetchone()[0] for name in SIZES)
        return LedgerInfo(
            schema_version=ask("PRAGMA user_version").fetchone()[0],
            bytes_used=(pages - free) * size,
            began_s=node[0],
            committed_s=node[1],
            first_hour_s=first,
            last_hour_s=last,
            kept_from_s=node[2],
            jobs=ask("SELECT COUNT(*) FROM job WHERE number <> 0").fetchone()[0],
            unobserved_seconds=node[3],
            measured_joules=node[4],
            booked_joules=ask("SELECT TOTAL(joules) FROM account").fetchone()[0],
        )

    def counters(self) -> Mapping[str, float]:
        """What the driver's energy counters stood at when the books were last written, by UUID."""
        return dict(
            self._connection.execute(
                "SELECT device, counter_joules FROM baseline WHERE counter_joules IS NOT NULL"
            ).fetchall()
        )

    def _jobs_of(self, period: Period, which: str = "") -> list[UsageRow]:
        whole = self._connection.execute(
            f"SELECT {IDENTITY}, part.currency, {PART_COLUMNS} "
            f"FROM job CROSS JOIN total part ON part.job = job.number WHERE {WHOLE} {which}",
            period,
        )
        cut = self._connection.execute(
            f"WITH part AS ({FROM_HOURS} {which} {BY_JOB}) SELECT {IDENTITY}, part.currency, {PART_COLUMNS} "
            "FROM part JOIN job ON job.number = part.job",
            period,
        )
        return _by_job(itertools.chain(whole, cut))

    def _counts(self, by: By, period: Period) -> Mapping[str, int]:
        """How many jobs each group has, whatever their currencies."""
        return dict(
            self._connection.execute(
                f"{PART} SELECT {GROUPS[by]}, COUNT(DISTINCT part.job) "
                "FROM part JOIN job ON job.number = part.job GROUP BY 1",
                period,
            ).fetchall()
        )

    def _lives(self, which: str, values: tuple[object, ...]) -> list[UsageRow]:
        return _by_job(
            self._connection.execute(
                f"SELECT {IDENTITY}, part.currency, {PART_COLUMNS} "
                f"FROM job LEFT JOIN total part ON part.job = job.number WHERE {which}",
                values,
            )
        )


MONEY = len(Cost.__struct_fields__)  # of `Totals`, these columns come last
SIZES = ("page_count", "freelist_count", "page_size")
GROUPS = {"user": "job.user", "account": "part.account", "namespace": "job.k8s_namespace"}
TIMES = ("first_seen_s", "last_seen_s", "ended_s")
IDENTITY = ", ".join(f"job.{name}" for name in ("number", *JOB_COLUMNS, *TIMES, "gpus"))
PART_COLUMNS = ", ".join(f"part.{name}" for name in COLUMNS)
SUMS = ", ".join(f"SUM(part.{name})" for name in COLUMNS)


def _summed(column: str) -> str:
    """The column of `total`, from the entries of hours."""
    for (component, method), name in ENERGY.items():
        if name == column:
            case = f"entry.component = '{component}' AND entry.method = '{method}'"
            return f"SUM(CASE WHEN {case} THEN usage.joules END)"
    if column == "idle_cost":
        idle = "COALESCE(usage.energy_cost + usage.gpu_cost, usage.energy_cost, usage.gpu_cost)"
        return f"SUM(CASE WHEN entry.state = 'idle' THEN {idle} END)"
    if column.startswith("idle_"):
        return f"SUM(CASE WHEN entry.state = 'idle' THEN usage.{column.removeprefix('idle_')} END)"
    return f"SUM(usage.{column})"


SUMMED = ", ".join(f"{_summed(name)} AS {name}" for name in COLUMNS)
# Jobs that lie wholly within the period, and the rows of those that it cuts. CROSS JOIN keeps the order: from
# the few jobs to their hours.
WHOLE = "job.first_hour_s >= :from_s AND job.last_hour_s < :to_s AND (job.number = 0) = :nobody"
FROM_HOURS = f"""
SELECT job.number AS job, entry.account, entry.currency, {SUMMED}
FROM job CROSS JOIN entry ON entry.job = job.number CROSS JOIN usage ON usage.entry = entry.number
WHERE job.first_hour_s < :to_s AND job.last_hour_s >= :from_s
AND NOT (job.first_hour_s >= :from_s AND job.last_hour_s < :to_s) AND (job.number = 0) = :nobody
AND usage.hour_s >= :from_s AND usage.hour_s < :to_s
"""
BY_JOB = "GROUP BY 1, 2, 3"
WHOLE_TOTALS = f"SELECT total.* FROM job CROSS JOIN total ON total.job = job.number WHERE {WHOLE}"
PART = f"""
WITH part AS (
    {WHOLE_TOTALS}
    UNION ALL {FROM_HOURS} {BY_JOB}
)
"""
# Numbers of jobs as `usage` has them in order; and a choice of these numbers.
IN_ORDER = f"""
SELECT job, job_id, SUM(gpu_seconds) FROM (
    SELECT job.number AS job, job.job_id, total.gpu_seconds
    FROM job CROSS JOIN total ON total.job = job.number WHERE {WHOLE}
    UNION ALL SELECT part.job, job.job_id, part.gpu_seconds
    FROM ({FROM_HOURS} {BY_JOB}) part JOIN job ON job.number = part.job
) GROUP BY 1 ORDER BY COALESCE(SUM(gpu_seconds), 0) DESC, job_id
"""
AMONG = "job.number IN (SELECT value FROM json_each(:numbers))"


def _period(from_s: float, to_s: float, nobody: int = 0) -> Period:
    return {"from_s": math.floor(from_s / HOUR_S) * HOUR_S, "to_s": to_s, "nobody": nobody}


def _in_order(rows: list[UsageRow]) -> list[UsageRow]:
    rows.sort(key=lambda row: (-(row.totals.gpu_seconds or 0.0), row.key))
    return rows


def _by_job(found: Iterable[tuple[Any, ...]]) -> list[UsageRow]:
    """Rows by job: of one job there may be several, by account and currency."""
    ends = 1 + len(JOB_COLUMNS)
    models: dict[str, dict[str, int]] = {}  # most jobs hold the same few
    rows: dict[int, UsageRow] = {}
    for line in found:
        number = line[0]
        first_seen_s, last_seen_s, ended_s, gpus, currency = line[ends : ends + 5]
        totals = Totals(*line[ends + 5 : -MONEY])
        costs = _costs(currency or "", line[-MONEY:])
        known = rows.get(number)
        if known is not None:
            rows[number] = _joined(known, totals, costs)
            continue
        if gpus not in models:
            models[gpus] = msgspec.json.decode(gpus)
        job = Job(*(*line[1 : ends - 1], bool(line[ends - 1])))
        record = JobRecord(job, first_seen_s or 0.0, last_seen_s or 0.0, ended_s)
        rows[number] = UsageRow(job.job_id, 1, totals, costs, record, models[gpus])
    return list(rows.values())


def _grouped(found: Iterable[tuple[Any, ...]], counts: Callable[[], Mapping[str, int]]) -> list[UsageRow]:
    """Rows by group: of one group there may be several, by currency, and a job may be in each of them."""
    rows: dict[str, UsageRow] = {}
    mixed = False
    for key, currency, jobs, *columns in found:
        totals = Totals(*columns[:-MONEY])
        costs = _costs(currency, columns[-MONEY:])
        known = rows.get(key)
        mixed = mixed or known is not None
        row = UsageRow(key, jobs, totals, costs)
        rows[key] = row if known is None else _joined(known, totals, costs)
    if mixed:
        counted = counts()
        return [msgspec.structs.replace(row, jobs=counted.get(row.key, 0)) for row in rows.values()]
    return list(rows.values())


def _costs(currency: str, money: Sequence[float | None]) -> dict[str, Cost]:
    """The last columns of a row. They are kept apart: sums over currencies would mean nothing."""
    cost = Cost(*money)
    return {} if cost.energy is None and cost.gpu is None else {currency: cost}


def _joined(known: UsageRow, totals: Totals, costs: Mapping[str, Cost]) -> UsageRow:
    both = dict(known.costs)
    for currency, cost in costs.items():
        there = both.get(currency)
        both[currency] = cost if there is None else _added(there, cost)
    return msgspec.structs.replace(known, totals=known.totals.plus(totals), costs=both)


def _added(one: Cost, other: Cost) -> Cost:
    return Cost(plus(one.energy, other.energy), plus(one.gpu, other.gpu), plus(one.idle, other.idle))
