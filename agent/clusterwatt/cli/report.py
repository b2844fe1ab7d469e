"""`clusterwatt jobs`, `job` and `report`: what jobs used, on this node or, with --prometheus, on all."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from clusterwatt.cli import settings
from clusterwatt.cli.ending import FAILED, WRONG_INPUT, Commands, EndError

if TYPE_CHECKING:
    from clusterwatt.report.commands import Source

FORMATS = ("table", "json", "csv", "markdown", "html")
GROUPS = ("job", "user", "account", "namespace", "run")


def add(commands: Commands) -> None:
    """Add the commands."""
    jobs = commands.add_parser(
        "jobs", help="list running and recent jobs and what they used", allow_abbrev=False
    )
    jobs.add_argument("--running", action="store_true", help="only those that run")
    jobs.add_argument("--limit", metavar="N", type=_count, default=50, help="at most so many (default: 50)")
    jobs.add_argument("--format", choices=FORMATS, default="table")
    jobs.set_defaults(act=_jobs)
    job = commands.add_parser(
        "job",
        help="show what one job used, as a receipt, a training-compute card or data",
        description="Without --prometheus it is what the job used on this node, in its whole life.",
        allow_abbrev=False,
    )
    job.add_argument("job", metavar="ID", help="as slurm/4711 or k8s/<uid>; `clusterwatt jobs` lists them")
    job.add_argument("--format", choices=(*FORMATS, "receipt", "card", "card-json"), default="receipt")
    job.add_argument("--tokens", metavar="N", type=_amount, help="card: tokens that the run was trained on")
    job.add_argument("--flops-per-token", metavar="N", type=_amount, help="card: model FLOP per token")
    job.add_argument("--precision", metavar="P", default="bf16", help="card: of the peak (default: bf16)")
    job.set_defaults(act=_job)
    report = commands.add_parser(
        "report",
        help="add up GPU hours, energy, carbon and cost of a period",
        description="Times: now, -7d (m, h, d, w), 2026-11-30 (its midnight), 2026-11-30T14:00; local unless "
        "they have an offset. The ledger keeps full hours (UTC): a period has the hour in which it begins, "
        "and every hour that begins in it.",
        allow_abbrev=False,
    )
    report.add_argument("--by", choices=GROUPS, default="job")
    report.add_argument("--format", choices=FORMATS, default="table")
    report.add_argument(
        "--limit",
        metavar="N",
        type=_count,
        help="those with the most GPU hours, the others as one line (default: 100 jobs in table, markdown "
        "and html, else all)",
    )
    report.set_defaults(act=_report)
    for command in (job, report):
        # A time as -7d looks like an option to argparse, but for what matches this.
        command._negative_number_matcher = re.compile(r"-[\d.]+\w*$")  # noqa: SLF001 - there is no other way
        command.add_argument("--from", dest="from_", metavar="TIME", default="-7d", help="(default: -7d)")
        command.add_argument("--to", metavar="TIME", default="now", help="(default: now)")
    for command in (jobs, job, report):
        _add_source(command)


def _add_source(command: argparse.ArgumentParser) -> None:
    command.add_argument("--ledger", metavar="FILE", help="ledger.path, the ledger to read")
    command.add_argument(
        "--prometheus", metavar="URL", help="ask this server for all nodes instead of a ledger"
    )
    command.add_argument("--user", metavar="NAME", help="for the server, with --password-file")
    command.add_argument("--password-file", metavar="FILE")
    command.add_argument("--token-file", metavar="FILE", help="bearer token for the server")
    command.add_argument("--ca-file", metavar="FILE", help="authorities that sign the server's certificate")
    command.add_argument("--cert-file", metavar="FILE", help="certificate to show to the server")
    command.add_argument("--key-file", metavar="FILE", help="its key")
    settings.add_file(command)


def _jobs(arguments: argparse.Namespace) -> int:
    from clusterwatt.clock import SystemClock
    from clusterwatt.report import commands

    source, running, limit = _source(arguments), arguments.running, arguments.limit
    return _print(
        lambda: commands.jobs(
            source, running=running, limit=limit, form=arguments.format, clock=SystemClock()
        )
    )


def _job(arguments: argparse.Namespace) -> int:
    from clusterwatt.clock import SystemClock
    from clusterwatt.report import commands
    from clusterwatt.report.card import Data

    clock = SystemClock()
    period, source = _period(arguments, clock.wall_s()), _source(arguments)
    data = Data(arguments.tokens, arguments.flops_per_token, arguments.precision)
    return _print(lambda: commands.job(source, arguments.job, arguments.format, period, data, clock))


def _report(arguments: argparse.Namespace) -> int:
    from clusterwatt.clock import SystemClock
    from clusterwatt.report import commands

    clock = SystemClock()
    period, source = _period(arguments, clock.wall_s()), _source(arguments)
    by, form, limit = arguments.by, arguments.format, arguments.limit
    return _print(lambda: commands.usage(source, *period, by, form, clock, limit=limit))


def _print(make: Callable[[], str]) -> int:
    """Write what is made; what keeps it from being made is one line."""
    from clusterwatt.report.commands import ReportError

    try:
        text = make()
    except ReportError as error:
        raise EndError(f"clusterwatt: {error}", FAILED) from None
    # CSV has its own ends of lines, and names may hold what the terminal's encoding has not.
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
    return 0


def _period(arguments: argparse.Namespace, now_s: float) -> tuple[float, float]:
    from clusterwatt.report.period import shown, unix_time

    times = []
    for option, text in (("--from", arguments.from_), ("--to", arguments.to)):
        try:
            times.append(unix_time(text, now_s))
        except ValueError as error:
            raise EndError(f"clusterwatt: {option} {text!r}: {error}", WRONG_INPUT) from None
    begin_s, end_s = times
    if end_s <= begin_s:
        said = f"--from ({shown(begin_s)}) is not before --to ({shown(end_s)})"
        raise EndError(f"clusterwatt: {said}: give an earlier --from or a later --to", WRONG_INPUT)
    return begin_s, end_s


def _source(arguments: argparse.Namespace) -> Source:
    from clusterwatt.config.model import http_address
    from clusterwatt.feeds.fetch import Trust
    from clusterwatt.report.commands import Source
    from clusterwatt.report.prometheus import Access

    if not arguments.prometheus:
        path = arguments.ledger or settings.loaded(arguments).config.ledger.path
        return Source(Path(path))
    try:
        http_address(arguments.prometheus)
    except ValueError as error:
        raise EndError(f"clusterwatt: --prometheus {arguments.prometheus!r}: {error}", WRONG_INPUT) from None
    trust = Trust(arguments.ca_file or "", arguments.cert_file or "", arguments.key_file or "")
    access = Access(
        arguments.prometheus,
        arguments.user or "",
        arguments.password_file or "",
        arguments.token_file or "",
        trust,
    )
    return Source(Path(), access)


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not int(text):
        raise argparse.ArgumentTypeError("expected a whole number from 1 to 999999")
    return int(text)


def _amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1e30:
        raise argparse.ArgumentTypeError("expected a number above 0, as 1.5e12")
    return number
