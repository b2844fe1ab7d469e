"""Training runs in a tick: whose they are, how fast they go, how well they use their GPUs.

The collector knows the owner that a process shows (`pod/<uid>`); here it becomes the job. Where two members
of one job say something of the same run, one is heard, until it is silent and the other is not.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from clusterwatt.attribution.efficiency import REMEDIES, HeldGpus, Models, peak_of, utilisation
from clusterwatt.attribution.since_checkpoint import SinceCheckpoint, Used
from clusterwatt.attribution.token_rates import TokenRate, of_all_gpus
from clusterwatt.attribution.words import Parts
from clusterwatt.catalog import FULL, STANDARD, Table
from clusterwatt.clock import Clock
from clusterwatt.config.model import Training as Settings
from clusterwatt.log import ChangeLog
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuInfo
from clusterwatt.readings.gpu_measured import GpuActive
from clusterwatt.readings.training import (
    TrainingEfficiency,
    TrainingHardwareFlops,
    TrainingMfuMissing,
    TrainingModel,
    TrainingNonfinite,
    TrainingPhase,
    TrainingPhaseStart,
    TrainingProgress,
    TrainingQuality,
    TrainingRun,
    TrainingScalar,
    TrainingSinceCheckpoint,
    TrainingSinceCheckpointCost,
)
from clusterwatt.readings.work import GpuAllocated, JobCost, JobEnergy, JobNodes

log = logging.getLogger(__name__)

OF_RUNS = (
    TrainingRun,
    TrainingProgress,
    TrainingQuality,
    TrainingScalar,
    TrainingNonfinite,
    TrainingPhase,
    TrainingPhaseStart,
    TrainingModel,
)
ACTIVITY_WINDOW_S = 60.0
RATE_STANDS_S = 600.0  # a run that has hung for so long does not use its GPUs as well as it said last
SILENT_S = 120.0  # behind another member of the job
USUAL_PRECISION = "bf16"  # of the estimate, where none is stated

BY_RUN = ("run", "job_id")
EFFICIENCY = Table(TrainingEfficiency, labels=BY_RUN)
MFU_MISSING = Table(TrainingMfuMissing, labels=(*BY_RUN, "missing"))
HARDWARE_FLOPS = Table(TrainingHardwareFlops, labels=BY_RUN)
SINCE_CHECKPOINT = Table(TrainingSinceCheckpoint, labels=BY_RUN)
SINCE_CHECKPOINT_COST = Table(TrainingSinceCheckpointCost, labels=(*BY_RUN, "currency"))
METRICS = (
    EFFICIENCY.gauge(
        "training_flops_per_token",
        "Floating-point operations that training the model needs for a token, as configured or reported.",
        "flops_per_token",
        STANDARD,
    ),
    EFFICIENCY.gauge(
        "training_mfu_ratio",
        "Model FLOP utilisation: FLOP of the tokens over the dense peak of all GPUs of the run. Over 1: what "
        "was stated is wrong.",
        "mfu_ratio",
        STANDARD,
    ),
    MFU_MISSING.info("training_mfu_missing_info", "What there is no utilisation for want of.", FULL),
    HARDWARE_FLOPS.gauge(
        "training_hardware_flops_estimate",
        "Estimate of what the job's GPUs here compute, in floating-point operations per second: activity of "
        "tensor cores over a minute, times the dense peak.",
        "flops",
        FULL,
    ),
    SINCE_CHECKPOINT.gauge(
        "training_since_checkpoint_energy_joules",
        "Energy of the run's job on this node since the run's last checkpoint.",
        "energy_joules",
        FULL,
    ),
    SINCE_CHECKPOINT_COST.gauge(
        "training_since_checkpoint_cost",
        "Money of the run's job on this node since the run's last checkpoint.",
        "cost",
        FULL,
    ),
)

Key = tuple[str, str]  # run, job
Share = tuple[str, float]  # model of a GPU, and the share of the board that a job holds


class Runs:
    """All runs of the node."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._models = Models(settings.models)
        self._clock = clock
        self._logs: dict[Key, ChangeLog] = {}
        self._heard: Mapping[Key, str] = {}
        self._rates: dict[Key, TokenRate] = {}
        self._activity = TensorActivity()
        self._since_checkpoint = SinceCheckpoint()
        self._told_once = False  # that nobody has stated what the models cost

    def use(self, settings: Settings) -> None:
        """Go on with other settings."""
        self._models = Models(settings.models)

    def take(
        self, parts: Parts, made: Iterable[Reading], job_of: Mapping[str, str], *, wall_s: float, now_s: float
    ) -> Iterator[Reading]:
        """All that is known of runs, in place of their readings in `parts`, and what follows from it.

        `made`: what attribution and the ledger have made of this tick. `job_of`: job by the name of members.
        """
        self._heard = heard(parts.get(TrainingProgress, ()), job_of, self._heard)
        told = {kind: tuple(_of_heard(parts.get(kind, ()), job_of, self._heard)) for kind in OF_RUNS}
        models = {(model.run, model.job_id): model for model in told.get(TrainingModel, ())}
        made = tuple(made)
        gpus = _held_gpus(parts, made)
        nodes = {reading.job_id: reading.nodes for reading in parts.get(JobNodes, ())}
        progress = {}
        for said in told.pop(TrainingProgress, ()):
            key = said.run, said.job_id
            stated = self._models.of(said.run, models.get(key)).gpus
            held = len(gpus.get(said.job_id, {}))
            whole = of_all_gpus(said.tokens_per_second_per_gpu, stated, held, nodes.get(said.job_id))
            progress[key] = self._with_rate(said, whole, wall_s)
        for readings in told.values():
            yield from readings
        yield from progress.values()
        self._forget(progress.keys())
        if not progress:
            return
        self._activity.take(parts.get(GpuActive, ()), now_s)
        for key, now in progress.items():
            stale = wall_s - (now.last_event_timestamp_seconds or wall_s) > RATE_STANDS_S
            rate = None if stale else now.tokens_per_second
            of_job = gpus.get(now.job_id, {})
            yield from self._efficiency(key, rate, models.get(key), of_job, nodes.get(now.job_id))
        yield from self._since_checkpoint.measure(progress, _used(made))

    def _forget(self, keys: Collection[Key]) -> None:
        """Keep nothing of runs that are no more: whoever reports makes up their names."""
        for kept in (self._rates, self._logs):
            for key in kept.keys() - keys:
                del kept[key]

    def _with_rate(self, progress: TrainingProgress, whole: float | None, wall_s: float) -> TrainingProgress:
        """With the rate that follows from that of one GPU or from the tokens, where none is logged."""
        tokens, logged_s = progress.tokens, progress.last_event_timestamp_seconds
        if progress.tokens_per_second is None and whole is not None:
            return msgspec.structs.replace(progress, tokens_per_second=whole)
        if progress.tokens_per_second is not None or tokens is None or logged_s is None:
            return progress
        rate = self._rates.setdefault((progress.run, progress.job_id), TokenRate())
        return msgspec.structs.replace(progress, tokens_per_second=rate.take(tokens, logged_s, wall_s))

    def _efficiency(
        self,
        key: Key,
        tokens_per_second: float | None,
        reported: TrainingModel | None,
        gpus: Mapping[str, Share],
        nodes: int | None,
    ) -> Iterator[Reading]:
        run, job_id = key
        model = self._models.of(run, reported)
        held = HeldGpus(tuple(gpus.values()), nodes)
        ratio, missing = utilisation(model, tokens_per_second, job_id, held)
        yield TrainingEfficiency(run, job_id, model.flops_per_token, ratio)
        if missing:
            yield TrainingMfuMissing(run, job_id, missing)
        self._tell(key, ratio, missing, asked_for=model.flops_per_token is not None)
        estimate = self._activity.flops(gpus, model.precision or USUAL_PRECISION)
        if estimate is not None:
            yield TrainingHardwareFlops(run, job_id, estimate)

    def _tell(self, key: Key, ratio: float | None, missing: str, *, asked_for: bool) -> None:
        """Say why there is none, or that it cannot be right; once and calmly to who asked for none."""
        name = f"run {key[0]}"
        changes = self._logs.get(key)
        if changes is None:
            changes = self._logs[key] = ChangeLog(log, self._clock)
        if ratio is not None and ratio > 1:
            message = "%s: model FLOP utilisation is %.2f: parameters, precision or GPUs are stated wrongly"
            changes.bad("mfu", "over 1", message % (name, ratio))
        elif not missing:
            changes.good("mfu", f"{name}: has a model FLOP utilisation")
        elif asked_for:
            reason = f"{name}: no model FLOP utilisation: {REMEDIES[missing]}"
            changes.bad("mfu", missing, reason)
        elif not self._told_once:
            self._told_once = True
            log.info("runs have no model FLOP utilisation where %s", REMEDIES[missing])


