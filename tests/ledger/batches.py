"""Batches for tests of the ledger, and a keeper whose thread tests wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from clusterwatt.attribution.entries import Amounts, Baseline, Batch, Entry, Held, JobRecord
from clusterwatt.config.model import Ledger
from clusterwatt.ledger.keeper import Keeper
from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import Job
from tests.clocks import FakeClock

R = TypeVar("R", bound=Reading)

H100 = "NVIDIA H100 80GB HBM3"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # for many commits: each is synced to disk
ANSWERS_S = 10.0  # of the ledger's thread, on a machine with much else to do


def gpu_entry(
    job_id: str = "slurm/1",
    *,
    account: str | None = None,
    device: str = "GPU-0",
    state: str = "active",
    method: str = "counter",
    currency: str = "EUR",
    gpu_name: str = H100,
) -> Entry:
    if account is None:
        account = "physics" if job_id else ""
    return Entry(job_id, account, device, gpu_name, "gpu", state, method, currency)


def host_entry(job_id: str = "slurm/1", *, component: str = "cpu", currency: str = "EUR") -> Entry:
    account = "physics" if job_id else ""
    return Entry(job_id, account, "", "", component, "", "estimated", currency)


def amounts(seconds: float = 1.0, joules: float | None = 700.0) -> Amounts:
    """A GPU at work for a while."""
    return Amounts(
        gpu_seconds=seconds,
        observed_seconds=seconds,
        activity_seconds=seconds / 2,
        joules=joules,
        carbon_grams=None if joules is None else joules / 10_000,
        energy_cost=None if joules is None else joules / 20_000_000,
        gpu_cost=seconds / 1_800,
    )


def record(
    job_id: str = "slurm/1", *, ended_s: float | None = None, seen_s: float = 1.0, **job: str
) -> JobRecord:
    known = Job(job_id, "slurm", "batch", user="ann", account="physics")
    return JobRecord(msgspec.structs.replace(known, **job), seen_s, seen_s, ended_s)


def batch(
    clock: FakeClock,
    entries: Mapping[Entry, Amounts],
    *,
    jobs: Sequence[JobRecord] | None = None,
    hour_s: int | None = None,
    counter_joules: float = 0.0,
    unobserved_seconds: float = 0.0,
) -> Batch:
    """What one tick books; the measured joules are those of the entries."""
    ids = sorted({entry.job_id for entry in entries} - {""})
    now_s = clock.wall_s()
    return Batch(
        wall_s=now_s,
        boot_id="boot-1",
        hour_s=int(now_s // 3_600) * 3_600 if hour_s is None else hour_s,
        entries=entries,
        measured_joules=sum(each.joules or 0.0 for each in entries.values()),
        unobserved_seconds=unobserved_seconds,
        jobs=tuple(record(job_id, seen_s=now_s) for job_id in ids) if jobs is None else tuple(jobs),
        baselines={
            "GPU-0": Baseline(
                counter_joules, now_s, "gpm", tuple(Held(each, "physics", 1.0) for each in ids[:1])
            )
        },
    )


def keeper(path: Path, clock: FakeClock, **settings: float) -> Keeper:
    """A keeper that has opened its ledger, or has failed to."""
    made = Keeper(Ledger(path=str(path), **settings), clock, zone="UTC")  # type: ignore[arg-type] # int or float
    made.wait(ANSWERS_S)
    return made


def settle(books: Keeper) -> None:
    """Wait for what the keeper's thread does, and have the keeper take note of it."""
    for _ in range(2):  # a look-up and a commit, or a commit and the removal of what is old
        assert books._came_back.wait(ANSWERS_S)
        books.take(())
    assert books._came_back.wait(ANSWERS_S)
    books._settle()


def commit(books: Keeper, clock: FakeClock, *batches: Batch, held: Sequence[str] = ()) -> None:
    """Have batches written, or the attempt made."""
    books.take(batches, held)
    settle(books)
    clock.advance(60.0)
    books.take((), held)
    settle(books)


def of(books: Keeper, kind: type[R]) -> list[R]:
    """What the page shows of one kind."""
    return [reading for reading in books.readings() if isinstance(reading, kind)]
