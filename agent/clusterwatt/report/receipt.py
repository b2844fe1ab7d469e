"""What a job has used on this node, as a few lines for its owner: printed by an epilog, or left as a file."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from clusterwatt import whole_file
from clusterwatt.clock import Clock
from clusterwatt.config.problems import escaped
from clusterwatt.ledger.faults import LedgerError
from clusterwatt.ledger.report import UsageRow, reader
from clusterwatt.meters.carbon import JOULES_PER_KWH
from clusterwatt.meters.cost import SECONDS_PER_HOUR
from clusterwatt.report import period
from clusterwatt.report.columns import gpus, methods
from clusterwatt.report.lines import Line, line_of

log = logging.getLogger("clusterwatt.receipts")

MODE = 0o640  # a name and a bill: for the owner of the folder and its group
MAX_FILES = 10_000
SUFFIX = ".txt"


def text(row: UsageRow, node: str = "") -> str:
    """The receipt. What is not known has no line."""
    return "\n".join(_lines(line_of(row), node)) + "\n"


class Receipts:
    """Leaves a file for each job that has ended; called after the commit that ended it, on its thread."""

    def __init__(self, directory: Path, ledger: Path, node: str, clock: Clock) -> None:
        self._directory = directory
        self._ledger = ledger
        self._node = node
        self._clock = clock

    def __call__(self, job_ids: Iterable[str]) -> None:
        """Write the receipts of these jobs; what cannot be written is logged, and lost to nobody's books."""
        try:
            with reader(self._ledger) as books:
                rows = [row for row in map(books.job, job_ids) if row is not None]
            for row in rows:
                write(self._directory, row, self._node)
            if rows:
                self._thin_out()
        except (OSError, LedgerError) as error:
            log.warning("receipts of jobs cannot be written to %s: %s", self._directory, error)

    def _thin_out(self) -> None:
        whole_file.remove_abandoned(self._directory, self._clock.wall_s())
        files = sorted(self._directory.glob(f"*{SUFFIX}"), key=lambda file: file.stat().st_mtime)
        for file in files[:-MAX_FILES]:
            with contextlib.suppress(FileNotFoundError):
                file.unlink()


def write(directory: Path, row: UsageRow, node: str = "") -> Path:
    """Write a receipt in one step, so that nobody reads half of one; returns where it is. Raises OSError."""
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    file = directory / file_name(row.key)
    with whole_file.replacing(file, mode=MODE, sync=False) as out:  # the ledger has it; many may end at once
        out.write(text(row, node).encode())
    return file


def file_name(job_id: str) -> str:
    """`slurm/4711` is `slurm-4711.txt`; what else a file's name should not hold is replaced too."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", job_id)[:200] + SUFFIX


def _lines(line: Line, node: str) -> Iterator[str]:
    record, totals = line.row.record, line.row.totals
    job = None if record is None else record.job
    said = (job.name, job.user, job.account and f"account {job.account}") if job else ()
    about = ", ".join(escaped(part) for part in said if part)
    yield f"Receipt of {escaped(line.label)}" + (f" ({about})" if about else "")
    if line.started_s is not None:
        yield _line("time", _span(line.started_s, line.ended_s))
    if node:
        yield _line("node", f"{escaped(node)}; what the job used on other nodes is not in it")
    if totals.gpu_seconds:
        hours = f"{totals.gpu_seconds / SECONDS_PER_HOUR:.2f} GPU hours"
        idle_s = totals.idle_gpu_seconds or 0.0
        models = escaped(gpus(line))
        share = idle_s / totals.gpu_seconds
        yield _line(
            "GPUs",
            f"{models + ': ' if models else ''}{hours}, of which held and not used: "
            f"{idle_s / SECONDS_PER_HOUR:.2f} ({share:.0%})".replace("%", " %"),
        )
    use = [
        f"{name} {share * 100:.1f} %"
        for name, share in (("activity", line.activity_ratio), ("tensor cores", line.tensor_ratio))
        if share is not None
    ]
    if use:
        yield _line("use", ", ".join(use))
    if line.joules is not None:
        parts = (
            f"{component} {joules / JOULES_PER_KWH:.3f}"
            for component in ("gpu", "cpu", "dram", "other")
            if (joules := line.joules_by.get(component)) is not None
        )
        how = methods(line)
        yield _line(
            "energy", f"{line.joules / JOULES_PER_KWH:.3f} kWh ({', '.join(parts)}){how and f'; by {how}'}"
        )
    if totals.carbon_grams is not None:
        yield _line("carbon", f"{totals.carbon_grams / 1000:.3f} kg CO2e")
    for currency, cost in sorted(line.row.costs.items()):
        parts = (
            f"{name} {amount:.2f}"
            for name, amount in (("energy", cost.energy), ("GPUs", cost.gpu))
            if amount is not None
        )
        idle = f"; of which for GPUs not used: {cost.idle:.2f}" if cost.idle is not None else ""
        yield _line("cost", f"{line.cost(currency) or 0.0:.2f} {currency} ({', '.join(parts)}){idle}")
    if line.coverage_ratio is not None:
        yield _line("seen", f"{line.coverage_ratio * 100:.1f} % of the time in which it held GPUs")


def _line(name: str, said: str) -> str:
    return f"  {name:<8}{said}"


def _span(started_s: float, ended_s: float | None) -> str:
    if ended_s is None:
        return f"since {period.shown(started_s)}, still running"
    minutes = max(0, round((ended_s - started_s) / 60))
    return f"{period.shown(started_s)} to {period.shown(ended_s)} ({minutes // 60} h {minutes % 60:02} min)"
