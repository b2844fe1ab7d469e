"""What the training runs of a simulated cluster log, as the node of rank 0 sees it.

Steps are the integral of the pace of what the job does, so they stand still while data are late, while a
checkpoint is written and while a collective hangs; loss and gradient norm are functions of the step.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import msgspec

from clusterwatt.readings.base import Reading
from clusterwatt.readings.training import (
    TrainingModel,
    TrainingNonfinite,
    TrainingPhase,
    TrainingPhaseStart,
    TrainingProgress,
    TrainingQuality,
    TrainingRun,
    TrainingScalar,
)
from clusterwatt.simulate.cluster import JobRun, Lane
from clusterwatt.simulate.work import Signal

PHASES = ("warmup", "train", "eval", "checkpoint")
FLOPS_OF_PARAMETER = 6.0
PEAK_LEARNING_RATE = 3e-4


class Numbers(msgspec.Struct, frozen=True):
    """From one Unix time to another the loss is not finite, or grows to `factor` times what it would be."""

    from_s: float
    until_s: float
    factor: float | None = None  # None: not finite


class Log:
    """The log of the runs of one lane, one after another."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._pace: Signal = lane.rate("pace")
        self.numbers: tuple[Numbers, ...] = ()

    def readings(self, time_s: float) -> Iterator[Reading]:
        """All that the run of this moment has logged; nothing before its first step."""
        job, kind = self._lane.job(time_s), self._lane.kind
        if job is None or not kind.tokens:
            return
        seen_s = self._seen_s(time_s)
        steps = self._steps(job, seen_s)
        if steps < 1:
            return
        run = f"{kind.name}/{job.number}"
        of = (run, job.job_id)
        step_s = self._step_s(seen_s)
        tokens = kind.tokens * self._lane.gpus
        numbers = self._numbers(seen_s)
        finite = numbers is None or numbers.factor is not None
        factor = 1.0 if numbers is None or numbers.factor is None else numbers.factor
        yield TrainingRun(*of, framework="pytorch")
        yield TrainingProgress(
            *of,
            step=float(steps),
            gradient_norm=(0.8 + 4.0 / math.sqrt(steps + 10) + 0.1 * _noise(run, steps)) * factor**2
            if finite
            else None,
            learning_rate=PEAK_LEARNING_RATE * min(1.0, steps / 300.0),
            step_duration_seconds=step_s,
            tokens_total=steps * tokens,
            tokens_per_second=tokens / step_s,
            samples_per_second=tokens / step_s / 4096.0,
            last_event_timestamp_seconds=self._last_event_s(seen_s),
            last_checkpoint_timestamp_seconds=self._end_of_last(job, seen_s, "checkpoint"),
        )
        loss = (1.7 + 8.0 * (steps + 20) ** -0.35 + 0.02 * _noise(run, steps)) * factor
        yield TrainingQuality(*of, split="train", loss=loss if finite else None, accuracy=None)
        evaluated_s = self._end_of_last(job, seen_s, "eval")
        if evaluated_s is not None:
            then = self._steps(job, evaluated_s)
            loss = 1.75 + 8.0 * (then + 20) ** -0.35
            yield TrainingQuality(*of, split="eval", loss=loss, accuracy=min(0.95, 1.0 / loss))
        yield TrainingScalar(*of, tag="train/loss_scale", scalar=65_536.0)
        for tag in ("loss", "gradient_norm"):
            yield TrainingNonfinite(*of, tag=tag, nonfinite=self._nonfinite(job, seen_s))
        yield from self._phase(job, seen_s, of)
        if kind.parameters:
            yield TrainingModel(
                *of,
                flops_per_token=FLOPS_OF_PARAMETER * kind.parameters,
                precision="bf16",
                gpus=float(self._lane.gpus),
            )

    def _seen_s(self, time_s: float) -> float:
        """The time up to which the log goes: a silent run has logged nothing since it fell silent."""
        for change in self._lane.changes:
            if change.silent and change.from_s <= time_s < change.until_s:
                return change.from_s
        return time_s

    def _steps(self, job: JobRun, time_s: float) -> int:
        # A little more than a whole step is one: integrals of years leave a rest.
        return math.floor(self._pace.integral(time_s) - self._pace.integral(job.start_s) + 1e-6)

    def _step_s(self, time_s: float) -> float:
        """Length of the newest steps."""
        pace = self._pace.at(time_s)
        if not pace:
            paces = (act.pace for _, act in self._lane.turns_before(time_s) if act is not None)
            pace = next(pace for pace in paces if pace)
        return 1.0 / pace

    def _last_event_s(self, time_s: float) -> float:
        """When the last step ended, found by halving: the count of steps only grows."""
        target = math.floor(self._pace.integral(time_s) + 1e-6) - 1e-6
        low_s, high_s = time_s - 86_400.0, time_s
        while high_s - low_s > 0.01:
            middle_s = (low_s + high_s) / 2
            if self._pace.integral(middle_s) >= target:
                high_s = middle_s
            else:
                low_s = middle_s
        return round(high_s, 2)

    def _end_of_last(self, job: JobRun, time_s: float, phase: str) -> float | None:
        """When the job left a phase last."""
        end_s = None
        for start_s, act in self._lane.turns_before(time_s):
            if start_s < job.start_s - 0.01:
                return None
            if act is not None and act.phase == phase and end_s is not None:
                return round(end_s, 2)
            end_s = start_s
        return None

    def _phase(self, job: JobRun, time_s: float, of: tuple[str, str]) -> Iterator[Reading]:
        """The phase of this moment, and since when it lasts, over pauses within it."""
        current, since_s = "", job.start_s
        for start_s, act in self._lane.turns_before(time_s):
            if start_s < job.start_s - 0.01 or act is None or (current and act.phase != current):
                break
            current, since_s = act.phase, start_s
        if current:
            for phase in PHASES:
                yield TrainingPhase(*of, phase=phase, current=float(phase == current))
            yield TrainingPhaseStart(*of, start_timestamp_seconds=round(since_s, 2))

    def _numbers(self, time_s: float) -> Numbers | None:
        return next((n for n in self.numbers if n.from_s <= time_s < n.until_s), None)

    def _nonfinite(self, job: JobRun, time_s: float) -> float:
        count = 0
        for bad in self.numbers:
            from_s, until_s = max(bad.from_s, job.start_s), min(bad.until_s, time_s)
            if bad.factor is None and from_s < until_s:
                count += math.floor(self._pace.integral(until_s) - self._pace.integral(from_s))
        return float(count)


def _noise(run: str, steps: int) -> float:
    """From -1 to 1, the same for the same step."""
    return random.Random(f"{run}/{steps}").uniform(-1.0, 1.0)  # noqa: S311 - reproducible, no secret
