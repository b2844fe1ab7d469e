"""Ledgers with known contents, for reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.attribution.entries import Amounts, Entry
from tests.clocks import FakeClock
from tests.ledger.batches import batch, commit, gpu_entry, host_entry, keeper, record

HOUR_S = 3_600.0
BEGIN_S = 1_796_040_000.0  # 2026-11-30T12:00Z, a full hour
NAME = '=cmd|" /C calc"!A0 <b>|\x1b[31m'


def spent(seconds: float, watts: float, *, activity: float = 0.0, tensor: float | None = None) -> Amounts:
    """A GPU for a while: at 0.25 a kWh, 400 g/kWh, 3.00 an hour."""
    joules = seconds * watts
    return Amounts(
        gpu_seconds=seconds,
        observed_seconds=seconds,
        activity_seconds=seconds * activity,
        tensor_observed_seconds=0.0 if tensor is None else seconds,
        tensor_seconds=0.0 if tensor is None else seconds * tensor,
        joules=joules,
        carbon_grams=joules / 3.6e6 * 400,
        energy_cost=joules / 3.6e6 * 0.25,
        gpu_cost=seconds / 3_600 * 3.0,
    )


def entries() -> dict[Entry, Amounts]:
    """Two hours: ann's job works for one and idles for one, bob's is estimated, a GPU is free."""
    free = spent(2 * HOUR_S, 60)
    free.gpu_cost = 6.0
    unseen = spent(2 * HOUR_S, 400, activity=0.25)
    unseen.unobserved_seconds = 0.5 * HOUR_S  # beside the two hours, as gaps are booked
    return {
        gpu_entry("slurm/1"): spent(HOUR_S, 700, activity=0.8, tensor=0.4),
        gpu_entry("slurm/1", state="idle"): spent(HOUR_S, 120, activity=0.0, tensor=0.0),
        host_entry("slurm/1"): Amounts(joules=360_000.0, carbon_grams=40.0, energy_cost=0.025),
        gpu_entry("slurm/2", account="art", device="GPU-1", method="estimated"): unseen,
        gpu_entry("", device="GPU-2", state="free"): free,
        host_entry("", component="dram"): Amounts(joules=36_000.0, carbon_grams=4.0, energy_cost=0.0025),
    }


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger with two jobs, one of which is over."""
    path = tmp_path / "ledger.db"
    clock = FakeClock(BEGIN_S + 2 * HOUR_S - 600)
    books = keeper(path, clock)
    jobs = (
        record("slurm/1", seen_s=BEGIN_S + 7_100, name="train", started_s=BEGIN_S, ended_s=BEGIN_S + 7_200),  # type: ignore[arg-type]
        record("slurm/2", seen_s=BEGIN_S + 7_100, name=NAME, user="bob", account="art"),
    )
    commit(books, clock, batch(clock, entries(), jobs=jobs, hour_s=int(BEGIN_S)))
    books.stop(5.0)
    return path
