"""The ledger's file: made for its owner only, set aside when it is no ledger, emptied from its old end."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusterwatt.attribution.entries import JobRecord
from clusterwatt.ledger import gathering, migrations, store
from clusterwatt.ledger.faults import InUseError, LedgerError
from clusterwatt.ledger.reading import backup
from clusterwatt.ledger.report import reader
from clusterwatt.ledger.rows import JOB_COLUMNS
from clusterwatt.ledger.state import Payload, State
from clusterwatt.ledger.store import Store
from clusterwatt.readings.work import Job
from tests.clocks import FakeClock
from tests.ledger.batches import amounts, batch, gpu_entry, host_entry

HOUR_S = 3_600
MONTH = "2023-11"
EVER = (0.0, 1e11)


@pytest.fixture
def books(path: Path, clock: FakeClock) -> Iterator[Store]:
    made = Store(path, clock)
    yield made
    made.close()


def month_of(_: int) -> str:
    return MONTH


def payload(clock: FakeClock, job_id: str = "slurm/1", *, hour_s: int | None = None) -> Payload:
    made = Payload()
    gathering.add(made, batch(clock, {gpu_entry(job_id): amounts(), gpu_entry(""): amounts()}, hour_s=hour_s))
    return made


def begun(books: Store, clock: FakeClock) -> State:
    """A ledger with one commit in it."""
    state, _ = books.open(MONTH)
    return books.commit(state, payload(clock), (), month_of)


def test_file_and_folder_are_their_owners_only(books: Store, path: Path, clock: FakeClock) -> None:
    begun(books, clock)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_commit_is_synced_to_disk(books: Store, clock: FakeClock) -> None:
    begun(books, clock)
    assert books._rows is not None
    ask = books._rows.connection.execute
    assert ask("PRAGMA journal_mode").fetchone() == ("wal",)
    assert ask("PRAGMA synchronous").fetchone() == (2,)  # FULL (sqlite.org/pragma.html)
    assert ask("PRAGMA application_id").fetchone() == (migrations.APPLICATION_ID,)


def test_every_field_of_a_job_is_kept(books: Store, path: Path, clock: FakeClock) -> None:
    state, _ = books.open(MONTH)
    assert Job.__struct_fields__ == JOB_COLUMNS
    texts = {name: f"text {name}" for name in JOB_COLUMNS[:-2]}
    job = Job(**texts, started_s=12.5, exempt=True)
    made = payload(clock, job.job_id)
    made.jobs[job.job_id] = known = JobRecord(job, 1.0, 2.0, 3.0)
    books.commit(state, made, (), month_of)
    with reader(path) as report:
        row = report.job(job.job_id)
        assert row is not None
        assert row.record == known


# --- What is no ledger ---------------------------------------------------------------------------------


def corrupt(path: Path) -> None:
    """Write over pages in the middle of the file."""
    with path.open("r+b") as file:
        file.seek(4_096)
        file.write(b"\xa5" * (path.stat().st_size - 4_096))


def scribble(path: Path) -> None:
    path.write_bytes(b"this is not a database at all, but it is long enough to be one\n" * 99)


def foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE other (thing)")
    connection.close()


def newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {migrations.newest() + 1}")
    connection.close()


def without_a_table(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE account")
    connection.close()


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        (corrupt, "damaged"),
        (scribble, "damaged"),
        (foreign, "foreign"),
        (newer, "newer"),
        (without_a_table, "damaged"),
    ],
)
def test_what_is_no_ledger_is_set_aside_and_a_new_one_begun(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture, harm: object, word: str
) -> None:
    first = Store(path, clock)
    begun(first, clock)
    first.close()
    assert callable(harm)
    harm(path)
    second = Store(path, clock)
    state, recovered = second.open(MONTH)
    assert (state.node.commits, recovered.committed_s) == (0, None)
    state = second.commit(state, payload(clock), (), month_of)
    assert state.booked_joules() == 1_400.0
    second.close()
    assert [file.name for file in path.parent.glob("*.db.*-*")] == [f"ledger.db.{word}-20231114T221320Z"]
    (line,) = caplog.messages
    assert str(path) in line
    assert "set aside as" in line


def test_damage_under_way_costs_no_total_that_is_shown(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    books = Store(path, clock)
    state = begun(books, clock)
    books._rows.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr] # it is open
    corrupt(path)
    books._rows.connection.execute("PRAGMA shrink_memory")  # type: ignore[union-attr] # forget the pages
    state = books.commit(state, payload(clock), (), month_of)
    assert state.booked_joules() == 2_800.0
    books.close()
    assert len(list(path.parent.glob("*.damaged-*"))) == 1
    other = Store(path, clock)
    again, _ = other.open(MONTH)
    assert again.booked_joules() == 2_800.0
    assert again.accounts == state.accounts
    assert again.jobs[""] == state.jobs[""]
    other.close()


def test_a_disk_that_damages_every_file_is_not_filled_with_them(path: Path, clock: FakeClock) -> None:
    books = Store(path, clock)
    for _ in range(2):
        path.parent.mkdir(exist_ok=True)
        scribble(path)
        for helper in ("-wal", "-shm"):
            Path(f"{path}{helper}").unlink(missing_ok=True)
        try:
            books.open(MONTH)
        except LedgerError as error:
            assert "look at the disk" in str(error)  # noqa: PT017 - which of the two fails is the point
            break
        books._disconnect()
    else:
        raise AssertionError("set aside twice within a minute")
    books.close()


def test_a_file_that_was_taken_away_is_begun_again_with_all_totals(
    books: Store, path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    state = begun(books, clock)
    for file in path.parent.iterdir():
        if file.suffix != ".lock":
            file.unlink()
    state = books.commit(state, payload(clock), (), month_of)
    assert state.booked_joules() == 2_800.0
    assert any("taken away" in line for line in caplog.messages)
    with reader(path) as report:
        assert report.info().booked_joules == 2_800.0
        row = report.job("slurm/1")
        assert row is not None
        assert row.totals.gpu_counter_joules == 1_400.0


def test_that_another_file_was_put_in_its_place_is_said_as_it_is(
    books: Store, path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    state = begun(books, clock)
    other = Store(path.with_name("other.db"), clock)
    other.open(MONTH)
    other.close()
    path.with_name("other.db").replace(path)
    books.commit(state, payload(clock), (), month_of)
    (said,) = [line for line in caplog.messages if "taken away" in line]
    assert said.endswith("another was put in its place and is used")


# --- Who may use it ------------------------------------------------------------------------------------


def test_one_agent_at_a_time(books: Store, path: Path, clock: FakeClock) -> None:
    begun(books, clock)
    with pytest.raises(
        InUseError, match=rf"pid {os.getpid()}\) keeps this ledger; end it, or .* ledger\.path"
    ):
        Store(path, clock).open(MONTH)
    books.close()
    other = Store(path, clock)
    assert other.open(MONTH)[0].booked_joules() == 1_400.0
    other.close()


def test_a_path_that_is_a_folder_is_named(tmp_path: Path, clock: FakeClock) -> None:
    with pytest.raises(LedgerError, match="expected a plain file, found a directory"):
        Store(tmp_path, clock).open(MONTH)


def test_somebody_elses_transaction_is_told_and_outlasted(
    books: Store, path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "BUSY_S", 0.05)
    state = begun(books, clock)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="another program holds a transaction open"):
        books.commit(state, payload(clock), (), month_of)
    other.execute("ROLLBACK")
    other.close()
    assert books.commit(state, payload(clock), (), month_of).booked_joules() == 2_800.0


def test_what_could_not_be_rolled_back_does_not_hold_up_the_next_commit(
    books: Store, path: Path, clock: FakeClock
) -> None:
    """A commit fails within its transaction, and so does its way back: it is taken before the next one."""
    state = begun(books, clock)
    assert books._rows is not None
    books._rows.connection.execute("BEGIN IMMEDIATE")
    books._rows.connection.execute("DELETE FROM job")
    assert books.commit(state, payload(clock), (), month_of).booked_joules() == 2_800.0
    with reader(path) as report:
        assert report.job("slurm/1") is not None


class Stuck:
    """A connection in a transaction, whose way back fails."""

    in_transaction = True

    def __init__(self, connection: sqlite3.Connection, error: sqlite3.DatabaseError) -> None:
        self.close = connection.close
        self._error = error

    def execute(self, *_: object) -> None:
        raise self._error


@pytest.mark.parametrize("damage", [True, False])
def test_a_way_back_that_keeps_failing_costs_its_connection(
    books: Store, path: Path, clock: FakeClock, *, damage: bool
) -> None:
    state = begun(books, clock)
    assert books._rows is not None
    error = sqlite3.DatabaseError("malformed") if damage else sqlite3.OperationalError("disk I/O error")
    books._rows.connection = Stuck(books._rows.connection, error)  # type: ignore[assignment]  # stands in
    if not damage:
        with pytest.raises(LedgerError):
            books.commit(state, payload(clock), (), month_of)
        books.prune(1.0, 1, ())
    assert books.commit(state, payload(clock), (), month_of).booked_joules() == 2_800.0
    assert bool(list(path.parent.glob("*.damaged-*[Z]"))) is damage


def test_readers_and_the_writer_do_not_wait_for_each_other(
    books: Store, path: Path, clock: FakeClock
) -> None:
    state = begun(books, clock)
    with reader(path) as report:
        before = report.usage(*EVER)
        books.commit(state, payload(clock), (), month_of)
        assert report.usage(*EVER) == before  # all answers are of one moment
    with reader(path) as report:
        assert report.usage(*EVER) != before


def test_a_reader_changes_nothing(books: Store, path: Path, clock: FakeClock) -> None:
    begun(books, clock)
    with pytest.raises(LedgerError, match="readonly"), reader(path) as report:
        report._connection.execute("DELETE FROM job")


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A ledger in a folder that everybody may enter and only its owner may write to."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder / "ledger.db"
    shutil.rmtree(folder)


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="this machine's user is not root, who alone can act as somebody else"
)


@needs_root
@pytest.mark.parametrize("agent_runs", [True, False])
def test_a_ledger_in_a_folder_that_may_not_be_written_can_be_read(
    public_path: Path, clock: FakeClock, agent_runs: bool
) -> None:
    books = Store(public_path, clock)
    begun(books, clock)
    if not agent_runs:
        books.close()
    for file in public_path.parent.iterdir():
        file.chmod(0o644)
    with as_nobody(), reader(public_path) as report:
        assert report.info().booked_joules == 1_400.0
    books.close()


@needs_root
@pytest.mark.parametrize("folder_mode", [0o755, 0o700])
def test_somebody_who_may_not_read_it_is_told_what_to_do(
    public_path: Path, clock: FakeClock, folder_mode: int
) -> None:
    books = Store(public_path, clock)
    begun(books, clock)
    public_path.parent.chmod(folder_mode)
    with (
        as_nobody(),
        pytest.raises(LedgerError, match="ask as the user that the agent runs as"),
        reader(public_path),
    ):
        pass
    books.close()


@needs_root
def test_a_folder_that_may_not_be_written_is_named(public_path: Path, clock: FakeClock) -> None:
    with as_nobody(), pytest.raises(LedgerError, match=r"let user 65534 write to .*, or set ledger\.path"):
        Store(public_path, clock).open(MONTH)


def test_a_pipe_in_its_place_is_named_and_not_waited_for(path: Path, clock: FakeClock) -> None:
    path.parent.mkdir()
    os.mkfifo(path)
    books = Store(path, clock)
    with pytest.raises(LedgerError, match=r"expected a plain file, found a pipe or device; .*ledger\.path"):
        books.open(MONTH)
    books.close()


@pytest.mark.parametrize("harm", [scribble, foreign, newer])
def test_a_reader_says_why_it_cannot_read(path: Path, clock: FakeClock, harm: object) -> None:
    with pytest.raises(LedgerError, match="there is no ledger"), reader(path):
        pass
    books = Store(path, clock)
    begun(books, clock)
    books.close()
    assert callable(harm)
    harm(path)
    with pytest.raises(LedgerError, match=str(path)), reader(path):
        pass


# --- Copies --------------------------------------------------------------------------------------------


def test_a_backup_beside_the_writer_is_a_whole_ledger(books: Store, path: Path, clock: FakeClock) -> None:
    state = begun(books, clock)
    copy = path.parent / "copy.db"
    assert backup(path, copy, force=False) == copy.stat().st_size
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    books.commit(state, payload(clock), (), month_of)
    with reader(copy) as report:
        assert report.info().booked_joules == 1_400.0
    with pytest.raises(LedgerError, match="--force"):
        backup(path, copy, force=False)
    backup(path, copy, force=True)
    restored = Store(copy, clock)
    assert restored.open(MONTH)[0].booked_joules() == 2_800.0
    restored.close()
    assert not list(path.parent.glob("*.part*"))


def test_a_backup_to_nowhere_says_so(books: Store, path: Path, clock: FakeClock) -> None:
    begun(books, clock)
    with pytest.raises(LedgerError, match="cannot be written"):
        backup(path, path.parent / "missing" / "copy.db", force=False)


# --- Retention -----------------------------------------------------------------------------------------


def grown(books: Store, clock: FakeClock, hours: int) -> State:
    """A job an hour, each over by the next, and one that goes on."""
    state, _ = books.open(MONTH)
    for number in range(hours):
        clock.advance(HOUR_S)
        made = payload(clock, f"slurm/{number}")
        gathering.add(made, batch(clock, {host_entry("unit/long"): amounts(0.0, 5.0)}))
        state = books.commit(state, made, (), month_of)
    return state


def test_retention_removes_old_hours_and_jobs_and_changes_no_total(
    books: Store, path: Path, clock: FakeClock
) -> None:
    state = grown(books, clock, 72)
    live = {"", "unit/long", "slurm/71"}
    assert not books.prune(1.0, 1 << 40, live)
    with reader(path) as report:
        info = report.info()
        assert info.kept_from_s is not None
        assert info.first_hour_s is not None
        assert clock.wall_s() - 86_400 - HOUR_S <= info.first_hour_s <= clock.wall_s() - 86_400 + HOUR_S
        assert info.jobs == 26  # of the last day, and the one that goes on
        assert info.booked_joules == pytest.approx(72 * 1_405.0)
        row = report.job("unit/long")
        assert row is not None
        assert row.totals.cpu_estimated_joules == pytest.approx(72 * 5.0)
    books.close()
    again = Store(path, clock)
    after, _ = again.open(MONTH)
    assert after.accounts == state.accounts
    assert after.jobs[""] == state.jobs[""]
    assert after.months == {MONTH: state.months[MONTH]}
    again.close()


def test_a_job_that_was_removed_can_come_back(books: Store, clock: FakeClock) -> None:
    state = grown(books, clock, 72)
    books.prune(1.0, 1 << 40, {""})
    state = State(node=state.node, jobs={"": state.jobs[""]}, accounts=state.accounts, months=state.months)
    state = books.commit(state, payload(clock, "slurm/0"), (), month_of)
    assert state.jobs["slurm/0"]["physics", "EUR"].gpu_counter_joules == 700.0


def test_the_size_limit_removes_the_oldest_hours(books: Store, path: Path, clock: FakeClock) -> None:
    grown(books, clock, 200)
    with reader(path) as report:
        before = report.info()
    limit = before.bytes_used // 2
    while books.prune(400.0, limit, {""}):
        pass
    with reader(path) as report:
        info = report.info()
        assert info.bytes_used <= limit
        assert info.last_hour_s == before.last_hour_s
        assert info.booked_joules == before.booked_joules


def test_a_clock_far_ahead_removes_little(books: Store, path: Path, clock: FakeClock) -> None:
    grown(books, clock, 100)
    clock.step_wall(20 * 365 * 86_400.0)
    assert not books.prune(400.0, 1 << 40, {""})  # the rest waits for the next hour
    with reader(path) as report:
        assert report.info().jobs >= 50
