"""Training runs: what frameworks log of themselves, and what the agent makes of it.

Every reading carries `run` and `job_id`; `job_id` is empty when it is not known.
"""

from __future__ import annotations

from clusterwatt.readings.base import Reading


class TrainingRun(Reading, frozen=True):
    """A run that is followed. `framework` is empty when its files do not tell."""

    run: str
    job_id: str
    framework: str


class TrainingProgress(Reading, frozen=True):
    """The newest of what a run has logged; None where it has not, or where the newest is not finite.

    `step` is that of the event with the latest wall time, so it may go back after a resume. `tokens_total` is
    of the whole run, all ranks. Times are Unix times. Two are not exported as they are:
    `tokens_per_second_per_gpu`, and `tokens`, the number that was logged last, which may go back as well.
    """

    run: str
    job_id: str
    step: float | None = None
    gradient_norm: float | None = None
    learning_rate: float | None = None
    step_duration_seconds: float | None = None
    tokens_total: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    last_event_timestamp_seconds: float | None = None
    last_checkpoint_timestamp_seconds: float | None = None
    tokens_per_second_per_gpu: float | None = None
    tokens: float | None = None


class TrainingQuality(Reading, frozen=True):
    """Newest loss and accuracy. split: train, eval."""

    run: str
    job_id: str
    split: str
    loss: float | None
    accuracy: float | None


class TrainingScalar(Reading, frozen=True):
    """A further scalar that the configuration lets through, by its tag."""

    run: str
    job_id: str
    tag: str
    scalar: float


class TrainingNonfinite(Reading, frozen=True):
    """Values that were NaN or infinite since the run was found. tag: loss, gradient_norm."""

    run: str
    job_id: str
    tag: str
    nonfinite: float


class TrainingPhase(Reading, frozen=True):
    """A state set: 1 for the phase that the run is in. phase: warmup, train, eval, checkpoint."""

    run: str
    job_id: str
    phase: str
    current: float


class TrainingPhaseStart(Reading, frozen=True):
    """Unix time at which the current phase began."""

    run: str
    job_id: str
    start_timestamp_seconds: float


class TrainingModel(Reading, frozen=True):
    """What a run reports of its model. `gpus`: of the whole run, on all nodes."""

    run: str
    job_id: str
    flops_per_token: float | None = None
    precision: str = ""
    gpus: float | None = None


class TrainingEfficiency(Reading, frozen=True):
    """Model FLOP per token as configured or reported, and model FLOP utilisation; None where not known."""

    run: str
    job_id: str
    flops_per_token: float | None
    mfu_ratio: float | None


class TrainingMfuMissing(Reading, frozen=True):
    """What a run has no model FLOP utilisation for want of.

    missing: flops_per_token, token_rate, job, gpus (none held here), all_gpus (others may be elsewhere),
    precision, peak (of this model of GPU).
    """

    run: str
    job_id: str
    missing: str


class TrainingHardwareFlops(Reading, frozen=True):
    """Estimate of what the GPUs of a run's job here compute, from the activity of their tensor cores."""

    run: str
    job_id: str
    flops: float


class TrainingSinceCheckpoint(Reading, frozen=True):
    """Energy of a run's job on this node since the run's last checkpoint: what would be lost now."""

    run: str
    job_id: str
    energy_joules: float


class TrainingSinceCheckpointCost(Reading, frozen=True):
    """Money of a run's job on this node since the run's last checkpoint."""

    run: str
    job_id: str
    currency: str
    cost: float
