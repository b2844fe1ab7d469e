"""The ledger's file: SQLite in WAL mode, one transaction for each commit, one writer, any number of readers.

What cannot be used as a ledger (damaged, of another program, of a newer version) is set aside under another
name, and a new file is begun: measuring never waits for a repair. A file beside it is locked for as long as
an agent writes (flock(2)), for SQLite itself would let two agents take turns.

https://www.sqlite.org/wal.html, https://www.sqlite.org/howtocorrupt.html
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from clusterwatt.attribution.entries import NOBODY, Baseline, Entry, Held, JobRecord
from clusterwatt.clock import Clock
from clusterwatt.ledger import migrations
from clusterwatt.ledger.state import (
    AccountTotals,
    Change,
    JobRows,
    NodeRow,
    Payload,
    Recovered,
    State,
    account_of,
    booked,
    everything,
)
from clusterwatt.ledger.totals import COLUMNS, Totals
from clusterwatt.readings.work import Job

log = logging.getLogger("clusterwatt.ledger")

Connection = sqlite3.Connection

BUSY_S = 5.0
WAL_KEPT_BYTES = 4 << 20
ASIDE_EVERY_S = 600.0  # a disk that damages every file must not fill up with them
KNOWN_ENTRIES = 20_000
HOUR_S = 3_600
DAY_S = 86_400
PRUNED_HOURS = 48  # at most, at once: a transaction stays short, and a clock that is wrong does little harm
PRUNED_JOBS = 2_000

JOB_COLUMNS = (
    "job_id", "scheduler", "kind", "name", "user", "uid", "account", "partition", "queue", "array_job",
    "array_task", "k8s_namespace", "k8s_owner", "k8s_owner_kind", "started_s", "exempt",
)  # fmt: skip
AMOUNTS = (
    "gpu_seconds", "unobserved_seconds", "observed_seconds", "activity_seconds", "tensor_observed_seconds",
    "tensor_seconds", "joules", "carbon_grams", "energy_cost", "gpu_cost",
)  # fmt: skip


class LedgerError(Exception):
    """The ledger cannot be used now. One line: what is wrong, and the remedy. `state` is a short word."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state = state


class InUseError(LedgerError):
    """Another agent keeps this ledger."""


class _UnusableError(Exception):
    """The file is no ledger of this version: damaged, foreign, newer."""

    def __init__(self, word: str, detail: str) -> None:
        super().__init__(detail)
        self.word = word


