"""`clusterwatt run` and `once`: serve metrics until stopped; print one page and end."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from clusterwatt.cli import settings
from clusterwatt.cli.ending import Commands

if TYPE_CHECKING:
    from clusterwatt.config.model import Config


def add(commands: Commands) -> None:
    """Add the commands."""
    run = commands.add_parser("run", help="serve metrics until stopped", allow_abbrev=False)
    once = commands.add_parser("once", help="print one page of metrics and end", allow_abbrev=False)
    for command, act in ((run, _run), (once, _once)):
        settings.add(command)
        command.add_argument(
            "--replay",
            metavar="FILE",
            help="simulate.replay_file, a bundle of `clusterwatt capture` in place of the driver",
        )
        command.set_defaults(act=act)


def _run(arguments: argparse.Namespace) -> int:
    from clusterwatt import running

    def run(config: Config) -> int:
        return running.run(config, lambda: settings.checked(arguments).config)

    return settings.start_agent(arguments, run, settings.checked)


def _once(arguments: argparse.Namespace) -> int:
    from clusterwatt import running

    return settings.start_agent(arguments, running.once, settings.checked)
