"""`clusterwatt check-config`: the effective configuration, or everything wrong with it."""

from __future__ import annotations

import argparse
import sys

from clusterwatt.cli import settings
from clusterwatt.cli.ending import WRONG_INPUT, Commands, EndError


def add(commands: Commands) -> None:
    """Add the command."""
    check = commands.add_parser(
        "check-config",
        help="print the effective configuration, or everything wrong with it",
        allow_abbrev=False,
    )
    check.add_argument(
        "--print-defaults", action="store_true", help="print a commented file of all settings instead"
    )
    settings.add(check)
    check.set_defaults(act=_check_config)


def _check_config(arguments: argparse.Namespace) -> int:
    from clusterwatt.config.problems import ConfigError
    from clusterwatt.config.write import reference, to_yaml
    from clusterwatt.expose.dcgm.page import counters

    if arguments.print_defaults:
        sys.stdout.write(reference())
        return 0
    try:
        found = settings.checked(arguments)
    except ConfigError as error:
        raise EndError(str(error), WRONG_INPUT) from None
    dcgm = found.config.expose.dcgm
    for note in counters(dcgm).notes if dcgm.enabled else ():
        sys.stderr.write(f"clusterwatt: {note}\n")
    lines = [f"# configuration file: {settings.file(arguments) or 'none'}"]
    lines += [f"# {path}: {source}" for path, source in found.sources.items()]
    sys.stdout.write("\n".join([*lines, to_yaml(found.config)]))
    return 0