class Store:
    """The only writer. Belongs to one thread; every method may block, and raises LedgerError."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._lock: int | None = None
        self._connection: Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._new = False  # the file misses totals that are in memory
        self._aside_s: float | None = None
        self._jobs: dict[str, int] = {}
        self._entries: dict[Entry, int] = {}

    def open(self, month: str) -> tuple[State, Recovered]:
        """Open the ledger, or begin one; returns what it holds, with the money of one month."""
        with self._failing("opened"):
            try:
                return self._open(month)
            except _UnusableError as error:
                self._set_aside(error)
                return self._open(month)

    def commit(
        self, state: State, payload: Payload | None, wanted: Collection[str], month_of: Callable[[int], str]
    ) -> State:
        """Look up the jobs that are wanted, write a payload (None: nothing); returns the state after it.

        The payload is on disk when this returns, and not at all when it raises.
        """
        with self._failing("written"):
            self._follow_file()
            try:
                return self._commit(state, payload, wanted, month_of)
            except sqlite3.DatabaseError as error:
                if not damaged(error):
                    raise
                self._set_aside(_UnusableError("damaged", str(error)))
                self._follow_file()
                return self._commit(state, payload, wanted, month_of)

    def prune(self, retention_days: float, max_bytes: int, live: Collection[str]) -> bool:
        """Remove what is too old or too much, a little at a time; True while there is more to remove.

        Totals of accounts, of nobody and of the jobs that are `live` stay as they are.
        """
        with self._failing("written"):
            assert self._connection is not None
            cutoff_s = int((self._clock.wall_s() - retention_days * DAY_S) // HOUR_S) * HOUR_S
            oldest_s, newest_s = self._connection.execute(
                "SELECT MIN(hour_s), MAX(hour_s) FROM usage"
            ).fetchone()
            if oldest_s is None:
                return False
            # The hour that is being written stays, whatever the limit.
            before_s = min(cutoff_s, oldest_s + PRUNED_HOURS * HOUR_S)
            if self._bytes_used() > max_bytes:
                before_s = max(before_s, oldest_s + PRUNED_HOURS * HOUR_S)
            before_s = min(before_s, newest_s)
            if before_s <= oldest_s:
                return False
            with self._transaction() as connection:
                self._remove(connection, before_s, live)
            return self._bytes_used() > max_bytes or cutoff_s > before_s

    def close(self) -> None:
        """Let go of file and lock."""
        self._disconnect()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # --- Opening ---------------------------------------------------------------------------------------

    def _open(self, month: str) -> tuple[State, Recovered]:
        self._take_lock()
        connection = self._connect()
        try:
            state = State(
                node=self._node(connection),
                jobs={NOBODY: self._rows(connection, NOBODY)},
                accounts={
                    (account, currency): AccountTotals(*columns)
                    for account, currency, *columns in connection.execute(
                        "SELECT account, currency, joules, carbon_grams, energy_cost, gpu_cost FROM account"
                    )
                },
                months={month: self._month(connection, month)},
            )
            baselines = {
                device: Baseline(
                    counter_joules=joules,
                    read_wall_s=read_s,
                    signal=signal,
                    held=tuple(
                        Held(*one) for one in msgspec.json.decode(held, type=list[tuple[str, str, float]])
                    ),
                )
                for device, joules, read_s, signal, held in connection.execute(
                    "SELECT device, counter_joules, read_s, signal, held FROM baseline"
                )
            }
        except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
            if isinstance(error, sqlite3.Error) and not damaged(error):
                raise
            raise _UnusableError("damaged", str(error)) from None
        return state, Recovered(state.node.boot_id, state.node.committed_s, baselines)

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(lock, 32, 0).decode(errors="replace").strip()
            os.close(lock)
            raise InUseError(
                "in_use",
                f"{self._path}: another agent{f' (pid {pid})' if pid.isdecimal() else ''} keeps this ledger; "
                "end it, or give this one its own with ledger.path",
            ) from None
        except OSError:
            os.close(lock)
            raise
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def _connect(self) -> Connection:
        """The connection; makes file and tables where there are none. Raises _UnusableError."""
        if self._connection is not None:
            return self._connection
        with contextlib.suppress(FileExistsError):  # SQLite would make it readable for others
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
        try:
            check_kind(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES:d}")
            migrations.apply(connection)
            connection.execute(
                "INSERT OR IGNORE INTO node (one, began_s) VALUES (1, ?)", (self._clock.wall_s(),)
            )
            found = os.stat(self._path)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.DatabaseError) and damaged(error):
                raise _UnusableError("damaged", str(error)) from None
            raise
        self._connection, self._identity = connection, (found.st_dev, found.st_ino)
        self._jobs, self._entries = {NOBODY: 0}, {}
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(
                sqlite3.Error
            ):  # the last one out copies the WAL; else the next one does
                self._connection.close()
            self._connection = None

    def _follow_file(self) -> None:
        """Notice that the file was taken away, and have one again, to which memory is to be written."""
        if self._connection is not None and self._was_taken_away():
            log.warning("%s: the file was taken away; a new one is begun", self._path)
            self._disconnect()
        if self._connection is None:
            self._new = True
            self._take_lock()
            try:
                self._connect()
            except _UnusableError as error:
                self._set_aside(error)
                self._connect()

    def _was_taken_away(self) -> bool:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return True
        return (found.st_dev, found.st_ino) != self._identity

    def _set_aside(self, why: _UnusableError) -> None:
        """Rename the file, with its WAL, so that a new one can be begun."""
        now_s = self._clock.monotonic_s()
        self._disconnect()
        if self._aside_s is not None and now_s - self._aside_s < ASIDE_EVERY_S:
            raise LedgerError("damaged", f"{self._path}: {why}, again; look at the disk below it") from None
        self._aside_s = now_s
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._clock.wall_s()))
        aside = Path(f"{self._path}.{why.word}-{at}")
        number = 1
        while aside.exists():
            number += 1
            aside = Path(f"{self._path}.{why.word}-{at}-{number}")
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{self._path}{suffix}", f"{aside}{suffix}")
        log.error(
            "%s: %s; set aside as %s, a new ledger is begun. Totals of jobs that are over are only in there",
            self._path,
            why,
            aside,
        )

    # --- Reading ---------------------------------------------------------------------------------------

    def _node(self, connection: Connection) -> NodeRow:
        return NodeRow(
            *connection.execute(
                "SELECT commits, committed_s, boot_id, unobserved_seconds, measured_joules FROM node"
            ).fetchone()
        )

    def _rows(self, connection: Connection, job_id: str) -> JobRows:
        return {
            (account, currency): Totals(*columns)
            for account, currency, *columns in connection.execute(
                f"SELECT total.account, currency, {', '.join(COLUMNS)} "
                "FROM job JOIN total ON total.job = job.number WHERE job_id = ?",
                (job_id,),
            )
        }

    def _month(self, connection: Connection, month: str) -> Mapping[tuple[str, str], float]:
        return {
            (account, currency): cost
            for account, currency, cost in connection.execute(
                "SELECT account, currency, cost FROM account_month WHERE month = ?", (month,)
            )
        }

    def _bytes_used(self) -> int:
        assert self._connection is not None
        ask = self._connection.execute
        pages, free, size = (
            ask(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    # --- Writing ---------------------------------------------------------------------------------------

    def _commit(
        self, state: State, payload: Payload | None, wanted: Collection[str], month_of: Callable[[int], str]
    ) -> State:
        assert self._connection is not None
        jobs = {*wanted, *(payload.job_ids() if payload else ())} - state.jobs.keys()
        months = {month_of(hour_s) for hour_s in payload.hours} - state.months.keys() if payload else set()
        state = msgspec.structs.replace(
            state,
            jobs={**state.jobs, **{job_id: self._rows(self._connection, job_id) for job_id in jobs}},
            months={**state.months, **{month: self._month(self._connection, month) for month in months}},
        )
        if payload is None and not self._new:
            return state
        with self._transaction() as connection:
            change = everything(state)
            if payload is not None:
                moved = booked(state, payload, month_of)
                change = everything(moved.state) if self._new else moved
                self._write_jobs(connection, payload)
                self._write_usage(connection, payload)
                self._write_baselines(connection, payload.baselines)
            self._write_totals(connection, change)
        self._new = False
        return change.state

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Connection]:
        connection = self._connection
        assert connection is not None
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            # Numbers of rows that were rolled back may be given to others.
            self._jobs, self._entries = {NOBODY: 0}, {}
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise

    def _write_jobs(self, connection: Connection, payload: Payload) -> None:
        for job_id in sorted(payload.job_ids()):
            if job_id not in self._jobs:
                connection.execute("INSERT OR IGNORE INTO job (job_id) VALUES (?)", (job_id,))
                (self._jobs[job_id],) = connection.execute(
                    "SELECT number FROM job WHERE job_id = ?", (job_id,)
                ).fetchone()
        connection.executemany(UPDATE_JOB, [_job_row(record) for record in payload.jobs.values()])
        hours: dict[str, list[int]] = {}
        for hour_s, entries in payload.hours.items():
            for job_id in {entry.job_id for entry in entries}:
                hours.setdefault(job_id, []).append(hour_s)
        connection.executemany(
            UPDATE_HOURS, [(min(of), max(of), self._jobs[job_id]) for job_id, of in hours.items()]
        )

    def _write_usage(self, connection: Connection, payload: Payload) -> None:
        if len(self._entries) > KNOWN_ENTRIES:
            self._entries = {}
        rows = []
        for hour_s, entries in payload.hours.items():
            for entry, amounts in entries.items():
                number = self._entries.get(entry) or self._entry(connection, entry)
                rows.append((hour_s, number, *(getattr(amounts, name) for name in AMOUNTS)))
        connection.executemany(UPSERT_USAGE, rows)

    def _entry(self, connection: Connection, entry: Entry) -> int:
        """Number of an entry; a new one is added, and its device to those that the job has held."""
        job = self._jobs[entry.job_id]
        row = (
            job, account_of(entry), entry.device, entry.gpu_name, entry.component, entry.state, entry.method,
            entry.currency,
        )  # fmt: skip
        added = connection.execute(INSERT_ENTRY, row).rowcount
        (number,) = connection.execute(SELECT_ENTRY, row).fetchone()
        if added and entry.device and entry.job_id != NOBODY:
            gpus = dict(connection.execute(COUNT_GPUS, (job,)).fetchall())
            connection.execute(
                "UPDATE job SET gpus = ? WHERE number = ?", (msgspec.json.encode(gpus).decode(), job)
            )
        self._entries[entry] = number
        return int(number)

    def _write_baselines(self, connection: Connection, baselines: Mapping[str, Baseline]) -> None:
        connection.executemany(
            "INSERT OR REPLACE INTO baseline VALUES (?, ?, ?, ?, ?)",
            [
                (
                    device,
                    base.counter_joules,
                    base.read_wall_s,
                    base.signal,
                    msgspec.json.encode([(one.job_id, one.account, one.share) for one in base.held]).decode(),
                )
                for device, base in baselines.items()
            ],
        )

    def _write_totals(self, connection: Connection, change: Change) -> None:
        state = change.state
        for job_id in change.jobs:
            if job_id not in self._jobs:  # of a file that is new
                connection.execute("INSERT OR IGNORE INTO job (job_id) VALUES (?)", (job_id,))
                (self._jobs[job_id],) = connection.execute(
                    "SELECT number FROM job WHERE job_id = ?", (job_id,)
                ).fetchone()
        connection.executemany(
            REPLACE_TOTAL,
            [
                (self._jobs[job_id], *key, *msgspec.structs.astuple(state.jobs[job_id][key]))
                for job_id, keys in change.jobs.items()
                for key in keys
            ],
        )
        connection.executemany(
            "INSERT OR REPLACE INTO account VALUES (?, ?, ?, ?, ?, ?)",
            [(*key, *msgspec.structs.astuple(state.accounts[key])) for key in change.accounts],
        )
        connection.executemany(
            "INSERT OR REPLACE INTO account_month VALUES (?, ?, ?, ?)",
            [
                (month, account, currency, state.months[month][account, currency])
                for month, account, currency in change.months
            ],
        )
        node = state.node
        connection.execute(
            "UPDATE node SET commits = ?, committed_s = ?, boot_id = ?, unobserved_seconds = ?, "
            "measured_joules = ?",
            msgspec.structs.astuple(node),
        )

    def _remove(self, connection: Connection, before_s: int, live: Collection[str]) -> None:
        connection.execute("DELETE FROM usage WHERE hour_s < ?", (before_s,))
        connection.execute("UPDATE node SET kept_from_s = MAX(COALESCE(kept_from_s, 0), ?)", (before_s,))
        gone = [
            (number, job_id)
            for number, job_id in connection.execute(
                "SELECT number, job_id FROM job WHERE number <> 0 AND "
                "(last_hour_s < ? OR (last_hour_s IS NULL AND last_seen_s < ?)) ORDER BY last_hour_s LIMIT ?",
                (before_s, before_s, PRUNED_JOBS),
            )
            if job_id not in live
        ]
        numbers = [(number,) for number, _ in gone]
        for statement in (
            "DELETE FROM entry WHERE job = ?",
            "DELETE FROM total WHERE job = ?",
            "DELETE FROM job WHERE number = ?",
        ):
            connection.executemany(statement, numbers)
        if gone:
            self._jobs, self._entries = {NOBODY: 0}, {}

    # --- Errors ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _failing(self, done: str) -> Iterator[None]:
        """Turn what SQLite and the system say into one line with the remedy."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            state, remedy = remedy_for(error, self._path)
            raise LedgerError(state, f"{self._path} cannot be {done}: {error}; {remedy}") from None


