"""Who wants to know of a job's end is told after it is on disk, and cannot do the books any harm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clusterwatt.config.model import Ledger
from clusterwatt.ledger.keeper import Keeper
from clusterwatt.ledger.report import reader
from tests.clocks import FakeClock
from tests.ledger.batches import ANSWERS_S, amounts, batch, commit, gpu_entry, record, settle

BEGIN_S = 1_796_040_000.0


def test_the_end_is_told_once_it_is_committed(tmp_path: Path) -> None:
    path, clock = tmp_path / "ledger.db", FakeClock(BEGIN_S)
    told: list[tuple[str, float | None]] = []

    def on_ended(job_ids: Sequence[str]) -> None:
        with reader(path) as books:
            rows = [books.job(job_id) for job_id in job_ids]
        told.extend((row.key, row.record.ended_s) for row in rows if row and row.record)

    books = Keeper(Ledger(path=str(path)), clock, zone="UTC", on_ended=on_ended)
    books.wait(ANSWERS_S)
    jobs = (record("slurm/1", seen_s=BEGIN_S, ended_s=BEGIN_S), record("slurm/2", seen_s=BEGIN_S))
    commit(books, clock, batch(clock, {gpu_entry(): amounts()}, jobs=jobs))
    books.take(())
    settle(books)
    assert told == [("slurm/1", BEGIN_S)]
    assert books.stop(ANSWERS_S)


def test_the_end_is_told_though_a_commit_is_due_at_every_tick(tmp_path: Path) -> None:
    clock, told = FakeClock(BEGIN_S), list[str]()
    settings = Ledger(path=str(tmp_path / "ledger.db"), commit_seconds=0.5)
    books = Keeper(settings, clock, zone="UTC", on_ended=told.extend)
    books.wait(ANSWERS_S)
    ended = (record("slurm/1", seen_s=BEGIN_S, ended_s=BEGIN_S),)
    for tick in range(6):
        books.take([batch(clock, {gpu_entry(): amounts()}, jobs=ended if tick == 0 else ())])
        assert books._came_back.wait(ANSWERS_S)
        clock.advance(1.0)
    assert told == ["slurm/1"]
    assert books.stop(ANSWERS_S)


def test_one_that_fails_costs_no_booking(tmp_path: Path) -> None:
    path, clock = tmp_path / "ledger.db", FakeClock(BEGIN_S)

    def on_ended(_: Sequence[str]) -> None:
        raise RuntimeError("no receipt")

    books = Keeper(Ledger(path=str(path)), clock, zone="UTC", on_ended=on_ended)
    books.wait(ANSWERS_S)
    ended = record("slurm/1", seen_s=BEGIN_S, ended_s=BEGIN_S)
    for _ in range(3):
        commit(books, clock, batch(clock, {gpu_entry(): amounts(joules=700.0)}, jobs=(ended,)))
    assert books.stop(ANSWERS_S)
    with reader(path) as found:
        row = found.job("slurm/1")
    assert row is not None
    assert row.totals.gpu_counter_joules == 3 * 700.0
