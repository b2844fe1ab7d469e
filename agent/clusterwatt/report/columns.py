"""What a report says of each line: the columns, their units, and who wants to see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from clusterwatt.ledger.totals import COMPONENTS, METHODS
from clusterwatt.meters.carbon import JOULES_PER_KWH
from clusterwatt.meters.cost import SECONDS_PER_HOUR
from clusterwatt.readings.work import Job
from clusterwatt.report.lines import Line, Report

Cell = str | float | None
Kind = Literal["text", "time", "count", "hours", "percent", "kwh", "kg", "money"]
GRAMS_PER_KG = 1_000.0


class Column(msgspec.Struct, frozen=True):
    """`name` for machines, with its unit; `head` for people, empty where only machines want it."""

    name: str
    head: str
    kind: Kind
    of: Callable[[Line], Cell]


def columns(report: Report) -> Sequence[Column]:
    """The columns of a report, in order."""
    found = [Column(report.by, report.by, "text", lambda line: line.label)]
    if report.by == "job":
        # In a list of jobs people want to see which are over; in a period they know when it was.
        found += JOB if report.from_s is not None else (SHOWN_TIMES.get(each.name, each) for each in JOB)
    else:
        found.append(Column("jobs", "jobs", "count", lambda line: float(line.row.jobs)))
    found += USE
    for currency in report.currencies:
        found += _money(currency)
    return [*found, *TRUST]


def gpus(line: Line) -> str:
    """Models and how many of each, as `8 x NVIDIA H100`."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(line.row.gpus.items()))


def methods(line: Line) -> str:
    """How energy was found, by share, as `counter 93 %, estimated 7 %`."""
    total = line.joules
    if not total:
        return ""
    shares = ((method, line.joules_by.get(method, 0.0) / total) for method in METHODS)
    return ", ".join(f"{method} {share * 100:.0f} %" for method, share in shares if share)


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / SECONDS_PER_HOUR


def _kwh(joules: float | None) -> float | None:
    return None if joules is None else joules / JOULES_PER_KWH


def _kg(grams: float | None) -> float | None:
    return None if grams is None else grams / GRAMS_PER_KG


def _of_job(name: str) -> Callable[[Line], Cell]:
    def of(line: Line) -> Cell:
        job = _job(line)
        return "" if job is None else str(getattr(job, name))

    return of


def _job(line: Line) -> Job | None:
    return None if line.row.record is None else line.row.record.job


def _part(name: str) -> Callable[[Line], Cell]:
    return lambda line: _kwh(line.joules_by.get(name))


def _money(currency: str) -> list[Column]:
    def part(name: Literal["energy", "gpu", "idle"]) -> Callable[[Line], Cell]:
        def of(line: Line) -> Cell:
            cost = line.row.costs.get(currency)
            amount: float | None = None if cost is None else getattr(cost, name)
            return amount

        return of

    return [
        Column(f"cost_{currency}", currency, "money", lambda line: line.cost(currency)),
        Column(f"energy_cost_{currency}", "", "money", part("energy")),
        Column(f"gpu_cost_{currency}", "", "money", part("gpu")),
        Column(f"idle_cost_{currency}", f"idle {currency}", "money", part("idle")),
    ]


TIMES = (
    Column("started", "", "time", lambda line: line.started_s),
    Column("ended", "", "time", lambda line: line.ended_s),
)
SHOWN_TIMES = {column.name: msgspec.structs.replace(column, head=column.name) for column in TIMES}
JOB = (
    Column("name", "name", "text", _of_job("name")),
    Column("user", "user", "text", _of_job("user")),
    Column("account", "account", "text", _of_job("account")),
    Column("namespace", "", "text", _of_job("k8s_namespace")),
    *TIMES,
    Column("gpus", "GPUs", "text", gpus),
)
USE = (
    Column("gpu_hours", "GPU h", "hours", lambda line: _hours(line.row.totals.gpu_seconds)),
    Column("active_gpu_hours", "active", "hours", lambda line: _hours(line.active_seconds)),
    Column("idle_gpu_hours", "idle", "hours", lambda line: _hours(line.row.totals.idle_gpu_seconds)),
    Column("activity_ratio", "use %", "percent", lambda line: line.activity_ratio),
    Column("tensor_ratio", "tensor %", "percent", lambda line: line.tensor_ratio),
    Column("energy_kwh", "kWh", "kwh", lambda line: _kwh(line.joules)),
    *(Column(f"energy_{name}_kwh", "", "kwh", _part(name)) for name in (*COMPONENTS, *METHODS)),
    Column("idle_energy_kwh", "", "kwh", lambda line: _kwh(line.row.totals.idle_joules)),
    Column("carbon_kg", "kg CO2e", "kg", lambda line: _kg(line.row.totals.carbon_grams)),
)
TRUST = (
    Column("coverage_ratio", "seen %", "percent", lambda line: line.coverage_ratio),
    Column("energy_methods", "energy by", "text", methods),
)