def _job_row(record: JobRecord) -> tuple[object, ...]:
    job: Job = record.job
    values = [getattr(job, name) for name in JOB_COLUMNS[1:]]
    return (*values, record.first_seen_s, record.last_seen_s, record.ended_s, job.job_id)


UPDATE_JOB = f"""
UPDATE job SET {", ".join(f"{name} = ?" for name in JOB_COLUMNS[1:])},
    first_seen_s = MIN(COALESCE(first_seen_s, 1e18), ?), last_seen_s = ?, ended_s = ?
WHERE job_id = ?
"""

UPDATE_HOURS = """
UPDATE job SET first_hour_s = MIN(COALESCE(first_hour_s, 1 << 60), ?),
    last_hour_s = MAX(COALESCE(last_hour_s, 0), ?)
WHERE number = ?
"""

ENTRY_COLUMNS = "job, account, device, gpu_name, component, state, method, currency"
INSERT_ENTRY = f"INSERT OR IGNORE INTO entry ({ENTRY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
SELECT_ENTRY = "SELECT number FROM entry WHERE " + " AND ".join(
    f"{name} = ?" for name in ENTRY_COLUMNS.split(", ")
)
COUNT_GPUS = (
    "SELECT gpu_name, COUNT(DISTINCT device) FROM entry WHERE job = ? AND device <> '' GROUP BY gpu_name"
)


