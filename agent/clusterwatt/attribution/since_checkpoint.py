"""What a run's job has used on this node since the run's last checkpoint: what a crash now would cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from clusterwatt.readings.base import Reading
from clusterwatt.readings.training import (
    TrainingProgress,
    TrainingSinceCheckpoint,
    TrainingSinceCheckpointCost,
)


class Used(msgspec.Struct, frozen=True):
    """Totals of a job: energy of all components, and money by currency."""

    joules: float = 0.0
    cost: Mapping[str, float] = {}


class SinceCheckpoint:
    """Remembers, at each checkpoint, what its job had used by then.

    Totals are those of the ledger's last commit, so the two may be apart by the time between two commits. Of
    a checkpoint that is older than the agent nothing is known.
    """

    def __init__(self) -> None:
        self._at: dict[tuple[str, str], tuple[float, Used | None]] = {}

    def measure(
        self, runs: Mapping[tuple[str, str], TrainingProgress], used: Mapping[str, Used]
    ) -> Iterator[Reading]:
        """Readings of all runs with a checkpoint; `used`: by job."""
        known, self._at = self._at, {}
        for key, progress in runs.items():
            checkpoint_s = progress.last_checkpoint_timestamp_seconds
            now = used.get(progress.job_id)
            then = known.get(key)
            if then is None:
                then = (checkpoint_s or 0.0, None if checkpoint_s is not None else Used())
            elif checkpoint_s is not None and checkpoint_s > then[0]:
                then = (checkpoint_s, now or Used())
            self._at[key] = then
            if checkpoint_s is None or then[1] is None or now is None:
                continue
            run, job_id = key
            yield TrainingSinceCheckpoint(run, job_id, max(0.0, now.joules - then[1].joules))
            for currency, cost in now.cost.items():
                since = cost - then[1].cost.get(currency, 0.0)
                yield TrainingSinceCheckpointCost(run, job_id, currency, max(0.0, since))
