"""Brings a ledger to this version's tables: numbered SQL files, each applied once, in one transaction."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from importlib import resources

APPLICATION_ID = 0x63_77_6C_31  # "cwl1": tells our files from other programs' (sqlite.org/fileformat.html)


def steps() -> list[tuple[int, str]]:
    """Number and SQL of every step, in order."""
    found = []
    for file in resources.files("clusterwatt.ledger").joinpath("schema").iterdir():
        named = re.fullmatch(r"(\d{4})_\w+\.sql", file.name)
        if named:
            found.append((int(named[1]), file.read_text()))
    return sorted(found)


def newest() -> int:
    """The version of the tables that this agent knows."""
    return steps()[-1][0]


def apply(connection: sqlite3.Connection) -> None:
    """Apply what is missing; all of it or nothing."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    missing = [(number, sql) for number, sql in steps() if number > version]
    if not missing:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number, sql in missing:
            for statement in statements(sql):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number:d}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def statements(sql: str) -> Iterator[str]:
    """The statements of a script one by one; `executescript` would commit before each."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
