"""`clusterwatt simulate`: a simulated cluster, for boards, rules and demonstrations.

`fleet` serves it on one port, `backfill` writes its past for Prometheus.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clusterwatt.cli.ending import FAILED, WRONG_INPUT, Commands, EndError, Parser

PROFILES = ("a100", "h100", "h200", "b200", "gb200", "l40s", "t4", "rtx4080")
LEVELS = ("minimal", "standard", "full")
LISTEN = "127.0.0.1:10778"


def add(commands: Commands) -> None:
    """Add the commands."""
    simulate = commands.add_parser(
        "simulate", help="simulate a training cluster, without any GPU", allow_abbrev=False
    )
    inner = simulate.add_subparsers(dest="what", metavar="WHAT", required=True)
    _add_fleet(inner)
    _add_backfill(inner)


def _add_fleet(commands: Commands) -> None:
    fleet: Parser = commands.add_parser(
        "fleet", help="serve every node of a simulated cluster on one port", allow_abbrev=False
    )
    _add_cluster(fleet)
    fleet.add_argument(
        "--speed", metavar="X", type=_real(0.1, 3_600), default=1.0, help="faster than the wall"
    )
    fleet.add_argument("--listen", metavar="ADDRESS", default=LISTEN, help=f"default {LISTEN}")
    fleet.add_argument(
        "--every",
        metavar="SECONDS",
        type=_real(0.5, 3_600),
        help="between two ticks, by the clock of the fleet; default one second of the wall",
    )
    fleet.add_argument(
        "--scenario",
        metavar="NAME|FILE",
        default="",
        help="faults to play: shipped (16 nodes are enough for each), or a file",
    )
    fleet.add_argument("--level", choices=LEVELS, default="standard", help="profile of the pages")
    fleet.set_defaults(act=_fleet)


def _add_backfill(commands: Commands) -> None:
    backfill: Parser = commands.add_parser(
        "backfill",
        help="write the past of a simulated cluster as OpenMetrics",
        description="Writes a file for each two hours into DIR, with the families that the rules and the "
        "cluster board use: `promtool tsdb create-blocks-from openmetrics FILE TSDB` makes blocks of it.",
        allow_abbrev=False,
    )
    _add_cluster(backfill)
    backfill.add_argument("--hours", metavar="N", type=_number(1, 1_000), default=24, help="default 24")
    backfill.add_argument(
        "--step",
        metavar="SECONDS",
        type=_number(1, 3_600),
        default=60,
        help="between two samples; default 60",
    )
    backfill.add_argument(
        "--until", metavar="TIME", type=_number(0, 2**33), help="Unix time of its end; default now"
    )
    backfill.add_argument("--healthy", action="store_true", help="a cluster in which no job goes wrong")
    backfill.add_argument("folder", metavar="DIR", help="where the files go")
    backfill.set_defaults(act=_backfill)


def _add_cluster(command: Parser) -> None:
    command.add_argument("--nodes", metavar="N", type=_number(1, 1_024), default=16, help="nodes; default 16")
    command.add_argument(
        "--gpus", metavar="N", type=_number(1, 16), default=8, help="GPUs of each; default 8"
    )
    command.add_argument(
        "--profile",
        metavar="MODEL,...",
        type=_profiles,
        default=("h100",),
        help=f"models of the GPUs, of the nodes in turn: {', '.join(PROFILES)}; default h100",
    )
    command.add_argument(
        "--seed", metavar="N", type=_number(0, 2**31), default=1, help="another seed, other jobs"
    )


def _profiles(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in PROFILES:
            raise argparse.ArgumentTypeError(f"expected {', '.join(PROFILES)}, or several with commas")
    return names


def _number(least: int, most: int) -> type:
    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}")
        return int(text)

    return number  # type: ignore[return-value]  # argparse takes any callable


def _real(least: float, most: float) -> type:
    def real(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"expected a number from {least:g} to {most:g}")
        return value

    return real  # type: ignore[return-value]  # as above


def _fleet(arguments: argparse.Namespace) -> int:
    from clusterwatt.config.model import listen_address
    from clusterwatt.config.problems import ConfigError
    from clusterwatt.fleet import run, scenario
    from clusterwatt.fleet.node import FleetSettings
    from clusterwatt.log import configure
    from clusterwatt.simulate.cluster import Cluster
    from clusterwatt.simulate.market import BUDGETS

    try:
        listen_address(arguments.listen)
    except ValueError as error:
        raise EndError(
            f"clusterwatt simulate fleet: --listen {arguments.listen}: {error}", WRONG_INPUT
        ) from None
    cluster = Cluster(arguments.nodes, arguments.gpus, arguments.seed)
    try:
        played = (
            scenario.CALM if not arguments.scenario else scenario.load(arguments.scenario, cluster, BUDGETS)
        )
    except ConfigError as error:
        raise EndError(str(error), WRONG_INPUT) from None
    configure("info", "logfmt")
    settings = FleetSettings(
        nodes=arguments.nodes,
        gpus=arguments.gpus,
        profiles=arguments.profile,
        seed=arguments.seed,
        every_s=arguments.every or max(1.0, arguments.speed),
        level=arguments.level,
    )
    try:
        return run.run(settings, arguments.listen, arguments.speed, played)
    except OSError as error:
        raise EndError(f"clusterwatt simulate fleet: --listen {arguments.listen}: {error}", FAILED) from None


def _backfill(arguments: argparse.Namespace) -> int:
    from clusterwatt.clock import SystemClock
    from clusterwatt.fleet.history.backfill import Span, backfill
    from clusterwatt.fleet.node import FleetSettings
    from clusterwatt.log import configure

    configure("error", "logfmt")
    settings = FleetSettings(
        nodes=arguments.nodes,
        gpus=arguments.gpus,
        profiles=arguments.profile,
        seed=arguments.seed,
        every_s=1.0,
        level="standard",
    )
    step_s = arguments.step
    until_s = (arguments.until or int(SystemClock().wall_s())) // step_s * step_s
    span = Span(until_s - 3_600 * arguments.hours, until_s, step_s)
    try:
        for written in backfill(settings, span, Path(arguments.folder), healthy=arguments.healthy):
            rate = written.samples / max(written.took_s, 1e-3)
            sys.stdout.write(f"{written.path}: {written.samples} samples, {rate:.0f} a second\n")
    except OSError as error:
        raise EndError(
            f"clusterwatt simulate backfill: {error.filename or arguments.folder}: {error.strerror}", FAILED
        ) from None
    return 0
