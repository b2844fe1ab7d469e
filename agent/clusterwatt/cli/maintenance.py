"""`clusterwatt maintenance`: say that people work on the node, so that alert rules leave it out."""

from __future__ import annotations

import argparse
import errno
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from clusterwatt.cli import settings
from clusterwatt.cli.ending import FAILED, Commands, EndError
from clusterwatt.clock import SystemClock

if TYPE_CHECKING:
    from clusterwatt.maintenance import Maintenance


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "maintenance",
        help="say that people work on the node, so that alert rules leave it out",
        description="on: sets the flag (collectors.maintenance.file), which also stands over a reboot. off: "
        "removes it. status: what it says. The metric clusterwatt_node_maintenance follows within seconds.",
        allow_abbrev=False,
    )
    command.add_argument("action", choices=("on", "off", "status"))
    command.add_argument(
        "--until",
        metavar="TIME",
        type=_time,
        help="when it ends by itself: +2h, 18:00 or 2030-01-31T18:00; without a zone in local time",
    )
    settings.add(command)
    command.set_defaults(act=_maintenance)


def _time(text: str) -> float:
    from clusterwatt.report import period

    try:
        return period.time_to_come(text, SystemClock().wall_s())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _maintenance(arguments: argparse.Namespace) -> int:
    from clusterwatt import maintenance
    from clusterwatt.plain_file import NotPlainError

    path = Path(settings.loaded(arguments).config.collectors.maintenance.file)
    now_s = SystemClock().wall_s()
    if arguments.until is not None and (arguments.action != "on" or arguments.until <= now_s):
        raise EndError("clusterwatt: --until goes with `on`, and lies in the future", FAILED)
    try:
        if arguments.action == "on":
            maintenance.switch_on(path, arguments.until)
        elif arguments.action == "off":
            maintenance.switch_off(path)
        state = maintenance.look(path, now_s)
    except OSError as error:
        if isinstance(error, NotPlainError):
            remedy = "`clusterwatt maintenance off` removes it"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "free some space there"
        else:
            remedy = "run it as the agent's user or root"
        raise EndError(
            f"clusterwatt: {path}: {error.strerror}: {remedy}, or name another file in "
            "collectors.maintenance.file",
            FAILED,
        ) from None
    sys.stdout.write(_described(state) + "\n")
    return 0


def _described(state: Maintenance) -> str:
    if not state.on:
        return "not in maintenance"
    if state.until_s is None:
        why = "" if state.understood else " (the file holds something that is no time)"
        return f"in maintenance until `clusterwatt maintenance off`{why}"
    ends = datetime.fromtimestamp(state.until_s).astimezone()
    return f"in maintenance until {ends.isoformat(' ', 'minutes')}"
