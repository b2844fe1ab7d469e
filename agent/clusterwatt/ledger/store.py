"""The ledger's file: SQLite in WAL mode, one transaction for each commit, one writer, any number of readers.

What cannot be used as a ledger (damaged, of another program, of a newer version) is set aside under another
name, and a new file is begun: measuring never waits for a repair. A file beside it is locked for as long as
an agent writes (flock(2)), for SQLite itself would let two agents take turns.

https://www.sqlite.org/wal.html, https://www.sqlite.org/howtocorrupt.html
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from clusterwatt import lock_file
from clusterwatt.clock import Clock
from clusterwatt.ledger import migrations
from clusterwatt.ledger.faults import (
    BUSY_S,
    InUseError,
    LedgerError,
    UnusableError,
    check_kind,
    check_plain,
    damaged,
    remedy_for,
)
from clusterwatt.ledger.rows import Rows
from clusterwatt.ledger.state import Payload, Recovered, State, booked, everything

log = logging.getLogger("clusterwatt.ledger")

WAL_KEPT_BYTES = 4 << 20
ASIDE_EVERY_S = 600.0  # a disk that damages every file must not fill up with them
HOUR_S = 3_600
DAY_S = 86_400
PRUNED_HOURS = 48  # at most, at once: a transaction stays short, and a clock that is wrong does little harm


class Store:
    """The only writer. Belongs to one thread; every method may block, and raises LedgerError."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._lock: int | None = None
        self._rows: Rows | None = None
        self._identity: tuple[int, int] | None = None
        self._new = False  # the file misses totals that are in memory
        self._aside_s: float | None = None

    def open(self, month: str) -> tuple[State, Recovered]:
        """Open the ledger, or begin one; returns what it holds, with the money of one month.

        Of jobs it has the totals of those whose end nobody has seen: they are shown at once.
        """
        with self._failing("opened"):
            try:
                return self._open(month)
            except UnusableError as error:
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
                self._roll_back()
                return self._commit(state, payload, wanted, month_of)
            except sqlite3.DatabaseError as error:
                if not damaged(error):
                    raise
                self._set_aside(UnusableError("damaged", str(error)))
                self._follow_file()
                return self._commit(state, payload, wanted, month_of)

    def prune(self, retention_days: float, max_bytes: int, live: Collection[str]) -> bool:
        """Remove what is too old or too much, a little at a time; True while the file is still too large.

        What is too old waits for the next hour: a clock that is years ahead must not empty the ledger.

        Totals of accounts, of nobody and of the jobs that are `live` stay as they are.
        """
        with self._failing("written"):
            self._roll_back()
            rows = self._rows
            if rows is None:
                return False  # given up; the next commit has one again
            cutoff_s = int((self._clock.wall_s() - retention_days * DAY_S) // HOUR_S) * HOUR_S
            hours = rows.hours()
            if hours is None:
                return False
            oldest_s, newest_s = hours
            # The hour that is being written stays, whatever the limit.
            before_s = min(cutoff_s, oldest_s + PRUNED_HOURS * HOUR_S)
            if rows.bytes_used() > max_bytes:
                before_s = max(before_s, oldest_s + PRUNED_HOURS * HOUR_S)
            before_s = min(before_s, newest_s)
            if before_s <= oldest_s:
                return False
            with transaction(rows):
                rows.remove(before_s, live)
            return rows.bytes_used() > max_bytes

    def close(self) -> None:
        """Let go of file and lock."""
        self._disconnect()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # --- Opening ---------------------------------------------------------------------------------------

    def _open(self, month: str) -> tuple[State, Recovered]:
        self._take_lock()
        rows = self._connect()
        try:
            baselines, jobs = rows.baselines(), rows.not_ended()
            state = rows.state(month, [record.job.job_id for record in jobs])
        except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
            if isinstance(error, sqlite3.Error) and not damaged(error):
                raise
            raise UnusableError("damaged", str(error)) from None
        return state, Recovered(state.node.boot_id, state.node.committed_s, baselines, jobs)

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._lock = lock_file.take(Path(f"{self._path}.lock"))
        except lock_file.HeldError as held:
            raise InUseError(
                "in_use",
                f"{self._path}: another agent{held.who} keeps this ledger; "
                "end it, or give this one its own with ledger.path",
            ) from None

    def _connect(self) -> Rows:
        """The file's rows; makes file and tables where there are none. Raises UnusableError."""
        if self._rows is not None:
            return self._rows
        with contextlib.suppress(FileExistsError):  # SQLite would make it readable for others
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        check_plain(self._path)
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
                raise UnusableError("damaged", str(error)) from None
            raise
        self._rows, self._identity = Rows(connection), (found.st_dev, found.st_ino)
        return self._rows

    def _disconnect(self) -> None:
        if self._rows is not None:
            # The last one out copies the WAL into the file; where it cannot, the next one does.
            with contextlib.suppress(sqlite3.Error):
                self._rows.connection.close()
            self._rows = None

    def _follow_file(self) -> None:
        """Notice that the file was taken away, and have one again, to which memory is to be written."""
        if self._rows is not None and self._was_taken_away():
            found = (
                "another was put in its place and is used" if self._path.exists() else "a new one is begun"
            )
            log.warning("%s: the file was taken away; %s", self._path, found)
            self._disconnect()
        if self._rows is None:
            self._new = True
            self._take_lock()
            try:
                self._connect()
            except UnusableError as error:
                self._set_aside(error)
                self._connect()

    def _was_taken_away(self) -> bool:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return True
        return (found.st_dev, found.st_ino) != self._identity

    def _set_aside(self, why: UnusableError) -> None:
        """Rename the file, with its WAL, so that a new one can be begun."""
        now_s = self._clock.monotonic_s()
        self._disconnect()
        if self._aside_s is not None and now_s - self._aside_s < ASIDE_EVERY_S:
            raise LedgerError("damaged", f"{self._path}: {why}, again; look at the disk below it") from None
        self._aside_s = now_s
        at = f"{datetime.fromtimestamp(self._clock.wall_s(), timezone.utc):%Y%m%dT%H%M%SZ}"
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

    # --- Writing ---------------------------------------------------------------------------------------

    def _commit(
        self, state: State, payload: Payload | None, wanted: Collection[str], month_of: Callable[[int], str]
    ) -> State:
        rows = self._rows
        assert rows is not None
        jobs = {*wanted, *(payload.job_ids() if payload else ())} - state.jobs.keys()
        months = {month_of(hour_s) for hour_s in payload.hours} - state.months.keys() if payload else set()
        state = msgspec.structs.replace(
            state,
            jobs={**state.jobs, **{job_id: rows.of_job(job_id) for job_id in jobs}},
            months={**state.months, **{month: rows.of_month(month) for month in months}},
        )
        if payload is None and not self._new:
            return state
        change = everything(state) if payload is None else booked(state, payload, month_of)
        with transaction(rows):
            if payload is not None:
                rows.write(payload)
            rows.write_totals(everything(change.state) if self._new else change)
        self._new = False
        return change.state

    def _roll_back(self) -> None:
        """Take back what failed when the way back failed too: it would be read as if it were written."""
        if self._rows is not None and self._rows.connection.in_transaction:
            try:
                self._rows.connection.execute("ROLLBACK")
            except sqlite3.Error:
                self._disconnect()  # which takes it back too; the next commit connects again
                raise

    # --- Errors ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _failing(self, done: str) -> Iterator[None]:
        """Turn what SQLite and the system say into one line with the remedy."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            state, remedy = remedy_for(error, self._path)
            raise LedgerError(state, f"{self._path} cannot be {done}: {error}; {remedy}") from None


@contextlib.contextmanager
def transaction(rows: Rows) -> Iterator[None]:
    """All of it or nothing."""
    connection = rows.connection
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        rows.forget()
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise
