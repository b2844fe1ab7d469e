"""`clusterwatt discovery slurm`: the targets of a cluster, as a file for Prometheus."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clusterwatt.cli.ending import FAILED, Commands, EndError, Once

DEFAULT_PORT = 10_777


def add(commands: Commands) -> None:
    """Add the command."""
    discovery = commands.add_parser("discovery", help="write targets for Prometheus", allow_abbrev=False)
    kinds = discovery.add_subparsers(dest="what", metavar="WHAT", required=True)
    slurm = kinds.add_parser(
        "slurm",
        help="every node that Slurm knows, for file_sd_configs",
        description="Asks `scontrol show nodes`. Nodes that are down or drained are in it too, with that as "
        "a label. The file is replaced whole, and only when it changes; what is wrong leaves it as it is.",
        allow_abbrev=False,
    )
    slurm.add_argument(
        "--file", metavar="OUT", action=Once, help="the file to write (default: standard output)"
    )
    slurm.add_argument("--port", metavar="N", type=_port, default=DEFAULT_PORT, help="(default: 10777)")
    slurm.add_argument(
        "--input", metavar="FILE", action=Once, help="a saved answer of scontrol, in place of asking it"
    )
    slurm.set_defaults(act=_slurm)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 65_535:
        raise argparse.ArgumentTypeError("expected a port from 1 to 65535")
    return int(text)


def _slurm(arguments: argparse.Namespace) -> int:
    from clusterwatt.discovery import file_sd, slurm

    try:
        nodes = slurm.read_file(Path(arguments.input)) if arguments.input else slurm.ask()
    except slurm.DiscoveryError as error:
        kept = f"; {arguments.file} stays as it is" if arguments.file else ""
        raise EndError(f"clusterwatt discovery slurm: {error}{kept}", FAILED) from None
    text = file_sd.render(nodes, arguments.port)
    if not arguments.file:
        sys.stdout.write(text)
        return 0
    try:
        changed = file_sd.write(Path(arguments.file), text)
    except OSError as error:
        raise EndError(f"clusterwatt: {arguments.file}: {error.strerror}", FAILED) from None
    sys.stdout.write(f"{arguments.file}: {len(nodes)} nodes, {'written' if changed else 'as before'}\n")
    return 0
