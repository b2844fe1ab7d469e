"""`clusterwatt flight`: show a bundle of the flight recorder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clusterwatt.cli.ending import WRONG_INPUT, Commands, EndError


def add(commands: Commands) -> None:
    """Add the command."""
    flight = commands.add_parser("flight", help="show a bundle of the flight recorder", allow_abbrev=False)
    flight.add_argument("file", metavar="FILE", help="a file *.flight.zip out of recorder.directory")
    flight.add_argument("--gpu", metavar="INDEX", help="this GPU only (table)")
    flight.add_argument("--format", choices=("table", "csv"), default="table")
    flight.set_defaults(act=_flight)


def _flight(arguments: argparse.Namespace) -> int:
    from clusterwatt.flight import bundle, table

    try:
        manifest, moments = bundle.read(Path(arguments.file))
    except bundle.BundleError as error:
        raise EndError(f"clusterwatt: {error}", WRONG_INPUT) from None
    if arguments.format == "csv":
        lines = table.as_csv(moments)
    else:
        sys.stdout.write(f"{manifest.node}: {manifest.reason}; times are UTC\n")
        lines = table.table(moments, arguments.gpu)
    for line in lines:
        sys.stdout.write(line + "\n")
    return 0
