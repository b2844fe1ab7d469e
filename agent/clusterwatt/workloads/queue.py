"""What waits in a scheduler's queue: the families, whoever asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from clusterwatt.catalog import FULL, Table
from clusterwatt.readings.work import SchedulerPending

PENDING = Table(SchedulerPending, labels=("scheduler", "partition"))
METRICS = (
    PENDING.gauge(
        "scheduler_pending_jobs",
        "Jobs that wait in the scheduler's queue, each task of an array one; each in one partition only.",
        "jobs",
        FULL,
    ),
    PENDING.gauge("scheduler_pending_gpus", "GPUs that these jobs ask for.", "gpus", FULL),
)


class Waiting(NamedTuple):
    """Jobs that wait for the same: where, how many, and the GPUs of all of them."""

    partition: str
    jobs: int
    gpus: int


def pending(
    scheduler: str, partitions: Iterable[str], waiting: Iterable[Waiting]
) -> Iterator[SchedulerPending]:
    """A reading for each partition that is known or in which a job waits; 0 where none does."""
    counts: dict[str, list[int]] = {partition: [0, 0] for partition in partitions}
    for some in waiting:
        count = counts.setdefault(some.partition, [0, 0])
        count[0] += some.jobs
        count[1] += some.gpus
    for partition, (jobs, gpus) in sorted(counts.items()):
        yield SchedulerPending(scheduler, partition, float(jobs), float(gpus))
