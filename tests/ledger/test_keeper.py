"""The keeper: nothing is shown that is not on disk, nothing is lost that could not be written."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from clusterwatt.config.model import Ledger
from clusterwatt.ledger import gathering
from clusterwatt.ledger.faults import InUseError
from clusterwatt.ledger.keeper import Keeper
from clusterwatt.ledger.report import reader
from clusterwatt.ledger.rows import Rows
from clusterwatt.readings.work import (
    AccountCarbon,
    AccountCost,
    AccountEnergy,
    AccountMonth,
    JobCarbon,
    JobCost,
    JobEnergy,
    JobGpuTime,
    JobIdleCost,
    LedgerState,
    UnattributedCarbon,
    UnattributedCost,
    UnattributedEnergy,
    Unobserved,
)
from tests.clocks import FakeClock
from tests.ledger.batches import (
    ANSWERS_S,
    amounts,
    batch,
    commit,
    gpu_entry,
    host_entry,
    keeper,
    of,
    record,
    settle,
)

COST = amounts().energy_cost + amounts().gpu_cost  # type: ignore[operator] # both are known


@pytest.fixture
def books(path: Path, clock: FakeClock) -> Iterator[Keeper]:
    made = keeper(path, clock)
    yield made
    made.stop(5.0)


def joules(books: Keeper, job_id: str = "slurm/1") -> float | None:
    parts = [each.energy_joules for each in of(books, JobEnergy) if each.job_id == job_id]
    return sum(parts) if parts else None


def test_a_fresh_node_shows_what_nobody_uses_and_the_empty_account_at_0(books: Keeper) -> None:
    assert of(books, UnattributedEnergy) == [UnattributedEnergy(component="gpu", energy_joules=0.0)]
    assert of(books, AccountEnergy) == [AccountEnergy(account="", energy_joules=0.0)]
    assert of(books, Unobserved) == [Unobserved(unobserved_seconds=0.0)]
    assert of(books, LedgerState) == [LedgerState(None, None, 0.0)]
    recovered = books.recovered()
    assert recovered is not None
    assert (recovered.boot_id, recovered.committed_s, dict(recovered.baselines)) == ("", None, {})


def test_what_is_unknown_on_a_fresh_node_is_absent(books: Keeper) -> None:
    for kind in (UnattributedCarbon, UnattributedCost, AccountCarbon, AccountCost, AccountMonth, JobGpuTime):
        assert of(books, kind) == []


def test_totals_move_with_the_commit_and_not_before(books: Keeper, clock: FakeClock) -> None:
    settle(books)
    commit(books, clock, batch(clock, {gpu_entry(): amounts()}))
    assert joules(books) == 700.0
    books.take([batch(clock, {gpu_entry(): amounts()})])  # a commit is due at once
    settle(books)
    assert joules(books) == 1_400.0
    for _ in range(9):
        clock.advance(1.0)
        books.take([batch(clock, {gpu_entry(): amounts()})])
        settle(books)
        assert joules(books) == 1_400.0
    clock.advance(1.0)
    books.take([batch(clock, {gpu_entry(): amounts()})])
    settle(books)
    assert joules(books) == 8_400.0


def test_a_job_stands_at_0_before_it_moves(books: Keeper, clock: FakeClock) -> None:
    commit(books, clock, batch(clock, {gpu_entry("slurm/1"): amounts()}))
    books.take([batch(clock, {gpu_entry("slurm/1"): amounts()})], ["slurm/1"])
    settle(books)
    clock.advance(1.0)
    new = {
        gpu_entry("slurm/2", state="idle"): amounts(),
        host_entry("slurm/2", component="dram"): amounts(0.0),
    }
    books.take([batch(clock, new)], ["slurm/2"])
    settle(books)
    assert [each for each in of(books, JobEnergy) if each.job_id == "slurm/2"] == [
        JobEnergy("slurm/2", "gpu", "counter", 0.0),
        JobEnergy("slurm/2", "dram", "estimated", 0.0),
    ]
    assert JobGpuTime("slurm/2", 0.0, 0.0, 0.0, None) in of(books, JobGpuTime)
    assert JobCost("slurm/2", "EUR", "gpu", 0.0) in of(books, JobCost)
    assert JobIdleCost("slurm/2", "EUR", 0.0) in of(books, JobIdleCost)
    assert JobCarbon("slurm/2", 0.0) in of(books, JobCarbon)
    assert UnattributedEnergy("dram", 0.0) in of(books, UnattributedEnergy)
    assert UnattributedCost("EUR", "energy", 0.0) in of(books, UnattributedCost)


def test_a_job_without_any_booking_yet_stands_at_0_once_the_ledger_was_asked(
    books: Keeper, clock: FakeClock
) -> None:
    books.take((), ["slurm/9"])
    settle(books)
    assert of(books, JobGpuTime) == [JobGpuTime("slurm/9", 0.0, None, 0.0, None)]


def test_a_job_goes_on_from_its_committed_total_after_a_restart(path: Path, clock: FakeClock) -> None:
    first = keeper(path, clock)
    commit(first, clock, batch(clock, {gpu_entry(): amounts(0.1, joules=0.1)}, counter_joules=55.0))
    for _ in range(20):
        commit(first, clock, batch(clock, {gpu_entry(): amounts(0.1, joules=0.1)}, counter_joules=55.0))
    before = of(first, JobEnergy), of(first, JobCost), of(first, AccountCost), of(first, AccountMonth)
    assert first.stop(5.0)
    second = keeper(path, clock)
    recovered = second.recovered()
    assert recovered is not None
    assert recovered.boot_id == "boot-1"
    baseline = recovered.baselines["GPU-0"]
    assert (baseline.counter_joules, baseline.signal, baseline.held[0].job_id) == (55.0, "gpm", "slurm/1")
    after = of(second, JobEnergy), of(second, JobCost), of(second, AccountCost), of(second, AccountMonth)
    assert after == before  # to the last bit: a counter that fell by one would be counted anew
    second.stop(5.0)


def test_totals_of_a_job_that_was_there_stay_from_the_first_page_on(path: Path, clock: FakeClock) -> None:
    """Before any source has told again who is there; a commit meanwhile takes nothing away."""
    first = keeper(path, clock)
    commit(first, clock, batch(clock, {gpu_entry("slurm/1"): amounts(), gpu_entry("slurm/2"): amounts()}))
    ended = record("slurm/2", seen_s=clock.wall_s(), ended_s=clock.wall_s())
    commit(first, clock, batch(clock, {}, jobs=[ended]))
    first.stop(5.0)
    second = keeper(path, clock)
    assert (joules(second, "slurm/1"), joules(second, "slurm/2")) == (700.0, None)
    commit(second, clock, batch(clock, {gpu_entry(""): amounts()}, jobs=[]))
    assert joules(second, "slurm/1") == 700.0
    clock.advance(Ledger().linger_seconds)
    commit(second, clock, batch(clock, {gpu_entry(""): amounts()}, jobs=[]))
    assert joules(second, "slurm/1") is None
    second.stop(5.0)


def test_devices_that_are_gone_for_a_week_are_not_kept(path: Path, clock: FakeClock) -> None:
    first = keeper(path, clock)

    def book(device: str) -> None:
        made = batch(clock, {gpu_entry(): amounts(1.0)})
        commit(first, clock, msgspec.structs.replace(made, baselines={device: made.baselines["GPU-0"]}))

    book("MIG-old")
    clock.advance(6 * 86_400.0)
    book("GPU-away")
    clock.advance(2 * 86_400.0)
    commit(first, clock, msgspec.structs.replace(batch(clock, {}), baselines={}))
    book("GPU-0")
    assert first.stop(5.0)
    second = keeper(path, clock)
    recovered = second.recovered()
    assert recovered is not None
    assert set(recovered.baselines) == {"GPU-away", "GPU-0"}, "two days of silence are no end"
    second.stop(5.0)


def test_activity_is_absent_only_while_none_was_ever_observed(books: Keeper, clock: FakeClock) -> None:
    blind = amounts()
    blind.observed_seconds = blind.activity_seconds = 0.0
    commit(books, clock, batch(clock, {gpu_entry(): blind}))
    assert of(books, JobGpuTime)[0].activity_gpu_seconds is None
    commit(books, clock, batch(clock, {gpu_entry(): amounts()}))
    commit(books, clock, batch(clock, {gpu_entry(): blind}))
    assert of(books, JobGpuTime)[0].activity_gpu_seconds == 0.5


def test_a_finished_job_lingers_and_then_leaves_the_page(books: Keeper, clock: FakeClock) -> None:
    commit(books, clock, batch(clock, {gpu_entry("slurm/1"): amounts(), gpu_entry(""): amounts()}))
    for _ in range(4):  # minutes
        commit(books, clock, batch(clock, {gpu_entry(""): amounts()}))
    assert joules(books, "slurm/1") == 700.0
    for _ in range(2):
        commit(books, clock, batch(clock, {gpu_entry(""): amounts()}))
    assert joules(books, "slurm/1") is None
    assert AccountEnergy("physics", 700.0) in of(books, AccountEnergy)
    books.take((), ["slurm/1"])  # a unit or a user comes back under the same id
    settle(books)
    assert joules(books, "slurm/1") == 700.0


def test_accounts_months_and_nobody_add_up(books: Keeper, clock: FakeClock) -> None:
    entries = {
        gpu_entry("slurm/1"): amounts(),
        gpu_entry("slurm/2", account="biology", state="idle"): amounts(),
        gpu_entry("slurm/3", account=""): amounts(),
        gpu_entry(""): amounts(),
    }
    commit(books, clock, batch(clock, entries, unobserved_seconds=7.0))
    assert {each.account: each.energy_joules for each in of(books, AccountEnergy)} == {
        "": 1_400.0,
        "biology": 700.0,
        "physics": 700.0,
    }
    assert of(books, UnattributedEnergy) == [UnattributedEnergy("gpu", 700.0)]
    month = {each.account: each.cost for each in of(books, AccountMonth)}
    assert month["biology"] == pytest.approx(700 / 20e6 + 1 / 1_800)
    idle = {each.job_id: each.idle_cost for each in of(books, JobIdleCost)}
    assert idle == {"slurm/1": 0.0, "slurm/2": pytest.approx(month["biology"]), "slurm/3": 0.0}
    assert of(books, Unobserved) == [Unobserved(7.0)]
    (state,) = of(books, LedgerState)
    assert state.residual_joules == pytest.approx(0.0, abs=1e-6)
    assert state.commit_timestamp_seconds is not None


def test_the_residual_tells_what_the_books_are_off_by(books: Keeper, clock: FakeClock) -> None:
    import msgspec

    wrong = msgspec.structs.replace(batch(clock, {gpu_entry(): amounts()}), measured_joules=690.0)
    commit(books, clock, wrong)
    assert of(books, LedgerState)[0].residual_joules == pytest.approx(10.0)


def test_the_month_begins_anew_in_its_zone_and_a_budget_is_shown_without_money(path: Path) -> None:
    clock = FakeClock(wall_s=1_701_383_400.0)  # 2023-11-30 22:30 UTC, 23:30 in Berlin
    made = Keeper(
        Ledger(path=str(path)),
        clock,
        zone="Europe/Berlin",
        budgets={("physics", "EUR"): 500.0, ("law", "EUR"): 9.0},
    )
    made.wait(5.0)
    commit(made, clock, batch(clock, {gpu_entry(): amounts()}))
    assert AccountMonth("physics", "EUR", COST, 500.0) in of(made, AccountMonth)
    assert AccountMonth("law", "EUR", None, 9.0) in of(made, AccountMonth)
    clock.advance(1_800.0)
    assert AccountMonth("physics", "EUR", 0.0, 500.0) in of(made, AccountMonth)
    commit(made, clock, batch(clock, {gpu_entry(): amounts()}))
    assert AccountMonth("physics", "EUR", COST, 500.0) in of(made, AccountMonth)
    made.stop(5.0)


# --- When the ledger cannot be written -----------------------------------------------------------------


def fail_with(books: Keeper, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Have every commit fail inside its transaction."""

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(Rows, "write_totals", refuse)


