"""Jobs that wait in the queues of a simulated cluster, by seed and time alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import SchedulerPending

# Queues by scheduler, with how many jobs can wait in each.
QUEUES = {"slurm": {"gpu": 14, "interactive": 2}, "kubernetes": {"batch": 6}}
SIZES = (1, 1, 1, 2, 2, 4, 8, 8, 16, 32)  # GPUs that a job asks for


class Turn(NamedTuple):
    """One job after another: each comes a period after the last, and is started after its wait."""

    gpus: int
    period_s: float
    wait_s: float
    shift_s: float


class Queue:
    """What one scheduler's queues hold. `gpus`: of the cluster; nobody asks for more than half of them."""

    def __init__(self, scheduler: str, seed: int, gpus: int) -> None:
        self.name = f"{scheduler}_queue"
        self._scheduler = scheduler
        chance = random.Random(f"{seed}/{self.name}")  # noqa: S311 - reproducible, no secret
        sizes = [size for size in SIZES if size <= max(1, gpus // 2)]
        self._turns = {
            partition: [_turn(chance, chance.choice(sizes)) for _ in range(most)]
            for partition, most in QUEUES[scheduler].items()
        }

    def readings(self, time_s: float) -> Iterator[Reading]:
        """The jobs that wait at this moment."""
        for partition, turns in self._turns.items():
            waiting = [turn.gpus for turn in turns if (time_s + turn.shift_s) % turn.period_s < turn.wait_s]
            yield SchedulerPending(self._scheduler, partition, float(len(waiting)), float(sum(waiting)))


def _turn(chance: random.Random, gpus: int) -> Turn:
    """Large jobs come seldom and wait long."""
    period_s = chance.uniform(900.0, 3_600.0) * (1.0 + gpus / 4.0)
    return Turn(gpus, period_s, chance.uniform(0.1, 0.7) * period_s, chance.uniform(0.0, period_s))
