"""Reading and copying a ledger beside the agent that writes it (https://www.sqlite.org/wal.html)."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from clusterwatt.ledger.faults import (
    BUSY_S,
    LedgerError,
    UnusableError,
    check_kind,
    check_plain,
    damaged,
    remedy_for,
)

Connection = sqlite3.Connection


@contextlib.contextmanager
def reading(path: Path) -> Iterator[Connection]:
    """A connection that sees one moment, for use beside an agent that writes. Raises LedgerError."""
    connection = _open_to_read(path)
    try:
        connection.execute("BEGIN")
        yield connection
    except sqlite3.Error as error:
        state, remedy = ("damaged", "see docs/LEDGER.md") if damaged(error) else remedy_for(error, path)
        raise LedgerError(state, f"{path} cannot be read: {error}; {remedy}") from None
    finally:
        connection.close()


def _open_to_read(path: Path) -> Connection:
    try:
        if check_plain(path) == 0:
            text = f"{path}: it is empty: no ledger yet; an agent that keeps it there begins one"
            raise LedgerError("missing", text)
        return _readable_somehow(path)
    except FileNotFoundError:
        text = f"{path}: there is no ledger; it is where ledger.path of the agent says"
        raise LedgerError("missing", text) from None
    except UnusableError as error:
        raise LedgerError(error.word, f"{path}: {error}") from None
    except (OSError, sqlite3.Error) as error:
        if isinstance(error, sqlite3.Error) and damaged(error):
            text = f"{path}: {error}; the agent sets it aside when it opens it"
            raise LedgerError("damaged", text) from None
        said = error.strerror if isinstance(error, OSError) else error
        raise LedgerError(
            "unreachable",
            f"{path} cannot be read: {said}; ask as the user that the agent runs as, or report "
            "from a copy that `clusterwatt ledger backup` makes",
        ) from None


def _readable_somehow(path: Path) -> Connection:
    """Open a ledger also where nothing may be written.

    WAL needs its two helper files. Where no agent runs they are missing, and whoever may not make them in the
    folder can still read the file as it is.
    """
    uri = path.absolute().as_uri()
    try:
        return _readable(f"{uri}?mode=ro")
    except sqlite3.OperationalError:
        if Path(f"{path}-wal").exists():
            raise
        return _readable(f"{uri}?immutable=1")


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
