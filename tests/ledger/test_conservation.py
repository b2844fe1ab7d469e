"""The books close: whatever fails and whenever the agent dies, what is booked is what was measured, once."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import fsum
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clusterwatt.attribution.entries import Amounts, Batch, Entry
from clusterwatt.ledger import gathering
from clusterwatt.ledger.keeper import Keeper
from clusterwatt.ledger.report import reader
from clusterwatt.readings.work import (
    AccountCost,
    AccountEnergy,
    JobCost,
    JobEnergy,
    JobGpuTime,
    LedgerState,
    UnattributedCost,
    UnattributedEnergy,
)
from tests.clocks import FakeClock
from tests.ledger.batches import MEMORY, batch, commit, keeper, of, settle

JOBS = ("", "slurm/1", "slurm/2", "unit/x.service")

numbers = st.floats(min_value=0.0, max_value=1e6, allow_subnormal=False)
unknown = st.none() | numbers


@st.composite
def entries(draw: st.DrawFn) -> tuple[Entry, Amounts]:
    job_id = draw(st.sampled_from(JOBS))
    component = draw(st.sampled_from(("gpu", "gpu", "cpu", "other")))
    gpu = component == "gpu"
    seconds = draw(numbers) if gpu else 0.0
    entry = Entry(
        job_id=job_id,
        account=draw(st.sampled_from(("", "physics"))) if job_id else "",
        device=draw(st.sampled_from(("GPU-0", "GPU-1"))) if gpu else "",
        gpu_name="H100" if gpu else "",
        component=component,
        state=draw(st.sampled_from(("active", "idle"))) if gpu else "",
        method="counter" if gpu else "estimated",
        currency=draw(st.sampled_from(("", "EUR"))),
    )
    priced = unknown if entry.currency else st.none()
    return entry, Amounts(
        gpu_seconds=seconds,
        observed_seconds=seconds,
        activity_seconds=seconds / 3,
        joules=draw(unknown),
        carbon_grams=draw(unknown),
        energy_cost=draw(priced),
        gpu_cost=draw(priced) if gpu else None,
    )


class Ledgers(RuleBasedStateMachine):
    """An agent that books, fails, dies and comes back; beside it what was measured, simply added up."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.clock = FakeClock()
        self.lives = 0
        self.committed: list[Batch] = []
        self.waiting: list[Batch] = []
        self.highest: dict[tuple[object, ...], float] = {}

    @initialize()
    def begin(self) -> None:
        self.path = self.folder / "0" / "ledger.db"
        self.books = keeper(self.path, self.clock, linger_seconds=86_400)

    @rule(several=st.lists(entries(), max_size=6), step_s=st.sampled_from((1.0, 2.0, 30.0, 4_000.0)))
    def book(self, several: list[tuple[Entry, Amounts]], step_s: float) -> None:
        self.clock.advance(step_s)
        merged: dict[Entry, Amounts] = {}
        for entry, amounts in several:
            if entry in merged:
                merged[entry].add(amounts)
            else:
                merged[entry] = amounts
        made = batch(self.clock, merged, unobserved_seconds=1.0)
        self.waiting.append(made)
        self.books.take([made])
        settle(self.books)
        self.note()

    @rule()
    def write(self) -> None:
        commit(self.books, self.clock, held=JOBS[1:])
        self.note()
        assert not self.waiting

    @rule(several=st.lists(entries(), min_size=1, max_size=6), after=st.integers(1, 400))
    def fail_within_a_transaction(self, several: list[tuple[Entry, Amounts]], after: int) -> None:
        with interrupted(self.books, after):
            self.book(several, 30.0)

    @rule(several=st.lists(entries(), min_size=1, max_size=6))
    def fail_for_want_of_room(self, several: list[tuple[Entry, Amounts]]) -> None:
        with no_room(self.books):
            self.book(several, 30.0)

    @rule(step_s=st.sampled_from((-90_000.0, -1.0, 7_200.0)))
    def step_the_clock(self, step_s: float) -> None:
        self.clock.step_wall(step_s)

    @rule()
    def die_and_come_back(self) -> None:
        """Power is lost: of the files there is what was written, and of memory nothing."""
        self.lives += 1
        there = self.folder / str(self.lives)
        shutil.copytree(self.path.parent, there)
        dead, self.path = self.books, there / "ledger.db"
        self.books = keeper(self.path, self.clock, linger_seconds=86_400)
        dead.stop(5.0)
        self.waiting = []
        self.books.take((), JOBS[1:])
        settle(self.books)

    @precondition(lambda self: self.waiting)
    @rule()
    def end_and_come_back(self) -> None:
        assert self.books.stop(5.0)
        self.committed += self.waiting
        self.waiting = []
        self.books = keeper(self.path, self.clock, linger_seconds=86_400)
        self.books.take((), JOBS[1:])
        settle(self.books)

    @invariant()
    def books_close(self) -> None:
        measured = fsum(each.measured_joules for each in self.committed)
        jobs = [each.energy_joules for each in of(self.books, JobEnergy)]
        rest = [each.energy_joules for each in of(self.books, UnattributedEnergy)]
        assert close(fsum(jobs + rest), measured)
        assert close(fsum(each.energy_joules for each in of(self.books, AccountEnergy)), measured)
        (state,) = of(self.books, LedgerState)
        assert state.residual_joules is None or abs(state.residual_joules) <= 1e-9 * max(measured, 1.0)
        money = fsum(
            (each.energy_cost or 0.0) + (each.gpu_cost or 0.0)
            for made in self.committed
            for each in made.entries.values()
        )
        of_jobs = [each.cost for each in of(self.books, JobCost)]
        of_nobody = [each.cost for each in of(self.books, UnattributedCost)]
        assert close(fsum(of_jobs + of_nobody), money)
        assert close(fsum(each.cost for each in of(self.books, AccountCost)), money)
        seconds = fsum(
            each.gpu_seconds
            for made in self.committed
            for entry, each in made.entries.items()
            if entry.job_id
        )
        assert close(fsum(each.gpu_seconds for each in of(self.books, JobGpuTime)), seconds)

    @invariant()
    def the_hours_say_the_same(self) -> None:
        with reader(self.path) as books:
            whole = books.usage(0.0, 1e11)
            rest = books.unattributed(0.0, 1e11)
            by_hour = [
                joules
                for (joules,) in books._connection.execute("SELECT joules FROM usage WHERE joules NOT NULL")
            ]
        measured = fsum(each.measured_joules for each in self.committed)
        assert close(fsum(by_hour), measured)
        assert close(fsum(joules for row in (*whole, rest) for _, _, joules in row.totals.energy()), measured)

    @invariant()
    def nothing_falls_and_nothing_is_negative(self) -> None:
        for reading in self.books.readings():
            if isinstance(reading, JobEnergy | UnattributedEnergy | AccountEnergy | JobCost | AccountCost):
                *labels, value = (getattr(reading, name) for name in reading.__struct_fields__)
                key = (type(reading).__name__, *labels)
                assert value >= self.highest.get(key, 0.0)
                self.highest[key] = value

    def note(self) -> None:
        """What the keeper says is on disk counts as committed from now on."""
        if not self.books._gathered.wall_s:
            self.committed += self.waiting
            self.waiting = []

    def teardown(self) -> None:
        self.books.stop(5.0)
        shutil.rmtree(self.folder)


def close(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-9 * max(abs(one), abs(other), 1.0)


@contextmanager
def wrapped(books: Keeper, before: Any, after: Any) -> Iterator[None]:
    """Have something done to the connection around every commit, on its own thread."""
    write = books._store.commit

    def around(*arguments: Any) -> Any:
        assert books._store._rows is not None
        before(books._store._rows.connection)
        try:
            return write(*arguments)
        finally:
            after(books._store._rows.connection)

    with mock.patch.object(books._store, "commit", around):
        yield


@contextmanager
def interrupted(books: Keeper, after: int) -> Iterator[None]:
    """SQLite gives up within a transaction, after so many of its instructions."""
    with wrapped(
        books,
        lambda connection: connection.set_progress_handler(lambda: 1, after),
        lambda connection: connection.set_progress_handler(None, 0),
    ):
        yield


@contextmanager
def no_room(books: Keeper) -> Iterator[None]:
    """The file may not grow."""

    def limit(connection: sqlite3.Connection) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages:d}")

    with wrapped(books, limit, lambda connection: connection.execute("PRAGMA max_page_count = 1073741823")):
        yield


TestLedgers = Ledgers.TestCase
TestLedgers.settings = settings(
    max_examples=15,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), entries()), max_size=40), st.integers(1, 20))
def test_putting_together_loses_nothing(booked: list[tuple[int, tuple[Entry, Amounts]]], most: int) -> None:
    from clusterwatt.ledger.state import Payload

    clock, waits = FakeClock(), Payload()
    for hour, (entry, amounts) in booked:
        gathering.add(waits, batch(clock, {entry: amounts}, hour_s=hour * 3_600))
        gathering.bound(waits, max_entries=most, max_jobs=2)
    joules = fsum(each.joules or 0.0 for _, (_, each) in booked)
    assert close(fsum(each.joules or 0.0 for _, each in gathering.entries(waits)), joules)
    assert close(waits.measured_joules, joules)
