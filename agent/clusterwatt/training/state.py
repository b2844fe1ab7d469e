"""What is known of one run: the newest of everything that it said, whoever brought it.

For files and for reports alike:

    state = RunState("llama/run1")
    state.owner = "slurm/4242"                                      # a job's id, or the name of a JobMember
    state.framework = "megatron"
    state.take("train_loss", 2.5, step=100, wall_s=1_700_000_000.0) # quantities: config.model.Quantity
    state.take_scalar("router/z_loss", 0.1, step=100, wall_s=...)   # let through by its own tag
    state.seen(100, wall_s, counts_iterations=True)                 # something else was logged at that step
    state.last_checkpoint_s = ...
    readings = list(state.readings())

"Newest" is by wall time, not by step and not by arrival: two writers of one run may be read in any order, and
after a resume the step goes back. Nothing is locked: a state belongs to the thread of one collector. Reports
that come in on another thread are handed over to it, in a queue.

Values that are not finite never become a value: the quantity is absent while its newest value is one, and
those of losses and of the norm of gradients are counted. A norm that is not finite where the loss scale then
falls is the ordinary work of mixed precision (the optimizer skips the step) and is not counted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from clusterwatt.config.model import Quantity
from clusterwatt.readings.base import Reading
from clusterwatt.readings.training import (
    TrainingNonfinite,
    TrainingProgress,
    TrainingQuality,
    TrainingRun,
    TrainingScalar,
)
from clusterwatt.training.quantities import ACCURACIES, LOSSES, NONFINITE

MEAN_OVER_STEPS = 10  # step times that are logged vary from one to the next
MAX_SCALARS = 256  # tags of one run that are exported by their own name
NEVER_S = -math.inf
AHEAD_S = 60.0  # clocks of one machine and its containers are one; those of others may be a little ahead


class RunState:
    """One run. `owner` and `framework` are set by who finds out."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.owner = ""
        self.framework = ""
        self.last_event_s = NEVER_S
        self.last_checkpoint_s: float | None = None
        self._values: dict[str, tuple[float, float]] = {}  # quantity: wall time, value
        self._scalars: dict[str, tuple[float, float]] = {}  # tag: wall time, value
        self._step: tuple[bool, float, float] | None = None  # counts iterations, wall time, step
        self._durations_s: deque[float] = deque(maxlen=MEAN_OVER_STEPS)
        self._tokens = TokensTotal()
        self._nonfinite = dict.fromkeys(NONFINITE.values(), 0)
        self._loss_scale = LossScale()

    def take(
        self,
        quantity: Quantity,
        value: float,
        step: float | None,
        wall_s: float,
        *,
        counts_iterations: bool = True,
        count: bool = True,
    ) -> None:
        """Take a value. One older than what is known is not shown.

        `step`: None where none is told. `counts_iterations`: what the step is. `count`: whether it is counted
        when it is not finite; what a run wrote before it was found is not.
        """
        finite = math.isfinite(value)
        if quantity == "step":
            if finite:
                self.seen(value, wall_s, counts_iterations=True)
            return
        self.seen(step, wall_s, counts_iterations=counts_iterations)
        when = wall_s if step is None else step
        if quantity == "loss_scale":
            if finite:
                self._nonfinite["gradient_norm"] += self._loss_scale.logged(value, when) * count
            return
        if quantity == "gradient_norm":
            self._nonfinite["gradient_norm"] += self._loss_scale.norm(when, finite=finite) * count
        elif not finite and count and quantity in NONFINITE:
            self._nonfinite[NONFINITE[quantity]] += 1
        known = self._values.get(quantity)
        if known is not None and wall_s < known[0]:
            return
        self._values[quantity] = (wall_s, value)
        if finite and quantity == "step_duration_seconds":
            self._durations_s.append(value)
        elif finite and quantity == "tokens_total":
            self._tokens.take(value)

    def take_scalar(self, tag: str, value: float, step: float | None, wall_s: float) -> None:
        """Take a value that is exported under its own tag."""
        self.seen(step, wall_s)
        known = self._scalars.get(tag)
        if known is None and len(self._scalars) >= MAX_SCALARS:
            return
        if known is None or wall_s >= known[0]:
            self._scalars[tag] = (wall_s, value)

    def seen(self, step: float | None, wall_s: float, *, counts_iterations: bool = False) -> None:
        """Note that something was logged. Steps that count iterations stand before those of unknown kind.

        Keras counts epochs and DeepSpeed samples in some of their tags: that is better than nothing, and
        worse than an iteration.
        """
        self.last_event_s = max(self.last_event_s, wall_s)
        if step is None:
            return
        if self._step is None or (counts_iterations, wall_s) >= self._step[:2]:
            self._step = (counts_iterations, wall_s, step)

    def date_back(self, now_s: float) -> None:
        """Date to now what is of the future: the clock was set back, and what is logged next is newer."""
        if self.last_event_s <= now_s + AHEAD_S:
            return
        self.last_event_s = now_s
        for kept in (self._values, self._scalars):
            kept.update({name: (min(wall_s, now_s), value) for name, (wall_s, value) in kept.items()})
        if self._step is not None:
            counts_iterations, wall_s, step = self._step
            self._step = (counts_iterations, min(wall_s, now_s), step)
        if self.last_checkpoint_s is not None:
            self.last_checkpoint_s = min(self.last_checkpoint_s, now_s)

    def newest(self, quantity: Quantity) -> float | None:
        """The newest value; None when there is none or it is not finite."""
        known = self._values.get(quantity)
        return known[1] if known is not None and math.isfinite(known[1]) else None

    def readings(self) -> Iterator[Reading]:
        """All that is known, now."""
        run, job_id = self.run, self.owner
        yield TrainingRun(run, job_id, self.framework)
        yield self.progress()
        for split in ("train", "eval"):
            loss, accuracy = self.newest(LOSSES[split]), self.newest(ACCURACIES[split])
            if loss is not None or accuracy is not None:
                yield TrainingQuality(run, job_id, split, loss, accuracy)
        for tag, (_, value) in self._scalars.items():
            if math.isfinite(value):
                yield TrainingScalar(run, job_id, tag, value)
        for tag, count in self._nonfinite.items():
            yield TrainingNonfinite(run, job_id, tag, float(count))

    def progress(self) -> TrainingProgress:
        """Where the run stands."""
        duration = self.newest("step_duration_seconds")
        return TrainingProgress(
            run=self.run,
            job_id=self.owner,
            step=None if self._step is None else float(self._step[2]),
            gradient_norm=self.newest("gradient_norm"),
            learning_rate=self.newest("learning_rate"),
            step_duration_seconds=None
            if duration is None
            else math.fsum(self._durations_s) / len(self._durations_s),
            tokens_total=self._tokens.total,
            tokens_per_second=self.newest("tokens_per_second"),
            samples_per_second=self.newest("samples_per_second"),
            last_event_timestamp_seconds=None if self.last_event_s == NEVER_S else self.last_event_s,
            last_checkpoint_timestamp_seconds=self.last_checkpoint_s,
            tokens_per_second_per_gpu=self.newest("tokens_per_second_per_gpu"),
            tokens=self.newest("tokens_total"),
        )