class TensorActivity:
    """Mean activity of the tensor cores of each GPU over the last minute."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, float]]] = {}  # by UUID: time, seconds of full use

    def take(self, readings: Iterable[GpuActive], now_s: float) -> None:
        """Take the counters of a tick."""
        seen, self._seen = self._seen, {}
        for reading in readings:
            if reading.tensor_active_seconds is None:
                continue
            points = self._seen[reading.uuid] = seen.get(reading.uuid, deque())
            points.append((now_s, reading.tensor_active_seconds))
            while points[0][0] < now_s - ACTIVITY_WINDOW_S and len(points) > 2:
                points.popleft()

    def flops(self, gpus: Mapping[str, Share], precision: str) -> float | None:
        """FLOP per second of these GPUs, by UUID; None without any, and where one is not known."""
        total = 0.0
        for uuid, share in gpus.items():
            points = self._seen.get(uuid)
            peak = peak_of([share], precision)
            if points is None or len(points) < 2 or peak is None:
                return None
            (first_s, first), (last_s, last) = points[0], points[-1]
            if last_s <= first_s:
                return None
            total += max(0.0, last - first) / (last_s - first_s) * peak
        return total if gpus else None


def heard(
    runs: Iterable[TrainingProgress], job_of: Mapping[str, str], before: Mapping[Key, str]
) -> dict[Key, str]:
    """By run and job, the owner who is heard: the one who was, unless another has logged long after it."""
    last_s: defaultdict[Key, dict[str, float]] = defaultdict(dict)
    for run in runs:
        key = run.run, job_of.get(run.job_id, run.job_id)
        last_s[key][run.job_id] = run.last_event_timestamp_seconds or 0.0
    chosen = {}
    for key, owners in last_s.items():
        newest = max(owners, key=lambda owner: (owners[owner], owner))
        known = before.get(key, newest)
        chosen[key] = known if owners[newest] - owners.get(known, -math.inf) <= SILENT_S else newest
    return chosen


def _of_heard(readings: Iterable[Any], job_of: Mapping[str, str], chosen: Mapping[Key, str]) -> Iterator[Any]:
    """Readings of the owners who are heard, with their jobs."""
    for reading in readings:
        owner = reading.job_id
        job_id = job_of.get(owner, owner)
        if chosen.get((reading.run, job_id), owner) == owner:
            yield reading if job_id == owner else msgspec.structs.replace(reading, job_id=job_id)


def _held_gpus(parts: Parts, made: Iterable[Reading]) -> Mapping[str, Mapping[str, Share]]:
    """What each job holds, by UUID."""
    names = {info.uuid: info.name for info in parts.get(GpuInfo, ())}
    by_job: defaultdict[str, dict[str, Share]] = defaultdict(dict)
    for allocated in made:
        if isinstance(allocated, GpuAllocated):
            by_job[allocated.job_id][allocated.uuid] = names.get(allocated.uuid, ""), allocated.share
    return by_job


def _used(made: Iterable[Reading]) -> dict[str, Used]:
    joules: defaultdict[str, float] = defaultdict(float)
    cost: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for total in made:
        if isinstance(total, JobEnergy):
            joules[total.job_id] += total.energy_joules
        elif isinstance(total, JobCost):
            cost[total.job_id][total.currency] += total.cost
    return {job_id: Used(used, cost[job_id]) for job_id, used in joules.items()}
