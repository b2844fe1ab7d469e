"""What the ledger holds of that which the page shows, in memory: the totals of its last commit.

Values, never changed in place: the ledger's thread makes the next state from this one while the page is
written from it. Sums over rows are made with `fsum`, which does not depend on their order: a total that came
back lower by its last bit would be a counter that fell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import fsum

import msgspec

from clusterwatt.attribution.entries import NOBODY, Amounts, Baseline, Entry, JobRecord, plus
from clusterwatt.ledger.totals import Totals, totals_of

JobRows = Mapping[tuple[str, str], Totals]  # by account and currency


class AccountTotals(msgspec.Struct, frozen=True):
    """Running totals of an account in one currency."""

    joules: float | None = None
    carbon_grams: float | None = None
    energy_cost: float | None = None
    gpu_cost: float | None = None

    def plus(self, amounts: Amounts | AccountTotals) -> AccountTotals:
        """The sum of both, as a new row."""
        return AccountTotals(
            plus(self.joules, amounts.joules),
            plus(self.carbon_grams, amounts.carbon_grams),
            plus(self.energy_cost, amounts.energy_cost),
            plus(self.gpu_cost, amounts.gpu_cost),
        )


class NodeRow(msgspec.Struct, frozen=True):
    """The node's own row. `committed_s`: wall time of the last commit, None before the first."""

    commits: int = 0
    committed_s: float | None = None
    boot_id: str = ""
    unobserved_seconds: float = 0.0
    measured_joules: float = 0.0


Accounts = Mapping[tuple[str, str], AccountTotals]  # by account and currency
Months = Mapping[str, Mapping[tuple[str, str], float]]  # by month, then account and currency


class State(msgspec.Struct, frozen=True):
    """Committed totals: of the node, of every account, and of the jobs that are wanted; also of nobody."""

    node: NodeRow = NodeRow()
    jobs: Mapping[str, JobRows] = msgspec.field(default_factory=lambda: {NOBODY: {}})
    accounts: Accounts = msgspec.field(default_factory=dict)
    months: Months = msgspec.field(default_factory=dict)

    def booked_joules(self) -> float:
        """Joules of all jobs that ever were, and of nobody."""
        return fsum(row.joules or 0.0 for row in self.accounts.values())


class Recovered(msgspec.Struct, frozen=True):
    """Where the books stood at the last commit. `committed_s`: its wall time, None for a new ledger.

    `jobs`: those whose end nobody has seen.
    """

    boot_id: str
    committed_s: float | None
    baselines: Mapping[str, Baseline]
    jobs: tuple[JobRecord, ...] = ()


class Payload(msgspec.Struct):
    """What one transaction writes: batches put together."""

    wall_s: float = 0.0
    boot_id: str = ""
    hours: dict[int, dict[Entry, Amounts]] = msgspec.field(default_factory=dict)
    measured_joules: float = 0.0
    unobserved_seconds: float = 0.0
    jobs: dict[str, JobRecord] = msgspec.field(default_factory=dict)
    baselines: dict[str, Baseline] = msgspec.field(default_factory=dict)

    def job_ids(self) -> set[str]:
        """Every job that something is booked on or said of."""
        return {entry.job_id for entries in self.hours.values() for entry in entries} | set(self.jobs)


def account_of(entry: Entry) -> str:
    """Whose account an entry goes to; nobody's part is part of the rest."""
    return entry.account if entry.job_id != NOBODY else ""


class Change(msgspec.Struct, frozen=True):
    """What of a state a payload moves: the keys of the rows to write."""

    state: State
    jobs: Mapping[str, set[tuple[str, str]]]
    accounts: set[tuple[str, str]]
    months: set[tuple[str, str, str]]


def booked(state: State, payload: Payload, month_of: Callable[[int], str]) -> Change:
    """The state after a payload. Every job and month that it names must be in `state` already."""
    jobs: dict[str, dict[tuple[str, str], Totals]] = {}
    accounts: dict[tuple[str, str], AccountTotals] = {}
    months: dict[str, dict[tuple[str, str], float]] = {}
    for hour_s, entries in payload.hours.items():
        month = month_of(hour_s)
        of_month = months.setdefault(month, {})
        for entry, amounts in entries.items():
            key = account_of(entry), entry.currency
            _add(jobs.setdefault(entry.job_id, {}), key, totals_of(entry, amounts))
            accounts[key] = accounts.get(key, AccountTotals()).plus(amounts)
            cost = plus(amounts.energy_cost, amounts.gpu_cost)
            if cost is not None:
                of_month[key] = of_month.get(key, 0.0) + cost
    node = NodeRow(
        commits=state.node.commits + 1,
        committed_s=payload.wall_s,
        boot_id=payload.boot_id,
        unobserved_seconds=state.node.unobserved_seconds + payload.unobserved_seconds,
        measured_joules=state.node.measured_joules + payload.measured_joules,
    )
    new = State(
        node=node,
        jobs={**state.jobs, **{job: _joined(state.jobs[job], rows) for job, rows in jobs.items()}},
        accounts={
            **state.accounts,
            **{key: state.accounts.get(key, AccountTotals()).plus(row) for key, row in accounts.items()},
        },
        months={
            **state.months,
            **{
                month: {**state.months[month], **_sums(state.months[month], costs)}
                for month, costs in months.items()
            },
        },
    )
    return Change(
        state=new,
        # Rows of the rest may have been opened at 0; they are to be there after a restart too.
        jobs={**{job: set(rows) for job, rows in jobs.items()}, NOBODY: set(new.jobs[NOBODY])},
        accounts={*accounts, *(key for key in new.accounts if not key[0])},
        months={(month, *key) for month, costs in months.items() for key in costs},
    )


def everything(state: State) -> Change:
    """All rows of a state, to begin a new file with."""
    return Change(
        state=state,
        jobs={job: set(rows) for job, rows in state.jobs.items()},
        accounts=set(state.accounts),
        months={(month, *key) for month, costs in state.months.items() for key in costs},
    )


def opened(state: State, coming: Mapping[Entry, Totals]) -> State:
    """The state with 0 for each amount that these entries are about to bring, where it had none.

    So a series is on the page before it moves: Prometheus counts a rise only from a value that it has seen.
    What nobody holds, and the account of the rest, are opened along with every job's.
    """
    jobs: dict[str, dict[tuple[str, str], Totals]] = {}
    accounts: dict[tuple[str, str], AccountTotals] = {}
    for entry, totals in coming.items():
        row = totals.opened()
        _add(jobs.setdefault(entry.job_id, {}), (account_of(entry), entry.currency), row)
        _add(jobs.setdefault(NOBODY, {}), ("", entry.currency), row)
        joules = 0.0 if any(True for _ in row.energy()) else None
        account = AccountTotals(joules, row.carbon_grams, row.energy_cost, row.gpu_cost)
        for key in ((account_of(entry), entry.currency), ("", entry.currency)):
            accounts[key] = accounts.get(key, AccountTotals()).plus(account)
    return msgspec.structs.replace(
        state,
        jobs={
            **state.jobs,
            **{job: _joined(state.jobs[job], row) for job, row in jobs.items() if job in state.jobs},
        },
        accounts={
            **state.accounts,
            **{key: state.accounts.get(key, AccountTotals()).plus(row) for key, row in accounts.items()},
        },
    )


def _add(rows: dict[tuple[str, str], Totals], key: tuple[str, str], row: Totals) -> None:
    there = rows.get(key)
    rows[key] = row if there is None else there.plus(row)


def _joined(rows: JobRows, more: JobRows) -> JobRows:
    joined = dict(rows)
    for key, row in more.items():
        _add(joined, key, row)
    return joined


def _sums(
    costs: Mapping[tuple[str, str], float], more: Mapping[tuple[str, str], float]
) -> dict[tuple[str, str], float]:
    return {key: costs.get(key, 0.0) + cost for key, cost in more.items()}
