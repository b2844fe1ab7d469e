"""A report: lines that add up, for jobs or for what they are grouped by, the rest, and the sum of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum

import msgspec

from clusterwatt.attribution.entries import plus
from clusterwatt.ledger.report import Cost, UsageRow
from clusterwatt.ledger.totals import Totals

REST, TOTAL = "unattributed", "total"  # labels of the lines that are no job and no group


class Line(msgspec.Struct, frozen=True):
    """What one job or group used.

    `joules`: all its energy, `joules_by` the same by component and by method; what is not known is not in it.
    `active_seconds`: GPU seconds in which GPUs were held and used, or held while nobody could tell.
    """

    label: str
    row: UsageRow
    joules: float | None
    joules_by: Mapping[str, float]
    active_seconds: float | None

    @property
    def started_s(self) -> float | None:
        """When the job began, else when it was first seen; None where that is not known."""
        record = self.row.record
        if record is None:
            return None
        return (record.first_seen_s or None) if record.job.started_s is None else record.job.started_s

    @property
    def ended_s(self) -> float | None:
        """When the job ended; None while it runs, or where that is not known."""
        return None if self.row.record is None else self.row.record.ended_s

    @property
    def activity_ratio(self) -> float | None:
        """Mean activity over the time for which it is known."""
        return ratio(self.row.totals.activity_seconds, self.row.totals.observed_seconds)

    @property
    def tensor_ratio(self) -> float | None:
        """Mean activity of tensor cores over the time for which it is known."""
        return ratio(self.row.totals.tensor_seconds, self.row.totals.tensor_observed_seconds)

    @property
    def coverage_ratio(self) -> float | None:
        """Share of the time in which GPUs were held that the agent measured; None where it is not known.

        GPU seconds are those that were measured: seconds of gaps are beside them, not in them.
        """
        totals = self.row.totals
        if totals.gpu_seconds is None or totals.unobserved_seconds is None:
            return None
        return ratio(totals.gpu_seconds, totals.gpu_seconds + totals.unobserved_seconds)

    def cost(self, currency: str) -> float | None:
        """All money in one currency."""
        cost = self.row.costs.get(currency)
        return None if cost is None else plus(cost.energy, cost.gpu)


def line_of(row: UsageRow) -> Line:
    """The line of a job or a group."""
    held_s = row.totals.gpu_seconds
    active_s = None if held_s is None else max(0.0, held_s - (row.totals.idle_gpu_seconds or 0.0))
    return _line(row.key, row, active_s)


def _line(label: str, row: UsageRow, active_s: float | None) -> Line:
    total, joules_by = 0.0, dict[str, float]()
    for component, method, joules in row.totals.energy():
        total += joules
        joules_by[component] = joules_by.get(component, 0.0) + joules
        joules_by[method] = joules_by.get(method, 0.0) + joules
    return Line(label, row, total if joules_by else None, joules_by, active_s)


class Report(msgspec.Struct, frozen=True):
    """What a period or a list of jobs comes to.

    `others`: lines that are not shown, as one; None: all are. `rest`: what no job is charged with; None: that
    is not told.
    """

    by: str
    source: str
    from_s: float | None
    to_s: float | None
    lines: Sequence[Line]
    others: Line | None = None
    rest: Line | None = None

    @property
    def every(self) -> Sequence[Line]:
        """All that adds up to the total."""
        return [*self.lines, *(line for line in (self.others, self.rest) if line is not None)]

    @property
    def total(self) -> Line:
        """The sum of all lines and of the rest."""
        lines = self.every
        active_s = [line.active_seconds for line in lines if line.active_seconds is not None]
        row = summed("", [line.row for line in lines])
        return _line(TOTAL, row, fsum(active_s) if active_s else None)

    @property
    def currencies(self) -> tuple[str, ...]:
        """Every currency in it."""
        return tuple(sorted({currency for line in self.every for currency in line.row.costs}))


def report(
    by: str,
    source: str,
    period: tuple[float, float] | None,
    rows: Iterable[UsageRow],
    rest: UsageRow | None = None,
    others: UsageRow | None = None,
) -> Report:
    """A report of rows of the ledger, or of rows that were made alike.

    `others`: rows that are left out, as one; its key is their number.
    """
    from_s, to_s = period or (None, None)
    lines = [line_of(row) for row in rows]
    # Nobody's time is free. A ledger that could not be written for long puts time of jobs to it as well, of
    # which only the idle part can be told apart.
    unheld = None if rest is None else _line(REST, rest, None if rest.totals.gpu_seconds is None else 0.0)
    unshown = None if others is None else line_of(msgspec.structs.replace(others, key=f"{others.key} more"))
    return Report(by, source, from_s, to_s, lines, unshown, unheld)


def summed(key: str, rows: Sequence[UsageRow]) -> UsageRow:
    """One row of many; its models of GPUs are not told, since jobs share GPUs."""
    sums: dict[str, float] = {}
    for row in rows:
        for name, amount in zip(Totals.__struct_fields__, msgspec.structs.astuple(row.totals), strict=True):
            if amount is not None:
                sums[name] = sums.get(name, 0.0) + amount
    costs: dict[str, Cost] = {}
    for row in rows:
        for currency, cost in row.costs.items():
            costs[currency] = added(costs.get(currency), cost)
    return UsageRow(key=key, jobs=sum(row.jobs for row in rows), totals=Totals(**sums), costs=costs)


def grouped(rows: Iterable[UsageRow], key_of: Mapping[str, str]) -> list[UsageRow]:
    """Rows of jobs as rows of groups, by the group of each job; most GPU seconds first."""
    groups: dict[str, list[UsageRow]] = {}
    for row in rows:
        groups.setdefault(key_of.get(row.key, ""), []).append(row)
    return in_order(summed(key, members) for key, members in groups.items())


def in_order(rows: Iterable[UsageRow]) -> list[UsageRow]:
    """Most GPU seconds first."""
    return sorted(rows, key=lambda row: (-(row.totals.gpu_seconds or 0.0), row.key))


def added(one: Cost | None, other: Cost) -> Cost:
    """The sum of two amounts of money in one currency."""
    if one is None:
        return other
    return Cost(plus(one.energy, other.energy), plus(one.gpu, other.gpu), plus(one.idle, other.idle))


def ratio(part: float | None, whole: float | None) -> float | None:
    """A share; None where it is not known or there is nothing."""
    return None if part is None or not whole else part / whole
