"""What jobs used on all nodes, from a Prometheus-compatible server that scrapes their agents.

Totals of jobs are counters that stand on the page from 0 on and outlive restarts of the agent, so their
increase is what was used. A long period is asked for in days: no question makes the server read more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from clusterwatt.attribution.entries import JobRecord
from clusterwatt.catalog import PREFIX
from clusterwatt.ledger.report import Cost, UsageRow
from clusterwatt.ledger.totals import ENERGY, Totals
from clusterwatt.readings.work import Job
from clusterwatt.report.lines import added, grouped, in_order
from clusterwatt.report.prometheus import AskError, Prometheus

DAY_S = 86_400.0
MAX_DAYS = 400
IDENTITY = (
    "scheduler", "name", "user", "account", "partition", "queue", "array_job", "array_task",
    "k8s_namespace", "k8s_owner", "k8s_owner_kind",
)  # fmt: skip
SECONDS = {
    "gpu_seconds": "job_gpu_seconds_total",
    "idle_gpu_seconds": "job_idle_gpu_seconds_total",
    "activity_seconds": "job_activity_gpu_seconds_total",
    "tensor_seconds": "job_tensor_gpu_seconds_total",
    "carbon_grams": "job_carbon_grams_total",
}

RUN = "training_last_event_timestamp_seconds"  # every run that is followed has it

By = Literal["job", "user", "account", "namespace", "run"]


class Usage:
    """What was asked for, gathered job by job. `job_id` empty: what no job is charged with."""

    def __init__(self) -> None:
        self.amounts: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.costs: defaultdict[str, dict[str, Cost]] = defaultdict(dict)
        self.jobs: dict[str, Job] = {}
        self.started_s: dict[str, float] = {}
        self.ended_s: dict[str, float] = {}
        self.runs: defaultdict[str, set[str]] = defaultdict(set)
        self.devices: defaultdict[str, set[tuple[str | None, ...]]] = defaultdict(set)

    def row(self, job_id: str) -> UsageRow:
        """What a job used, as a row of the ledger would say it."""
        amounts = dict(self.amounts.get(job_id, {}))
        # Activity is absent while its signal is; where there is some, it is taken to be of the whole time.
        if "activity_seconds" in amounts:
            amounts["observed_seconds"] = amounts.get("gpu_seconds", 0.0)
        if "tensor_seconds" in amounts:
            amounts["tensor_observed_seconds"] = amounts.get("gpu_seconds", 0.0)
        job = self.jobs.get(job_id)
        started_s, ended_s = self.started_s.get(job_id), self.ended_s.get(job_id)
        if job is not None:
            job = msgspec.structs.replace(job, started_s=started_s)
        return UsageRow(
            key=job_id,
            jobs=1 if job_id else 0,
            totals=Totals(**amounts),
            costs=self.costs.get(job_id, {}),
            record=None if job is None else JobRecord(job, started_s or 0.0, ended_s or 0.0, ended_s),
            gpus=Counter(model or "" for model, *_ in self.devices.get(job_id, ())),
        )


def usage(
    server: Prometheus, from_s: float, to_s: float, by: By, job_id: str = ""
) -> tuple[list[UsageRow], UsageRow]:
    """Rows of a period, and what no job is charged with; `job_id`: of this job only. Raises AskError."""
    if not 0 < to_s - from_s <= MAX_DAYS * DAY_S:
        raise AskError(f"a period of more than 0 and at most {MAX_DAYS} days is expected")
    found = Usage()
    only = "{job_id=" + quoted(job_id) + "}" if job_id else ""
    for at_s, length in _windows(from_s, to_s):
        window = Window(server, at_s, length, only)
        _gather(window, found)
        _identify(window, found)
        if by == "run":
            _follow_runs(window, found)
        if not job_id:
            _gather_rest(window, found)
    for job in _running(server, to_s, only):
        found.ended_s.pop(job, None)
    rows = [found.row(job) for job in found.amounts if job]
    rest = found.row("")
    if by == "job":
        return in_order(rows), rest
    return grouped(rows, _groups(found, by)), rest


def _windows(from_s: float, to_s: float) -> Iterator[tuple[float, str]]:
    """The ends of the parts of a period, and how long each is, as PromQL has it."""
    start_s = from_s
    while start_s < to_s:
        end_s = min(start_s + DAY_S, to_s)
        yield end_s, f"{max(1, round((end_s - start_s) * 1000))}ms"
        start_s = end_s


class Window(msgspec.Struct, frozen=True):
    """A part of the period, on one server; `only`: a selector of one job, or nothing."""

    server: Prometheus
    at_s: float
    length: str
    only: str

    def increase(self, family: str, *labels: str) -> list[tuple[Mapping[str, str], float]]:
        """The increase of a counter within the window, summed over all but some labels."""
        only = self.only if family.startswith("job_") else ""
        query = f"sum by ({', '.join(labels)}) (increase({PREFIX}{family}{only}[{self.length}]))"
        return self.server.ask(query, self.at_s)

    def over_time(
        self, how: str, function: str, family: str, *labels: str
    ) -> list[tuple[Mapping[str, str], float]]:
        """Values of a gauge within the window, taken together by some labels."""
        only = "" if family == "gpu_info" else self.only
        selected = f"{PREFIX}{family}{only}[{self.length}]"
        return self.server.ask(f"{how} by ({', '.join(labels)}) ({function}({selected}))", self.at_s)


def _gather(window: Window, found: Usage) -> None:
    for column, family in SECONDS.items():
        for labels, amount in window.increase(family, "job_id"):
            found.amounts[labels.get("job_id", "")][column] += amount
    for labels, joules in window.increase("job_energy_joules_total", "job_id", "component", "method"):
        name = ENERGY.get((labels.get("component", ""), labels.get("method", "")))
        if name is not None:
            found.amounts[labels.get("job_id", "")][name] += joules
    for labels, money in window.increase("job_cost_total", "job_id", "currency", "kind"):
        _pay(found, labels, labels.get("kind", ""), money)
    for labels, money in window.increase("job_idle_cost_total", "job_id", "currency"):
        _pay(found, labels, "idle", money)


def _gather_rest(window: Window, found: Usage) -> None:
    for labels, joules in window.increase("unattributed_energy_joules_total", "component"):
        # How it was measured is not told of the rest.
        name = ENERGY.get((labels.get("component", ""), "counter"))
        if name is not None:
            found.amounts[""][name] += joules
    for _, grams in window.increase("unattributed_carbon_grams_total"):
        found.amounts[""]["carbon_grams"] += grams
    for labels, money in window.increase("unattributed_cost_total", "currency", "kind"):
        _pay(found, labels, labels.get("kind", ""), money)
    for labels, seconds in window.increase("gpu_state_seconds_total", "state"):
        if labels.get("state") == "free":
            found.amounts[""]["gpu_seconds"] += seconds


def _identify(window: Window, found: Usage) -> None:
    for labels, _ in window.over_time("group", "last_over_time", "job_info", "job_id", *IDENTITY):
        job_id = labels.get("job_id", "")
        identity = {name: labels.get(name, "") for name in IDENTITY}
        found.jobs[job_id] = msgspec.structs.replace(Job(job_id, scheduler="", kind=""), **identity)
    for labels, start_s in window.over_time("min", "min_over_time", "job_start_timestamp_seconds", "job_id"):
        job_id = labels.get("job_id", "")
        found.started_s[job_id] = min(start_s, found.started_s.get(job_id, start_s))
    for labels, end_s in window.over_time("max", "max_over_time", "job_end_timestamp_seconds", "job_id"):
        found.ended_s[labels.get("job_id", "")] = end_s
    models = {
        (labels.get("instance"), labels.get("uuid")): labels.get("name", "")
        for labels, _ in window.over_time("group", "last_over_time", "gpu_info", "instance", "uuid", "name")
    }
    held = window.over_time("max", "max_over_time", "gpu_allocated", "instance", "uuid", "job_id")
    for labels, share in held:
        device = labels.get("instance"), labels.get("uuid")
        if share > 0 and device in models:
            found.devices[labels.get("job_id", "")].add((models[device], *device))


def _running(server: Prometheus, at_s: float, only: str) -> Iterator[str]:
    """Jobs that run on any node, whatever part of them is over on another, or in an earlier run of the id."""
    names = (f"{PREFIX}job_info{only}", f"{PREFIX}job_end_timestamp_seconds{only}")
    for labels, _ in server.ask(f"group by (job_id) ({' unless on (instance, job_id) '.join(names)})", at_s):
        yield labels.get("job_id", "")


def _follow_runs(window: Window, found: Usage) -> None:
    for labels, _ in window.over_time("group", "last_over_time", RUN, "job_id", "run"):
        if labels.get("job_id"):
            found.runs[labels["job_id"]].add(labels.get("run", ""))


def _groups(found: Usage, by: By) -> dict[str, str]:
    if by == "run":
        return {job: ", ".join(sorted(runs)) for job, runs in found.runs.items()}
    field = "k8s_namespace" if by == "namespace" else by
    return {job_id: str(getattr(job, field)) for job_id, job in found.jobs.items()}


def _pay(found: Usage, labels: Mapping[str, str], kind: str, money: float) -> None:
    of_job = found.costs[labels.get("job_id", "")]
    currency = labels.get("currency", "")
    parts = {name: money if name == kind else None for name in ("energy", "gpu", "idle")}
    of_job[currency] = added(of_job.get(currency), Cost(**parts))


def quoted(text: str) -> str:
    """A text as a string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def training(
    server: Prometheus, job_id: str, from_s: float, to_s: float
) -> tuple[float | None, float | None]:
    """Tokens of a job's runs in a period, and model FLOP per token; None where it does not tell.

    Each node that follows a run states the tokens of all ranks, so they count once.
    """
    only = "{job_id=" + quoted(job_id) + "}"
    tokens: float | None = None
    for at_s, length in _windows(from_s, to_s):
        counted = f"increase({PREFIX}training_tokens_total{only}[{length}])"
        for _, of_runs in server.ask(f"sum(max by (run) ({counted}))", at_s):
            tokens = (tokens or 0.0) + of_runs
    *_, (at_s, _) = _windows(from_s, to_s)
    whole = Window(server, at_s, f"{round((to_s - from_s) * 1000)}ms", only)
    flops = whole.over_time("max", "max_over_time", "training_flops_per_token", "job_id")
    return tokens, flops[0][1] if flops else None