def test_what_could_not_be_written_is_written_with_the_next(
    books: Keeper, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit(books, clock, batch(clock, {gpu_entry(): amounts()}))
    with monkeypatch.context() as failing:
        fail_with(books, failing, sqlite3.OperationalError("database or disk is full"))
        for _ in range(3):
            commit(books, clock, batch(clock, {gpu_entry(): amounts(), host_entry(): amounts(0.0, 10.0)}))
            assert joules(books) == 700.0
    assert of(books, LedgerState)[0].errors >= 3
    assert len([line for line in caplog.messages if "make room" in line]) == 1
    caplog.set_level(logging.INFO)
    commit(books, clock, batch(clock, {gpu_entry(): amounts()}))
    assert joules(books) == pytest.approx(5 * 700.0 + 3 * 10.0)
    assert of(books, LedgerState)[0].residual_joules == pytest.approx(0.0, abs=1e-6)
    assert any("written again" in line for line in caplog.messages)


def test_a_hung_disk_never_holds_up_the_loop(
    books: Keeper, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit(books, clock, batch(clock, {gpu_entry(): amounts()}))
    comes_back = threading.Event()
    write = Rows.write_totals

    def hang(*arguments: object) -> None:
        comes_back.wait(10.0)
        write(*arguments)  # type: ignore[arg-type] # passed through

    monkeypatch.setattr(Rows, "write_totals", hang)
    for _ in range(30):
        clock.advance(1.0)
        books.take([batch(clock, {gpu_entry(): amounts()})])
    assert joules(books) == 700.0
    assert any("does not answer" in line for line in caplog.messages)
    comes_back.set()
    settle(books)
    clock.advance(10.0)
    commit(books, clock)
    assert joules(books) == pytest.approx(31 * 700.0)


def test_a_bug_in_writing_does_not_lose_what_was_measured(
    books: Keeper, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as failing:
        fail_with(books, failing, ZeroDivisionError("slip"))
        commit(books, clock, batch(clock, {gpu_entry(): amounts()}))
    assert any("a bug of the agent" in line for line in caplog.messages)
    commit(books, clock, batch(clock, {gpu_entry(): amounts()}))
    assert joules(books) == 1_400.0


def test_too_much_that_waits_loses_hours_first_then_jobs_and_never_joules(clock: FakeClock) -> None:
    from clusterwatt.ledger.state import Payload

    waits = Payload()
    for hour in range(10):
        for number in range(6):
            entries = {gpu_entry(f"slurm/{number}"): amounts(), gpu_entry(""): amounts()}
            jobs = [record(f"slurm/{number}", seen_s=float(number))]
            gathering.add(waits, batch(clock, entries, hour_s=hour * 3_600, jobs=jobs))
    assert gathering.bound(waits, max_entries=70) == gathering.Loss()
    assert gathering.bound(waits, max_entries=10) == gathering.Loss(hours=9)
    assert list(waits.hours) == [9 * 3_600]
    assert len(waits.hours[9 * 3_600]) == 7
    assert gathering.bound(waits, max_entries=5) == gathering.Loss(jobs=3)
    assert waits.job_ids() == {"", "slurm/3", "slurm/4", "slurm/5"}  # those that were seen last
    total = sum(each.joules or 0.0 for _, each in gathering.entries(waits))
    assert total == pytest.approx(10 * 6 * 2 * 700.0)


def test_the_bound_is_told(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bound = gathering.bound
    monkeypatch.setattr(gathering, "bound", lambda payload: bound(payload, max_entries=3))
    path.parent.parent.joinpath("state").write_text("a file where a folder should be")
    made = keeper(path, clock)
    for number in range(8):
        made.take([batch(clock, {gpu_entry(f"slurm/{number}"): amounts()})])
    assert any("put together with what nobody is charged with" in line for line in caplog.messages)
    made.stop(5.0)


def test_a_ledger_that_comes_late_is_as_good(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.write_text("a file where a folder should be")
    made = keeper(path, clock)
    assert made.recovered() is None
    made.take([batch(clock, {gpu_entry(): amounts()})], ["slurm/1"])
    assert [type(each) for each in made.readings()] == [LedgerState]  # nothing durable before it has spoken
    assert of(made, LedgerState)[0].errors == 1
    assert any(str(path) in line and "ledger.path" in line for line in caplog.messages)
    path.parent.unlink()
    clock.advance(6.0)
    made.take(())
    settle(made)
    assert made.recovered() is not None
    commit(made, clock)
    assert joules(made) == 700.0
    made.stop(5.0)


def test_a_second_agent_on_the_same_ledger_is_refused(path: Path, clock: FakeClock) -> None:
    books = keeper(path, clock)
    second = Keeper(Ledger(path=str(path)), clock)
    with pytest.raises(InUseError, match=r"another agent \(pid \d+\) keeps this ledger"):
        second.wait(5.0)
    second.take([batch(clock, {gpu_entry(): amounts()})])
    assert books.stop(5.0)
    clock.advance(6.0)
    second.take(())
    settle(second)
    commit(second, clock, batch(clock, {gpu_entry(): amounts()}))
    assert joules(second) == 700.0  # what it saw beside the first is in the first one's books
    second.stop(5.0)


def test_the_end_writes_what_has_gathered(path: Path, clock: FakeClock) -> None:
    made = keeper(path, clock)
    commit(made, clock, batch(clock, {gpu_entry(): amounts()}))
    made.take([batch(clock, {gpu_entry(): amounts()})])
    settle(made)
    made.take([batch(clock, {gpu_entry(): amounts()})])
    assert joules(made) == 1_400.0
    assert made.stop(5.0)
    assert not Path(f"{path}-wal").exists()
    again = keeper(path, clock)
    again.take((), ["slurm/1"])
    settle(again)
    assert joules(again) == 2_100.0
    again.stop(5.0)


def test_the_end_writes_what_has_gathered_though_ends_are_still_to_be_told(
    path: Path, clock: FakeClock
) -> None:
    told: list[str] = []
    made = Keeper(Ledger(path=str(path)), clock, on_ended=told.extend)
    made.wait(ANSWERS_S)
    for job_id in ("slurm/1", "slurm/2"):  # the second is told at the end as well
        ended = [record(job_id, ended_s=clock.wall_s())]
        made.take([batch(clock, {gpu_entry(job_id): amounts()}, jobs=ended)])
        made._came_back.wait(ANSWERS_S)
    assert made.stop(5.0)
    assert sorted(told) == ["slurm/1", "slurm/2"]
    again = keeper(path, clock)
    assert sum(each.energy_joules for each in of(again, AccountEnergy)) == 1_400.0
    again.stop(5.0)


def test_old_hours_go_though_a_commit_is_due_at_every_tick(path: Path, clock: FakeClock) -> None:
    made = keeper(path, clock, commit_seconds=0.5, retention_days=1)
    commit(made, clock, batch(clock, {gpu_entry("slurm/1"): amounts()}))
    clock.advance(3 * 86_400.0)
    for _ in range(5):
        clock.advance(1_800.0)
        made.take([batch(clock, {gpu_entry("slurm/2"): amounts()})])
        assert made._came_back.wait(ANSWERS_S)
    made.stop(5.0)
    with reader(path) as books:
        assert [row.key for row in books.usage(0.0, 1e11)] == ["slurm/2"]
        assert books.info().booked_joules == pytest.approx(6 * 700.0)


def test_the_end_does_not_wait_for_a_disk_that_hangs(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = keeper(path, clock)
    comes_back = threading.Event()
    monkeypatch.setattr(Rows, "write_totals", lambda *_: comes_back.wait(10.0))
    made.take([batch(clock, {gpu_entry(): amounts()})])
    assert not made.stop(0.1)
    comes_back.set()


def test_a_clock_that_steps_back_takes_nothing_back(books: Keeper, clock: FakeClock) -> None:
    commit(books, clock, batch(clock, {gpu_entry(): amounts()}))
    clock.step_wall(-40 * 86_400.0)
    commit(books, clock, batch(clock, {gpu_entry(): amounts()}))
    clock.step_wall(40 * 86_400.0)
    commit(books, clock, batch(clock, {gpu_entry(): amounts()}))
    assert joules(books) == 2_100.0
    month = {each.account: each.cost for each in of(books, AccountMonth)}
    assert month["physics"] == pytest.approx(2 * (700 / 20e6 + 1 / 1_800))


def test_a_component_or_method_of_no_column_breaks_no_tick_and_books_close(
    books: Keeper, clock: FakeClock, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entries = {
        gpu_entry(): amounts(joules=100.0),
        gpu_entry("slurm/2", method="guessed"): amounts(joules=10.0),
        host_entry("slurm/2", component="nic"): amounts(0.0, joules=1.0),
        gpu_entry("slurm/3", method=""): amounts(joules=None),
    }
    commit(books, clock, batch(clock, entries))
    assert sorted((e.job_id, e.component, e.method, e.energy_joules) for e in of(books, JobEnergy)) == [
        ("slurm/1", "gpu", "counter", 100.0),
        ("slurm/2", "gpu", "estimated", 10.0),
        ("slurm/2", "other", "estimated", 1.0),
    ]
    (state,) = of(books, LedgerState)
    assert (state.residual_joules, state.errors) == (0.0, 2.0)
    assert len([line for line in caplog.messages if "no such component or method" in line]) == 1


def test_that_another_agent_keeps_it_is_said_by_one_alone(
    books: Keeper, path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    second = Keeper(Ledger(path=str(path)), clock)
    with pytest.raises(InUseError):
        second.wait(ANSWERS_S)
    assert caplog.messages == []
    second.take(())
    assert [line for line in caplog.messages if "another agent" in line] != []
    second.stop(5.0)


def test_jobs_whose_end_nobody_saw_are_recovered(path: Path, clock: FakeClock) -> None:
    first = keeper(path, clock)
    jobs = (record("slurm/1", seen_s=5.0, name="llm"), record("slurm/2", seen_s=4.0, ended_s=4.0))
    commit(first, clock, batch(clock, {gpu_entry(): amounts()}, jobs=jobs))
    first.stop(5.0)
    second = keeper(path, clock)
    recovered = second.recovered()
    assert recovered is not None
    assert recovered.jobs == jobs[:1]
    second.stop(5.0)
