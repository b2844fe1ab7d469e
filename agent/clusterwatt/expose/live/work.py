"""What the live page shows of work: who holds which GPU, what jobs have used and cost, how training goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from clusterwatt.expose.history import Curves, gpu_power_watts
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.readings.training import (
    TrainingEfficiency,
    TrainingMfuMissing,
    TrainingNonfinite,
    TrainingPhase,
    TrainingProgress,
    TrainingQuality,
    TrainingRun,
)
from clusterwatt.readings.work import (
    GpuAllocated,
    JobCarbon,
    JobCost,
    JobEnergy,
    JobGpuTime,
    JobIdleCost,
    JobInfo,
    JobTimes,
)

OfRun = (
    TrainingRun
    | TrainingProgress
    | TrainingQuality
    | TrainingPhase
    | TrainingEfficiency
    | TrainingMfuMissing
    | TrainingNonfinite
)

STATES = ("active", "idle", "free")
MINUTE_POINTS = 30  # of the history
MAX_JOBS = 200  # more than anybody reads; the metrics have them all


class HolderView(msgspec.Struct, frozen=True):
    """A job on a GPU, by the name that people know it by, and its share of the GPU."""

    job_id: str
    name: str
    user: str
    share: float


class IdleView(msgspec.Struct, frozen=True):
    """GPUs that are held and not used, and what all such cost an hour now, in each currency."""

    gpus: int
    cost_per_hour: Mapping[str, float]


class JobView(msgspec.Struct, frozen=True):
    """A job on this node, running or just over. `gpus`: indices of those it holds now.

    Ratios are of the time in which it held GPUs. Money is in `currency`; `idle_cost` is what GPUs cost that
    it held and did not use. `power_watts`: its share of its GPUs' power now.
    """

    job_id: str
    name: str
    user: str
    account: str
    gpus: tuple[str, ...]
    idle_gpus: tuple[str, ...]
    age_seconds: float | None
    ended: bool
    gpu_seconds: float | None
    activity_ratio: float | None
    idle_ratio: float | None
    power_watts: float | None
    energy_joules: float | None
    carbon_grams: float | None
    currency: str
    cost: float | None
    idle_cost: float | None


class RunView(msgspec.Struct, frozen=True):
    """A training run; `nonfinite` names what has been NaN or infinite.

    `mfu_missing`: what there is no model FLOP utilisation for want of; empty where there is one.
    """

    run: str
    job_id: str
    framework: str
    phase: str
    step: float | None
    loss: float | None
    eval_loss: float | None
    tokens_per_second: float | None
    mfu_ratio: float | None
    mfu_missing: str
    silent_seconds: float | None
    nonfinite: tuple[str, ...]


def gpu_states(curves: Curves, uuids: Iterable[str]) -> dict[str, str]:
    """What most of the last two seconds of a GPU were: active, idle, free; only GPUs of which it is known."""
    states: dict[str, str] = {}
    for uuid in uuids:
        newest = {}
        for state in STATES:
            points = curves.of("gpu", uuid).get(f"{state}_ratio", ())
            if points and points[-1] is not None:
                newest[state] = points[-1]
        if any(newest.values()):
            states[uuid] = max(newest, key=lambda state: newest[state])
    return states


def idle(states: Mapping[str, str], curves: Curves) -> IdleView:
    """What is held and not used. Money is the mean of the last minute: it is booked in steps."""
    per_hour = {}
    for currency, points in curves.of("cost_per_second", "idle").items():
        known = [point for point in points[-MINUTE_POINTS:] if point is not None]
        if known:
            per_hour[currency] = 3600 * sum(known) / len(known)
    return IdleView(sum(state == "idle" for state in states.values()), per_hour)


def holders(snapshot: Snapshot) -> dict[str, tuple[HolderView, ...]]:
    """Who holds a GPU or MIG instance, by UUID, the largest share first."""
    names = {info.job_id: info.name for info in snapshot.of(JobInfo)}
    held: dict[str, list[HolderView]] = {}
    for allocated in snapshot.of(GpuAllocated):
        name = names.get(allocated.job_id) or allocated.job_id
        holder = HolderView(allocated.job_id, name, allocated.user, allocated.share)
        held.setdefault(allocated.uuid, []).append(holder)
    return {uuid: tuple(sorted(found, key=lambda holder: -holder.share)) for uuid, found in held.items()}


def jobs(snapshot: Snapshot, states: Mapping[str, str]) -> Iterator[JobView]:
    """Every job of the node; those that cost most first."""
    sums = _Sums(snapshot)
    found = [_job(snapshot, info, sums, states) for info in snapshot.of(JobInfo)]
    found.sort(key=lambda job: (job.ended, -(job.cost or 0.0), -(job.energy_joules or 0.0), job.job_id))
    yield from found[:MAX_JOBS]


class _Sums:
    """Totals of jobs by job id."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.times = {times.job_id: times for times in snapshot.of(JobTimes)}
        self.gpu_times = {time.job_id: time for time in snapshot.of(JobGpuTime)}
        self.carbon = {carbon.job_id: carbon.carbon_grams for carbon in snapshot.of(JobCarbon)}
        self.joules: dict[str, float] = {}
        for energy in snapshot.of(JobEnergy):
            self.joules[energy.job_id] = self.joules.get(energy.job_id, 0.0) + energy.energy_joules
        self.costs: dict[str, dict[str, float]] = {}
        for cost in snapshot.of(JobCost):
            by_currency = self.costs.setdefault(cost.job_id, {})
            by_currency[cost.currency] = by_currency.get(cost.currency, 0.0) + cost.cost
        self.idle = {(idle.job_id, idle.currency): idle.idle_cost for idle in snapshot.of(JobIdleCost)}
        self.power = gpu_power_watts(snapshot)
        self.held: dict[str, list[GpuAllocated]] = {}
        for allocated in snapshot.of(GpuAllocated):
            self.held.setdefault(allocated.job_id, []).append(allocated)