def _added(column: str) -> str:
    both = f"{column} + excluded.{column}"
    return f"{column} = COALESCE({both}, {column}, excluded.{column})"


UPSERT_USAGE = f"""
INSERT INTO usage (hour_s, entry, {", ".join(AMOUNTS)}) VALUES (?, ?{", ?" * len(AMOUNTS)})
ON CONFLICT (hour_s, entry) DO UPDATE SET {", ".join(map(_added, AMOUNTS))}
"""

REPLACE_TOTAL = (
    f"INSERT OR REPLACE INTO total (job, account, currency, {', '.join(COLUMNS)}) "
    f"VALUES (?, ?, ?{', ?' * len(COLUMNS)})"
)


# --- What a file is, and what is wrong with it ---------------------------------------------------------


def check_kind(connection: Connection, *, to_read: bool = False) -> None:
    """Refuse a file that is not ours or is of a later version; to read, also one of an earlier.

    Raises _UnusableError, sqlite3.Error.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if application == migrations.APPLICATION_ID:
        if to_read and version < migrations.newest():
            raise _UnusableError(
                "older", "tables of an earlier version: start this version's agent on it once"
            )
        if version > migrations.newest():
            raise _UnusableError(
                "newer", f"written by a later version (tables {version}, known are {migrations.newest()})"
            )
    elif application or tables or to_read:
        raise _UnusableError("foreign", "a database of another program")


def damaged(error: sqlite3.Error) -> bool:
    """Whether an error says that the file itself is broken, not that it cannot be reached or written.

    SQLITE_CORRUPT and SQLITE_NOTADB come as plain DatabaseError; codes are known from Python 3.11 on only.
    """
    text = str(error)
    return type(error) is sqlite3.DatabaseError or "no such table" in text or "no such column" in text


def remedy_for(error: Exception, path: Path) -> tuple[str, str]:
    """A short word for what is wrong, and what to do about it."""
    number = error.errno if isinstance(error, OSError) else None
    text = str(error)
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "full" in text:
        return "full", f"make room below {path.parent}, or lower ledger.max_bytes"
    if number in (errno.EROFS, errno.EACCES, errno.EPERM) or "readonly" in text:
        return "read_only", f"let user {os.geteuid()} write to {path.parent}, or set ledger.path"
    if "locked" in text:
        return "locked", "another program holds a transaction open on it: end that"
    if "unable to open" in text or number is not None:
        return "unreachable", f"ledger.path must be a file in a folder that user {os.geteuid()} may write to"
    return "io_error", f"look at the disk below {path.parent}"


# --- Reading and copying beside the writer -------------------------------------------------------------


@contextlib.contextmanager
def reading(path: Path) -> Iterator[Connection]:
    """A connection that sees one moment, for use beside an agent that writes. Raises LedgerError."""
    connection = _open_to_read(path)
    try:
        connection.execute("BEGIN")
        yield connection
    except sqlite3.Error as error:
        raise LedgerError("damaged" if damaged(error) else "io_error", f"{path}: {error}") from None
    finally:
        connection.close()


def _open_to_read(path: Path) -> Connection:
    if not path.exists():
        raise LedgerError("missing", f"{path}: there is no ledger; it is where ledger.path of the agent says")
    try:
        try:
            return _readable(f"{path.absolute().as_uri()}?mode=ro")
        except sqlite3.OperationalError:
            # WAL needs its two helper files. Where nobody writes they are missing, and whoever may not make
            # them in this folder can still read the file as it is.
            if Path(f"{path}-wal").exists():
                raise
            return _readable(f"{path.absolute().as_uri()}?immutable=1")
    except _UnusableError as error:
        raise LedgerError(error.word, f"{path}: {error}") from None
    except (OSError, sqlite3.Error) as error:
        if isinstance(error, sqlite3.Error) and damaged(error):
            raise LedgerError(
                "damaged", f"{path}: {error}; the agent sets it aside when it opens it"
            ) from None
        raise LedgerError(
            "unreachable",
            f"{path} cannot be read: {error}; ask as the user that the agent runs as, or report "
            "from a copy that `clusterwatt ledger backup` makes",
        ) from None


def _readable(uri: str) -> Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
    try:
        check_kind(connection, to_read=True)
    except BaseException:
        connection.close()
        raise
    return connection


def backup(path: Path, copy: Path, *, force: bool) -> int:
    """Copy a ledger while its agent runs, and check the copy; returns its bytes. Raises LedgerError.

    The copy appears under its name only when it is whole.
    """
    if copy.exists() and not force:
        raise LedgerError("exists", f"{copy} is there already; --force replaces it")
    part = Path(f"{copy}.part")
    source = _open_to_read(path)
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        target = sqlite3.connect(part, isolation_level=None)
        try:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")  # one file, without helpers beside it
            (verdict,) = target.execute("PRAGMA integrity_check(1)").fetchone()
        finally:
            target.close()
        if verdict != "ok":
            raise LedgerError(
                "damaged", f"{copy}: the copy is not sound ({verdict}); the ledger itself is damaged"
            )
        _sync(part)
        if force:
            os.replace(part, copy)
        else:
            os.link(part, copy)  # fails where the name was taken meanwhile
        _sync(copy.parent)
        return copy.stat().st_size
    except FileExistsError:
        raise LedgerError("exists", f"{copy} is there already; --force replaces it") from None
    except (OSError, sqlite3.Error) as error:
        raise LedgerError("io_error", f"{copy} cannot be written: {error}") from None
    finally:
        source.close()
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