class TokensTotal:
    """Tokens as a counter of Prometheus, which takes every step back for a start from 0.

    After a resume from a checkpoint the logged number goes back a little: the highest stands until the run is
    past it again, and nothing is counted twice. A run that starts over in its old folder begins near 0, and
    that is a start from 0. The bound between the two is where either mistakes the rate by the same.
    """

    def __init__(self) -> None:
        self.total: float | None = None

    def take(self, tokens: float) -> None:
        """Take the newest number."""
        if tokens >= 0 and (self.total is None or tokens > self.total or tokens < self.total / 2):
            self.total = tokens


class LossScale:
    """Tells the overflows that dynamic loss scaling provokes from gradients that are broken.

    Scale and norm of a step are logged in either order, and the scale of a step may be the one before its
    overflow: so the verdict on a norm waits for the next step's scale, where a scale is logged at all.
    """

    def __init__(self) -> None:
        self._scale: float | None = None
        self._fell_at: float | None = None
        self._waiting_at: float | None = None

    def norm(self, step: float, *, finite: bool) -> int:
        """Take the norm of a step; returns how many that were not finite are found to be broken."""
        broken = 0
        if self._waiting_at not in {None, step, self._fell_at}:
            broken, self._waiting_at = 1, None
        if finite:
            return broken
        if self._scale is None:
            return broken + 1
        if self._fell_at != step:
            self._waiting_at = step
        return broken

    def logged(self, scale: float, step: float) -> int:
        """Take the scale of a step; returns how many norms that waited are found to be broken."""
        fell = self._scale is not None and scale < self._scale
        self._scale = scale
        if fell:
            self._fell_at, self._waiting_at = step, None
        elif self._waiting_at is not None and step > self._waiting_at:
            self._waiting_at = None
            return 1
        return 0
