"""`clusterwatt ledger`: what the ledger holds, and a copy of it while the agent writes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from clusterwatt.cli import settings
from clusterwatt.cli.ending import FAILED, WRONG_INPUT, Commands, EndError

if TYPE_CHECKING:
    from clusterwatt.ledger.report import LedgerInfo


def add(commands: Commands) -> None:
    """Add the command."""
    ledger = commands.add_parser(
        "ledger",
        help="show what the ledger of energy and cost holds, or copy it",
        description="info: what ledger.path holds, and whether its books close. backup: a copy in one file, "
        "checked, while the agent runs. To go back to a copy, stop the agent, remove the ledger, its -wal "
        "and its -shm, put the copy in its place, and start the agent.",
        allow_abbrev=False,
    )
    ledger.add_argument("action", choices=("info", "backup"))
    ledger.add_argument("file", metavar="FILE", nargs="?", help="where the copy goes (backup)")
    ledger.add_argument("--force", action="store_true", help="replace FILE where it exists (backup)")
    ledger.add_argument("--ledger", metavar="FILE", help="ledger.path, the ledger to read")
    settings.add(ledger)
    ledger.set_defaults(act=_ledger)


def _ledger(arguments: argparse.Namespace) -> int:
    from clusterwatt.ledger.faults import LedgerError
    from clusterwatt.ledger.reading import backup
    from clusterwatt.ledger.report import reader

    if (arguments.action == "backup") != (arguments.file is not None):
        wanted = "name the FILE to write" if arguments.file is None else "info takes no FILE"
        raise EndError(f"clusterwatt ledger {arguments.action}: {wanted}", WRONG_INPUT)
    path = Path(arguments.ledger or settings.loaded(arguments).config.ledger.path)
    try:
        if arguments.action == "backup":
            size_bytes = backup(path, Path(arguments.file), force=arguments.force)
            sys.stdout.write(f"{arguments.file}: {size_bytes} bytes, checked\n")
        else:
            with reader(path) as books:
                sys.stdout.write("\n".join(_lines(path, books.info())) + "\n")
    except LedgerError as error:
        raise EndError(f"clusterwatt: {error}", FAILED) from None
    return 0


def _lines(path: Path, info: LedgerInfo) -> Iterator[str]:
    yield f"ledger           {path}"
    yield f"tables           version {info.schema_version}, {info.bytes_used / 2**20:.1f} MiB in use"
    yield f"begun            {_time(info.began_s)}"
    yield f"last commit      {_time(info.committed_s)}"
    yield f"hours            {_time(info.first_hour_s)} to {_time(info.last_hour_s)}"
    if info.kept_from_s is not None:
        yield f"removed          what lay before {_time(info.kept_from_s)}"
    yield f"jobs             {info.jobs}"
    yield f"measured         {info.measured_joules / 3.6e6:.3f} kWh"
    yield f"booked           {info.booked_joules / 3.6e6:.3f} kWh"
    yield f"not observed     {info.unobserved_seconds:.0f} s"


def _time(time_s: float | None) -> str:
    if time_s is None:
        return "none"
    return datetime.fromtimestamp(time_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