def _job(snapshot: Snapshot, info: JobInfo, sums: _Sums, states: Mapping[str, str]) -> JobView:
    job_id = info.job_id
    times, gpu_time, held = sums.times.get(job_id), sums.gpu_times.get(job_id), sums.held.get(job_id, [])
    costs = sums.costs.get(job_id, {})
    currency = next(iter(costs), "")
    powers = [
        sums.power[allocated.uuid] * allocated.share for allocated in held if allocated.uuid in sums.power
    ]
    start_s = times.start_timestamp_seconds if times else None
    ended = bool(times and times.end_timestamp_seconds is not None)
    until_s = times.end_timestamp_seconds if times and ended else snapshot.wall_s
    gpu_seconds = gpu_time.gpu_seconds if gpu_time else None
    return JobView(
        job_id=job_id,
        name=info.name,
        user=info.user,
        account=info.account,
        gpus=tuple(allocated.gpu for allocated in held),
        idle_gpus=tuple(allocated.gpu for allocated in held if states.get(allocated.uuid) == "idle"),
        age_seconds=max(0.0, (until_s or 0.0) - start_s) if start_s is not None else None,
        ended=ended,
        gpu_seconds=gpu_seconds,
        activity_ratio=_ratio(gpu_time.activity_gpu_seconds, gpu_seconds) if gpu_time else None,
        idle_ratio=_ratio(gpu_time.idle_gpu_seconds, gpu_seconds) if gpu_time else None,
        power_watts=sum(powers) if powers else None,
        energy_joules=sums.joules.get(job_id),
        carbon_grams=sums.carbon.get(job_id),
        currency=currency,
        cost=costs.get(currency),
        idle_cost=sums.idle.get((job_id, currency)),
    )


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def runs(snapshot: Snapshot) -> Iterator[RunView]:
    """Every training run that this node exports."""
    progress = {_key(reading): reading for reading in snapshot.of(TrainingProgress)}
    losses = {(_key(reading), reading.split): reading.loss for reading in snapshot.of(TrainingQuality)}
    phases = {_key(reading): reading.phase for reading in snapshot.of(TrainingPhase) if reading.current}
    mfu = {_key(reading): reading.mfu_ratio for reading in snapshot.of(TrainingEfficiency)}
    missing = {_key(reading): reading.missing for reading in snapshot.of(TrainingMfuMissing)}
    bad: dict[tuple[str, str], list[str]] = {}
    for reading in snapshot.of(TrainingNonfinite):
        if reading.nonfinite:
            bad.setdefault(_key(reading), []).append(reading.tag)
    for run in snapshot.of(TrainingRun):
        key = _key(run)
        now = progress.get(key, TrainingProgress(run.run, run.job_id))
        last_s = now.last_event_timestamp_seconds
        yield RunView(
            run=run.run,
            job_id=run.job_id,
            framework=run.framework,
            phase=phases.get(key, ""),
            step=now.step,
            loss=losses.get((key, "train")),
            eval_loss=losses.get((key, "eval")),
            tokens_per_second=now.tokens_per_second,
            mfu_ratio=mfu.get(key),
            mfu_missing=missing.get(key, ""),
            silent_seconds=max(0.0, snapshot.wall_s - last_s) if last_s is not None else None,
            nonfinite=tuple(bad.get(key, ())),
        )


def _key(reading: OfRun) -> tuple[str, str]:
    """Two jobs may have runs of one name."""
    return reading.run, reading.job_id
