"""Reports from the ledger against the same sums made by hand, and how long they take."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import fsum
from pathlib import Path

import pytest

from clusterwatt.attribution.entries import Amounts, Entry
from clusterwatt.ledger.report import MONEY, PART, Cost, UsageRow, reader
from clusterwatt.ledger.state import Payload
from clusterwatt.ledger.totals import COLUMNS
from tests.clocks import FakeClock
from tests.ledger import history
from tests.ledger.batches import H100, MEMORY, amounts, batch, commit, gpu_entry, keeper, record
from tests.ledger.history import BEGIN_S, HOUR_S

JOBS = 2_000
DAY_S = 86_400


@pytest.fixture(scope="module")
def month() -> Iterator[tuple[Path, Payload]]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "ledger.db"
        yield path, history.write(path, JOBS)


Key = Callable[[Entry, Payload], str]


def by_hand(booked: Payload, from_s: float, to_s: float, key: Key) -> dict[str, list[tuple[Entry, Amounts]]]:
    rows: defaultdict[str, list[tuple[Entry, Amounts]]] = defaultdict(list)
    for hour_s, entries in booked.hours.items():
        if from_s <= hour_s < to_s:
            for entry, amounts in entries.items():
                if entry.job_id:
                    rows[key(entry, booked)].append((entry, amounts))
    return rows


def user_of(entry: Entry, booked: Payload) -> str:
    return booked.jobs[entry.job_id].job.user


def namespace_of(entry: Entry, booked: Payload) -> str:
    return booked.jobs[entry.job_id].job.k8s_namespace


def agree(row: UsageRow, parts: list[tuple[Entry, Amounts]]) -> None:
    """A row holds what its parts add up to."""
    idle = [amounts for entry, amounts in parts if entry.state == "idle"]
    gpu = [amounts for entry, amounts in parts if entry.component == "gpu"]
    totals = row.totals
    assert row.jobs == len({entry.job_id for entry, _ in parts})
    assert totals.gpu_seconds == pytest.approx(fsum(each.gpu_seconds for each in gpu))
    assert totals.idle_gpu_seconds == pytest.approx(fsum(each.gpu_seconds for each in idle))
    assert totals.unobserved_seconds == pytest.approx(fsum(each.unobserved_seconds for each in gpu))
    assert totals.observed_seconds == pytest.approx(fsum(each.observed_seconds for each in gpu))
    assert totals.activity_seconds == pytest.approx(fsum(each.activity_seconds for each in gpu))
    assert totals.tensor_seconds == pytest.approx(fsum(each.tensor_seconds for each in gpu))
    energy = {(component, method): joules for component, method, joules in totals.energy()}
    assert energy == {
        ("gpu", "counter"): pytest.approx(fsum(each.joules or 0.0 for each in gpu)),
        ("cpu", "estimated"): pytest.approx(
            fsum(each.joules or 0.0 for entry, each in parts if entry.component == "cpu")
        ),
    }
    assert totals.idle_joules == pytest.approx(fsum(each.joules or 0.0 for each in idle))
    assert totals.carbon_grams == pytest.approx(fsum(each.carbon_grams or 0.0 for _, each in parts))
    (cost,) = row.costs.values()
    assert cost.energy == pytest.approx(fsum(each.energy_cost or 0.0 for _, each in parts))
    assert cost.gpu == pytest.approx(fsum(each.gpu_cost or 0.0 for _, each in parts))
    assert cost.idle == pytest.approx(fsum(each.gpu_cost or 0.0 for each in idle))


PERIOD = {"from_s": BEGIN_S, "to_s": BEGIN_S + DAY_S, "nobody": 0}
PERIODS = [
    (BEGIN_S, BEGIN_S + 31 * DAY_S),
    (BEGIN_S + 5 * DAY_S, BEGIN_S + 6 * DAY_S),
    (BEGIN_S + 7 * HOUR_S, BEGIN_S + 8 * HOUR_S),
    (BEGIN_S + 29 * DAY_S, BEGIN_S + 90 * DAY_S),
    (0.0, 1e11),
]


@pytest.mark.parametrize(("from_s", "to_s"), PERIODS)
def test_a_period_holds_exactly_the_hours_that_begin_in_it(
    month: tuple[Path, Payload], from_s: float, to_s: float
) -> None:
    path, booked = month
    with reader(path) as books:
        rows = {row.key: row for row in books.usage(from_s, to_s)}
        rest = books.unattributed(from_s, to_s)
    parts = by_hand(booked, from_s, to_s, lambda entry, _: entry.job_id)
    assert rows.keys() == parts.keys()
    for key, row in rows.items():
        agree(row, parts[key])
        assert row.record is not None
        assert row.record.job == booked.jobs[key].job
        assert row.gpus == {H100: 1}
    hours = [hour_s for hour_s in booked.hours if from_s <= hour_s < to_s]
    assert rest.totals.gpu_counter_joules == pytest.approx(4_000.0 * len(hours))


@pytest.mark.parametrize(
    ("by", "key"),
    [("user", user_of), ("account", lambda entry, _: entry.account), ("namespace", namespace_of)],
)
def test_groups_are_sums_of_their_jobs(month: tuple[Path, Payload], by: str, key: Key) -> None:
    path, booked = month
    from_s, to_s = PERIODS[1]
    with reader(path) as books:
        rows = books.usage(from_s, to_s, by=by)  # type: ignore[arg-type] # one of the three
    parts = by_hand(booked, from_s, to_s, key)
    assert {row.key for row in rows} == parts.keys()
    for row in rows:
        agree(row, parts[row.key])
    assert [row.totals.gpu_seconds or 0.0 for row in rows] == sorted(
        (row.totals.gpu_seconds or 0.0 for row in rows), reverse=True
    )


@pytest.mark.parametrize(("from_s", "to_s"), PERIODS)
@pytest.mark.parametrize("limit", [1, 7, 1_000_000])
def test_the_largest_jobs_and_the_others_are_all_of_them(
    month: tuple[Path, Payload], from_s: float, to_s: float, limit: int
) -> None:
    path, _ = month
    with reader(path) as books:
        rows = books.usage(from_s, to_s)
        largest, others = books.largest(from_s, to_s, limit)
    assert largest == rows[:limit]
    left_out = rows[limit:]
    assert (others is None) == (not left_out)
    if others is None:
        return
    assert (others.key, others.jobs, others.record) == (str(len(left_out)), len(left_out), None)
    for name in COLUMNS[:-MONEY]:
        known = [amount for row in left_out if (amount := getattr(row.totals, name)) is not None]
        assert getattr(others.totals, name) == (pytest.approx(fsum(known), rel=1e-9) if known else None), name
    assert others.costs["EUR"].gpu == pytest.approx(fsum(row.costs["EUR"].gpu or 0.0 for row in left_out))


def test_a_period_that_begins_within_an_hour_has_the_whole_of_it(month: tuple[Path, Payload]) -> None:
    path, _ = month
    with reader(path) as books:
        assert books.usage(BEGIN_S + 10, BEGIN_S + HOUR_S) == books.usage(BEGIN_S, BEGIN_S + HOUR_S)
        assert books.usage(BEGIN_S - HOUR_S, BEGIN_S) == []
        nothing = books.unattributed(0.0, 1.0)
    assert (nothing.totals.gpu_seconds, nothing.costs) == (None, {})


def test_periods_side_by_side_are_the_whole(month: tuple[Path, Payload]) -> None:
    path, _ = month
    with reader(path) as books:
        whole = fsum(row.totals.gpu_counter_joules or 0.0 for row in books.usage(0.0, 1e11))
        days = [
            row.totals.gpu_counter_joules or 0.0
            for day in range(32)
            for row in books.usage(BEGIN_S + day * DAY_S, BEGIN_S + (day + 1) * DAY_S, by="account")
        ]
    assert fsum(days) == pytest.approx(whole, rel=1e-9)


def test_single_jobs_and_the_last_ones(month: tuple[Path, Payload]) -> None:
    path, booked = month
    with reader(path) as books:
        row = books.job("slurm/7")
        assert row is not None
        agree(row, by_hand(booked, 0.0, 1e11, lambda entry, _: entry.job_id)["slurm/7"])
        assert books.job("slurm/none") is None
        last = books.jobs(limit=3)
        assert len(last) == 3
        assert last[0].record is not None
        newest = max(each.last_seen_s for each in booked.jobs.values())
        assert last[0].record.last_seen_s == newest
        assert books.jobs(running=True) == []


def test_running_jobs_and_two_currencies(tmp_path: Path) -> None:
    clock = FakeClock()
    made = keeper(tmp_path / "ledger.db", clock)
    entries = {
        gpu_entry("slurm/1"): amounts(),
        gpu_entry("slurm/1", device="GPU-1", currency="USD", gpu_name="NVIDIA L40S"): amounts(2.0),
        gpu_entry("slurm/2"): amounts(),
    }
    jobs = [
        record("slurm/1", seen_s=clock.wall_s()),
        record("slurm/2", seen_s=clock.wall_s(), ended_s=clock.wall_s()),
    ]
    commit(made, clock, batch(clock, entries, jobs=jobs))
    with reader(tmp_path / "ledger.db") as books:
        (row,) = books.jobs(running=True)
        (same, _) = books.usage(0.0, 1e11)
        (cut,) = [each for each in books.usage(clock.wall_s() - HOUR_S, 1e11) if each.key == "slurm/1"]
    assert row.key == "slurm/1"
    assert row.gpus == {H100: 1, "NVIDIA L40S": 1}
    assert row.totals.gpu_seconds == 3.0
    assert set(row.costs) == {"EUR", "USD"}
    assert row.costs["USD"] == Cost(energy=pytest.approx(700 / 20e6), gpu=pytest.approx(2 / 1_800), idle=None)  # type: ignore[arg-type]
    assert same == row == cut
    made.stop(5.0)


def test_a_report_of_a_month_costs_little_more_than_its_rows(month: tuple[Path, Payload]) -> None:
    """`benchmarks.ledger` has the figures for a hundred thousand jobs; a ratio holds on any machine."""
    path, _ = month
    rows_s, report_s, groups_s = [], [], []
    with reader(path) as books:
        for _ in range(5):
            began_s = time.process_time()
            rows = books._connection.execute("SELECT * FROM job JOIN total ON total.job = number").fetchall()
            rows_s.append(time.process_time() - began_s)
            assert len(rows) >= JOBS
            began_s = time.process_time()
            assert len(books.usage(BEGIN_S, BEGIN_S + 31 * DAY_S)) == JOBS
            report_s.append(time.process_time() - began_s)
            began_s = time.process_time()
            books.usage(BEGIN_S, BEGIN_S + 31 * DAY_S, by="user")
            groups_s.append(time.process_time() - began_s)
    assert min(report_s) < 5 * min(rows_s)
    assert min(groups_s) < 5 * min(rows_s)


def test_what_lies_outside_the_period_is_not_read(month: tuple[Path, Payload]) -> None:
    path, _ = month
    with reader(path) as books:
        plan = " ".join(
            line[3]
            for line in books._connection.execute(f"EXPLAIN QUERY PLAN {PART} SELECT * FROM part", PERIOD)
        )
    assert "SCAN usage" not in plan
    assert "SEARCH usage USING" in plan
