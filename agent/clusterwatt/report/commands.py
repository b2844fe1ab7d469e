"""The bodies of `clusterwatt jobs`, `job` and `report`: from options to text. All raise ReportError."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.config.model import node_name
from clusterwatt.config.problems import shown
from clusterwatt.feeds.fetch import SilentError
from clusterwatt.ledger.faults import LedgerError
from clusterwatt.ledger.report import UsageRow, reader
from clusterwatt.report import card, cluster, formats, lines, receipt
from clusterwatt.report.card import Data
from clusterwatt.report.prometheus import Access, AskError, Prometheus

JOBS_FOR_PEOPLE = 100  # lines of jobs where none are asked for; programs get all
RECENT_S = cluster.DAY_S  # of jobs on a server, when no period is given
JOB_FORMATS = (*formats.FORMATS, "receipt", "card", "card-json")


class ReportError(Exception):
    """There is no report. One line: why, and what to do."""


class Source(msgspec.Struct, frozen=True):
    """Where to look: the node's ledger, or a server that knows the cluster."""

    ledger: Path
    access: Access | None = None

    @property
    def said(self) -> str:
        """The source as a report names it."""
        if self.access is not None:
            return f"Prometheus at {self.access.url}, all nodes"
        return f"ledger {self.ledger} of {node_name()}"


def usage(
    source: Source,
    from_s: float,
    to_s: float,
    by: cluster.By,
    form: str,
    clock: Clock,
    *,
    limit: int | None = None,
) -> str:
    """What was used in a period, and the rest, and the sum; `limit`: of lines, the others are one."""
    if limit is None and by == "job" and form in formats.FOR_PEOPLE:
        limit = JOBS_FOR_PEOPLE
    others = None
    with _failing():
        if source.access is not None:
            rows, rest = cluster.usage(Prometheus(source.access, clock), from_s, to_s, by)
        elif by == "run":
            raise ReportError("the ledger does not know training runs: ask a server with --prometheus URL")
        else:
            with reader(source.ledger) as books:
                rest = books.unattributed(from_s, to_s)
                if by == "job" and limit is not None:
                    rows, others = books.largest(from_s, to_s, limit)
                else:
                    rows = books.usage(from_s, to_s, by)
    if limit is not None and len(rows) > limit:
        rows, others = rows[:limit], lines.summed(str(len(rows) - limit), rows[limit:])
    text = formats.FORMATS[form](lines.report(by, source.said, (from_s, to_s), rows, rest, others))
    return text if rows or form != "table" else f"{text}no jobs in {source.said} in this period\n"


def jobs(source: Source, *, running: bool, limit: int, form: str, clock: Clock) -> str:
    """Jobs that were seen last: of this node with their whole lives, of a cluster with their last day."""
    with _failing():
        if source.access is not None:
            now_s = clock.wall_s()
            found, _ = cluster.usage(Prometheus(source.access, clock), now_s - RECENT_S, now_s, "job")
            rows = [row for row in found if not running or (row.record and row.record.ended_s is None)][
                :limit
            ]
        else:
            with reader(source.ledger) as books:
                rows = books.jobs(running=running, limit=limit)
    if not rows and form == "table":  # of which not even a head would be left
        return f"no {'running ' if running else ''}jobs in {source.said}\n"
    return formats.FORMATS[form](lines.report("job", source.said, None, rows))


def job(source: Source, job_id: str, form: str, period: tuple[float, float], data: Data, clock: Clock) -> str:
    """What one job used: of this node in its whole life, of a cluster within a period."""
    with _failing():
        if source.access is not None:
            server = Prometheus(source.access, clock)
            rows, _ = cluster.usage(server, *period, "job", job_id)
            row = next((row for row in rows if row.key == job_id), None)
            if data.tokens is None and form.startswith("card"):
                tokens, flops = cluster.training(server, job_id, *period)
                data = Data(tokens, data.flops_per_token or flops, data.precision, of_period=True)
        else:
            with reader(source.ledger) as books:
                row = books.job(job_id) if job_id else None  # without an id is what nobody holds
                if row is None:
                    raise ReportError(_unknown(job_id, [known.key for known in books.jobs(limit=1_000)]))
    if row is None:
        raise ReportError(f"{shown(job_id)} has no series in this period: give another with --from and --to")
    return _of_job(source, row, form, data)


def _of_job(source: Source, row: UsageRow, form: str, data: Data) -> str:
    if form == "receipt":
        return receipt.text(row, "" if source.access is not None else node_name())
    if form == "card":
        return card.as_markdown(card.card(row, data, source.said))
    if form == "card-json":
        return card.as_json(card.card(row, data, source.said))
    return formats.FORMATS[form](lines.report("job", source.said, None, [row]))


def _unknown(job_id: str, known: list[str]) -> str:
    """What to say of a job that the ledger does not know; a bare number may be meant for a job of Slurm."""
    meant = [other for other in known if job_id and other.endswith(f"/{job_id}")]
    hint = f"did you mean {shown(meant[0])}?" if meant else "`clusterwatt jobs` lists those that it knows"
    return f"the ledger does not know {shown(job_id)}: {hint}"


@contextlib.contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except (LedgerError, AskError, SilentError) as error:
        raise ReportError(str(error)) from None
