"""`clusterwatt capture`: record what the driver answers into a bundle."""

from __future__ import annotations

import argparse
from pathlib import Path

from clusterwatt.cli import settings
from clusterwatt.cli.ending import Commands, seconds


def add(commands: Commands) -> None:
    """Add the command."""
    capture = commands.add_parser(
        "capture",
        help="record what the NVIDIA driver answers, to be played by --replay",
        description="Records every driver call (what was asked, what came back, how long it took) as the "
        "agent makes them, and once what it reads rarely or never. UUIDs, serial numbers, GUIDs, process "
        "ids and names of processes and hosts are replaced by pseudonyms; PCI addresses, models, versions "
        "and measurements stay. It runs beside an agent and changes nothing on a GPU.",
        allow_abbrev=False,
    )
    capture.add_argument("file", metavar="FILE", help="the bundle to write; replaced when it exists")
    capture.add_argument("--seconds", metavar="N", type=seconds, default=30.0, help="how long (default: 30)")
    capture.add_argument(
        "--plain", action="store_true", help="keep UUIDs and all other identities as they are"
    )
    settings.add(capture)
    capture.set_defaults(act=_capture)


def _capture(arguments: argparse.Namespace) -> int:
    from clusterwatt import running

    path = Path(arguments.file)
    return settings.start_agent(
        arguments,
        lambda config: running.capture(config, path, arguments.seconds, pseudonyms=not arguments.plain),
    )
