from __future__ import annotations

from clusterwatt.expose.live.work import runs
from clusterwatt.readings.training import (
    TrainingEfficiency,
    TrainingMfuMissing,
    TrainingNonfinite,
    TrainingPhase,
    TrainingProgress,
    TrainingQuality,
    TrainingRun,
)
from tests.expose.sites import snapshot


def test_runs_of_one_name_in_two_jobs_are_two() -> None:
    first, second = runs(
        snapshot(
            1,
            TrainingRun("a", "slurm/1", "nemo"),
            TrainingRun("a", "slurm/2", ""),
            TrainingProgress("a", "slurm/1", step=1.0, last_event_timestamp_seconds=1_700_000_000.0),
            TrainingProgress("a", "slurm/2", step=2.0),
            TrainingQuality("a", "slurm/1", "train", 2.5, None),
            TrainingPhase("a", "slurm/1", "train", 0.0),
            TrainingPhase("a", "slurm/1", "eval", 1.0),
            TrainingNonfinite("a", "slurm/2", "loss", 3.0),
            TrainingEfficiency("a", "slurm/1", 1e10, 0.5),
            TrainingEfficiency("a", "slurm/2", None, None),
            TrainingMfuMissing("a", "slurm/2", "flops_per_token"),
        )
    )
    assert (first.step, first.loss, first.phase, first.mfu_ratio) == (1.0, 2.5, "eval", 0.5)
    assert (first.nonfinite, first.mfu_missing, first.silent_seconds) == ((), "", 1.0)
    assert (second.step, second.loss, second.phase, second.mfu_ratio) == (2.0, None, "", None)
    assert (second.nonfinite, second.mfu_missing) == (("loss",), "flops_per_token")
