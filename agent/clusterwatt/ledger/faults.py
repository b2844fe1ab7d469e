"""What a file is, what is wrong with it, and what to do about it."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from clusterwatt import plain_file
from clusterwatt.ledger import migrations

BUSY_S = 5.0  # how long to wait for another program's transaction


class LedgerError(Exception):
    """The ledger cannot be used now. One line: what is wrong, and the remedy. `state` is a short word."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state = state


class InUseError(LedgerError):
    """Another agent keeps this ledger."""


class UnusableError(Exception):
    """The file is no ledger of this version: damaged, foreign, newer."""

    def __init__(self, word: str, detail: str) -> None:
        super().__init__(detail)
        self.word = word


def check_plain(path: Path) -> int:
    """The bytes of a file; refuses a pipe, for which SQLite would wait. Raises LedgerError, OSError."""
    try:
        return plain_file.check(path).st_size
    except plain_file.NotPlainError as error:
        text = f"{path}: {error.strerror}; set ledger.path (or --ledger) to the ledger's"
        raise LedgerError("unreachable", text) from None


def check_kind(connection: sqlite3.Connection, *, to_read: bool = False) -> None:
    """Refuse a file that is not ours or is of a later version; to read, also one of an earlier.

    Raises UnusableError, sqlite3.Error.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if application == migrations.APPLICATION_ID:
        if to_read and version < migrations.newest():
            raise UnusableError(
                "older", "tables of an earlier version: start this version's agent on it once"
            )
        if version > migrations.newest():
            raise UnusableError(
                "newer", f"written by a later version (tables {version}, known are {migrations.newest()})"
            )
    elif application or tables or to_read:
        raise UnusableError("foreign", "a database of another program")


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
