"""What of the ledger goes on the page: totals of its last commit, and how the ledger itself fares.

Only these counters outlive the agent: they stand on the page from the first tick on, at 0 or at the committed
total, move after a commit only, and never fall.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import fsum

from clusterwatt.catalog import STANDARD, Table
from clusterwatt.ledger.state import AccountTotals, JobRows, State
from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import (
    AccountCarbon,
    AccountCost,
    AccountEnergy,
    AccountMonth,
    JobCarbon,
    JobCost,
    JobEnergy,
    JobGpuTime,
    JobIdleCost,
    LedgerState,
    UnattributedCarbon,
    UnattributedCost,
    UnattributedEnergy,
    Unobserved,
)

JOB_TIME = Table(JobGpuTime, labels=("job_id",))
JOB_ENERGY = Table(JobEnergy, labels=("job_id", "component", "method"))
JOB_CARBON = Table(JobCarbon, labels=("job_id",))
JOB_COST = Table(JobCost, labels=("job_id", "currency", "kind"))
JOB_IDLE_COST = Table(JobIdleCost, labels=("job_id", "currency"))
REST_ENERGY = Table(UnattributedEnergy, labels=("component",))
REST_CARBON = Table(UnattributedCarbon)
REST_COST = Table(UnattributedCost, labels=("currency", "kind"))
ACCOUNT_ENERGY = Table(AccountEnergy, labels=("account",))
ACCOUNT_CARBON = Table(AccountCarbon, labels=("account",))
ACCOUNT_COST = Table(AccountCost, labels=("account", "currency", "kind"))
ACCOUNT_MONTH = Table(AccountMonth, labels=("account", "currency"))
LEDGER = Table(LedgerState)
UNOBSERVED = Table(Unobserved)

METRICS = (
    JOB_TIME.counter(
        "job_gpu_seconds_total", "Seconds that the job held GPUs, times the share held.", "gpu_seconds"
    ),
    JOB_TIME.counter(
        "job_activity_gpu_seconds_total",
        "Seconds of activity on GPUs that the job held, times the share held.",
        "activity_gpu_seconds",
    ),
    JOB_TIME.counter(
        "job_idle_gpu_seconds_total",
        "Seconds that the job held GPUs and did not use them, times the share held.",
        "idle_gpu_seconds",
    ),
    JOB_TIME.counter(
        "job_tensor_gpu_seconds_total",
        "Seconds of activity of tensor cores on GPUs that the job held, times the share held.",
        "tensor_gpu_seconds",
        level=STANDARD,
    ),
    JOB_ENERGY.counter(
        "job_energy_joules_total",
        "Energy of the job; method estimated: split of a shared or partitioned GPU, or of the host.",
        "energy_joules",
    ),
    JOB_CARBON.counter(
        "job_carbon_grams_total",
        "Operational carbon (CO2 equivalent) of the job, with the site's PUE.",
        "carbon_grams",
        level=STANDARD,
    ),
    JOB_COST.counter(
        "job_cost_total", "Money that the job has cost; the kinds add up.", "cost", level=STANDARD
    ),
    JOB_IDLE_COST.counter(
        "job_idle_cost_total",
        "The part of the job's money that went into GPUs which it held and did not use.",
        "idle_cost",
        level=STANDARD,
    ),
    REST_ENERGY.counter(
        "unattributed_energy_joules_total",
        "Energy that no job is charged with, so that the sums close.",
        "energy_joules",
        level=STANDARD,
    ),
    REST_CARBON.counter(
        "unattributed_carbon_grams_total",
        "Carbon (CO2 equivalent) that no job is charged with.",
        "carbon_grams",
        level=STANDARD,
    ),
    REST_COST.counter(
        "unattributed_cost_total",
        "Money that no job is charged with; the kinds add up.",
        "cost",
        level=STANDARD,
    ),
    ACCOUNT_ENERGY.counter(
        "account_energy_joules_total",
        "Energy of the account's jobs, also of those that are over; the empty account is the rest.",
        "energy_joules",
        level=STANDARD,
    ),
    ACCOUNT_CARBON.counter(
        "account_carbon_grams_total",
        "Carbon (CO2 equivalent) of the account's jobs, also of those that are over.",
        "carbon_grams",
        level=STANDARD,
    ),
    ACCOUNT_COST.counter(
        "account_cost_total",
        "Money of the account's jobs, also of those that are over; the kinds add up.",
        "cost",
        level=STANDARD,
    ),
    ACCOUNT_MONTH.gauge(
        "account_cost_month_to_date",
        "Money of the account on this node in this calendar month.",
        "cost",
        level=STANDARD,
    ),
    ACCOUNT_MONTH.gauge(
        "account_budget_monthly",
        "What the account may spend in a month, the same on every node.",
        "budget",
        level=STANDARD,
    ),
    LEDGER.gauge(
        "ledger_commit_timestamp_seconds", "When the ledger was written last.", "commit_timestamp_seconds"
    ),
    LEDGER.counter(
        "ledger_errors_total", "Attempts to open or write the ledger that failed.", "errors", level=STANDARD
    ),
    LEDGER.gauge(
        "ledger_residual_joules",
        "Jobs and unattributed, less what was measured, at the last commit; stays near 0.",
        "residual_joules",
        level=STANDARD,
    ),
    UNOBSERVED.counter(
        "unobserved_seconds_total",
        "Seconds in which nobody measured: gaps of the agent, reboots; booked, not guessed.",
        "unobserved_seconds",
        level=STANDARD,
    ),
)


def of_job(job_id: str, rows: JobRows) -> Iterator[Reading]:
    """Totals of one job."""
    yield JobGpuTime(
        job_id=job_id,
        gpu_seconds=_sum(row.gpu_seconds for row in rows.values()) or 0.0,
        activity_gpu_seconds=_sum(row.activity_seconds for row in rows.values()),
        idle_gpu_seconds=_sum(row.idle_gpu_seconds for row in rows.values()) or 0.0,
        tensor_gpu_seconds=_sum(row.tensor_seconds for row in rows.values()),
    )
    energy: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows.values():
        for component, method, joules in row.energy():
            energy[component, method].append(joules)
    for (component, method), parts in energy.items():
        yield JobEnergy(job_id=job_id, component=component, method=method, energy_joules=fsum(parts))
    grams = _sum(row.carbon_grams for row in rows.values())
    if grams is not None:
        yield JobCarbon(job_id=job_id, carbon_grams=grams)
    for currency, kind, cost in _money(rows):
        yield JobCost(job_id=job_id, currency=currency, kind=kind, cost=cost)
    for currency in sorted({currency for currency, _, _ in _money(rows)}):
        idle = _sum(row.idle_cost for (_, of), row in rows.items() if of == currency)
        yield JobIdleCost(job_id=job_id, currency=currency, idle_cost=idle or 0.0)


def of_nobody(rows: JobRows) -> Iterator[Reading]:
    """What no job is charged with. There is always a GPU part: every node here is watched for its GPUs."""
    energy: defaultdict[str, list[float]] = defaultdict(list, {"gpu": []})
    for row in rows.values():
        for component, _, joules in row.energy():
            energy[component].append(joules)
    for component, parts in energy.items():
        yield UnattributedEnergy(component=component, energy_joules=fsum(parts))
    grams = _sum(row.carbon_grams for row in rows.values())
    if grams is not None:
        yield UnattributedCarbon(carbon_grams=grams)
    for currency, kind, cost in _money(rows):
        yield UnattributedCost(currency=currency, kind=kind, cost=cost)


def of_accounts(state: State) -> Iterator[Reading]:
    """Totals of every account; the empty one is always there."""
    by_account: defaultdict[str, dict[str, AccountTotals]] = defaultdict(dict, {"": {}})
    for account, currency in sorted(state.accounts):
        by_account[account][currency] = state.accounts[account, currency]
    for account, rows in by_account.items():
        yield AccountEnergy(account=account, energy_joules=_sum(row.joules for row in rows.values()) or 0.0)
        grams = _sum(row.carbon_grams for row in rows.values())
        if grams is not None:
            yield AccountCarbon(account=account, carbon_grams=grams)
        for currency, row in rows.items():
            for kind, cost in (("energy", row.energy_cost), ("gpu", row.gpu_cost)):
                if cost is not None:
                    yield AccountCost(account=account, currency=currency, kind=kind, cost=cost)


def of_months(state: State, month: str, budgets: Mapping[tuple[str, str], float]) -> Iterator[Reading]:
    """Money of this month, and budgets by account and currency, of every account that has one of them."""
    costs = dict.fromkeys(
        (
            key
            for key, row in state.accounts.items()
            if row.energy_cost is not None or row.gpu_cost is not None
        ),
        0.0,
    )
    costs.update(state.months.get(month, {}))
    for account, currency in sorted({*costs, *budgets}):
        yield AccountMonth(
            account=account,
            currency=currency,
            cost=costs.get((account, currency)),
            budget=budgets.get((account, currency)),
        )


def of_ledger(state: State, errors: int) -> Iterator[Reading]:
    """How the ledger fares, and what nobody measured."""
    node = state.node
    yield LedgerState(
        commit_timestamp_seconds=node.committed_s,
        residual_joules=state.booked_joules() - node.measured_joules if node.commits else None,
        errors=float(errors),
    )
    yield Unobserved(unobserved_seconds=node.unobserved_seconds)


def _money(rows: JobRows) -> Iterator[tuple[str, str, float]]:
    """Currency, kind and sum of all money of a job."""
    for currency in sorted({currency for _, currency in rows}):
        of_currency = [row for (_, of), row in rows.items() if of == currency]
        for kind, cost in (
            ("energy", _sum(row.energy_cost for row in of_currency)),
            ("gpu", _sum(row.gpu_cost for row in of_currency)),
        ):
            if cost is not None:
                yield currency, kind, cost


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None while nothing is."""
    known = [value for value in values if value is not None]
    return fsum(known) if known else None
