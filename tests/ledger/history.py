"""A ledger with many finished jobs in it, written as the agent writes."""

from __future__ import annotations

import random
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from clusterwatt.attribution.entries import Amounts, Entry, JobRecord
from clusterwatt.ledger.state import Payload
from clusterwatt.ledger.store import Store
from clusterwatt.readings.work import Job
from tests.clocks import FakeClock
from tests.ledger.batches import H100

BEGIN_S = 1_698_796_800  # 2023-11-01 00:00 UTC
HOUR_S = 3_600
DAYS = 30


def month_of(hour_s: int) -> str:
    return datetime.fromtimestamp(hour_s, timezone.utc).strftime("%Y-%m")


def write(path: Path, jobs: int, seed: int = 1) -> Payload:
    """Fill a month: each job runs for one to three hours on one GPU. Returns all that was booked."""
    chance = random.Random(seed)
    clock = FakeClock(wall_s=BEGIN_S)
    store = Store(path, clock)
    state, _ = store.open(month_of(BEGIN_S))
    hours = DAYS * 24
    payloads: dict[int, Payload] = {hour: Payload(boot_id="boot-1") for hour in range(hours + 3)}
    everything = Payload()
    for number in range(jobs):
        first = number * hours // jobs
        job = Job(
            f"slurm/{number}",
            "slurm",
            "batch",
            name=f"train-{number % 100}",
            user=f"user{number % 50}",
            account=f"account{number % 12}",
            k8s_namespace=f"space{number % 5}",
        )
        last = first + chance.randint(0, 2)
        for hour in range(first, last + 1):
            hour_s = BEGIN_S + hour * HOUR_S
            entries = payloads[hour].hours.setdefault(hour_s, {})
            for entry, amounts in booked(job, number, chance):
                entries[entry] = amounts
                payloads[hour].measured_joules += amounts.joules or 0.0
            seen_s = float(hour_s + 1_800)
            ended_s = seen_s if hour == last else None
            payloads[hour].jobs[job.job_id] = JobRecord(job, seen_s, seen_s, ended_s)
    for hour, payload in payloads.items():
        payload.wall_s = BEGIN_S + (hour + 1.0) * HOUR_S
        rest = Entry("", "", "GPU-0", H100, "gpu", "free", "counter", "EUR")
        payload.hours.setdefault(BEGIN_S + hour * HOUR_S, {})[rest] = Amounts(60.0, joules=4_000.0)
        everything.hours.update(payload.hours)
        everything.jobs.update(payload.jobs)
        state = store.commit(state, payload, (), month_of)
        running = {
            job_id: state.jobs[job_id]
            for job_id in ("", *payloads.get(hour + 1, Payload()).job_ids())
            if job_id in state.jobs
        }
        state = msgspec.structs.replace(state, jobs=running)
    store.close()
    return everything


def booked(job: Job, number: int, chance: random.Random) -> list[tuple[Entry, Amounts]]:
    """What a job brings in an hour."""
    device, joules = f"GPU-{number % 8}", 1_000.0 + 500.0 * chance.random()
    gpu = Entry(job.job_id, job.account, device, H100, "gpu", "active", "counter", "EUR")
    host = Entry(job.job_id, job.account, "", "", "cpu", "", "estimated", "EUR")
    return [
        (gpu, Amounts(30.0, 0.0, 30.0, 20.0, 30.0, 10.0, joules, joules / 1e4, joules / 2e7, 0.02)),
        (
            msgspec.structs.replace(gpu, state="idle"),
            Amounts(5.0, 1.0, 4.0, 0.0, joules=100.0, gpu_cost=0.003),
        ),
        (host, Amounts(joules=joules / 10, carbon_grams=0.01, energy_cost=0.001)),
    ]
