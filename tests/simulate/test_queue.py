"""Queues of a simulated cluster: the same for the same seed, and they move."""

from __future__ import annotations

from clusterwatt.readings.work import SchedulerPending
from clusterwatt.simulate.queue import Queue


def told(seed: int, time_s: float, gpus: int = 128) -> list[SchedulerPending]:
    readings = [
        *Queue("slurm", seed, gpus).readings(time_s),
        *Queue("kubernetes", seed, gpus).readings(time_s),
    ]
    return [reading for reading in readings if isinstance(reading, SchedulerPending)]


def test_the_same_seed_waits_for_the_same() -> None:
    assert told(3, 1e9) == told(3, 1e9)
    assert told(3, 1e9) != told(4, 1e9)


def test_jobs_come_and_are_started() -> None:
    hours = [sum(one.jobs for one in told(1, 1e9 + 3_600 * hour)) for hour in range(48)]
    assert min(hours) < max(hours)
    assert all(one.gpus >= one.jobs >= 0 for hour in range(48) for one in told(1, 1e9 + 3_600 * hour))


def test_nobody_waits_for_more_than_there_will_ever_be() -> None:
    assert all(one.gpus == one.jobs for hour in range(48) for one in told(1, 1e9 + 3_600 * hour, gpus=2))
