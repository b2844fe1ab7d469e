"""`clusterwatt metrics`: list every metric."""

from __future__ import annotations

import argparse
import sys

from clusterwatt.cli.ending import Commands


def add(commands: Commands) -> None:
    """Add the command."""
    metrics = commands.add_parser("metrics", help="list every metric", allow_abbrev=False)
    metrics.add_argument("--format", choices=("table", "markdown", "json"), default="table")
    metrics.set_defaults(act=_metrics)


def _metrics(arguments: argparse.Namespace) -> int:
    from clusterwatt import metrics_reference
    from clusterwatt.inventory import CATALOG

    formats = {
        "table": metrics_reference.table,
        "markdown": metrics_reference.markdown,
        "json": metrics_reference.as_json,
    }
    sys.stdout.write(formats[arguments.format](CATALOG))
    return 0
