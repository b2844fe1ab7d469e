"""What the ledger costs: a report over a month, a commit, a tick, and room on disk.

python -m benchmarks.ledger [--jobs 100000] [--running 64]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.clocks import FakeClock
from tests.ledger import history
from tests.ledger.batches import ANSWERS_S, batch

from clusterwatt.attribution.entries import Amounts, Batch, Entry
from clusterwatt.clock import SystemClock
from clusterwatt.config.model import Ledger
from clusterwatt.ledger.keeper import Keeper
from clusterwatt.ledger.report import reader
from clusterwatt.report import commands
from clusterwatt.report.commands import Source

TICKS = 300
MONTH_S = 31 * 86_400


def median_ms(act: Callable[[], object], times: int = 5) -> float:
    """CPU time, which other programs on the machine move least."""
    took = []
    for _ in range(times):
        began_s = time.process_time()
        act()
        took.append(time.process_time() - began_s)
    return statistics.median(took) * 1_000


def tick(clock: FakeClock, running: int) -> Batch:
    """A second of so many jobs on eight GPUs: the GPU's share, and three parts of the host."""
    entries: dict[Entry, Amounts] = {}
    for number in range(running):
        job_id, account = f"slurm/r{number}", f"account{number % 12}"
        device = f"GPU-{number % 8}"
        gpu = Entry(job_id, account, device, "H100", "gpu", "active", "estimated", "EUR")
        entries[gpu] = Amounts(0.125, 0.0, 0.125, 0.1, 0.125, 0.05, 80.0, 0.01, 1e-5, 1e-4)
        for component in ("cpu", "dram", "other"):
            host = Entry(job_id, account, "", "", component, "", "estimated", "EUR")
            entries[host] = Amounts(joules=3.0, carbon_grams=0.001, energy_cost=1e-6)
    return batch(clock, entries)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--jobs", type=int, default=100_000)
    options.add_argument("--running", type=int, default=64)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        history.write(path, given.jobs)
        print(f"{given.jobs} finished jobs: {path.stat().st_size / 2**20:.0f} MiB")
        report(path)
        writing(path, given.running)


def report(path: Path) -> None:
    from_s, to_s = float(history.BEGIN_S), float(history.BEGIN_S + MONTH_S)
    with reader(path) as books:
        for by in ("job", "user", "account", "namespace"):
            whole = median_ms(lambda by=by: books.usage(from_s, to_s, by=by))  # type: ignore[misc] # literals
            print(f"rows of the month by {by}: {whole:.0f} ms of CPU")
        day = median_ms(lambda: books.usage(from_s + 5 * 86_400, from_s + 6 * 86_400))
        print(f"rows of a day by job: {day:.0f} ms of CPU")
        print(f"one job: {median_ms(lambda: books.job('slurm/77')):.2f} ms")
    for by, form in (("job", "table"), ("user", "table"), ("job", "csv"), ("job", "json")):
        whole = median_ms(
            lambda by=by, form=form: commands.usage(Source(path), from_s, to_s, by, form, SystemClock()),  # type: ignore[misc] # literals
            times=3,
        )
        print(f"clusterwatt report --by {by} --format {form}: {whole:.0f} ms of CPU")


def writing(path: Path, running: int) -> None:
    clock = FakeClock(wall_s=history.BEGIN_S + MONTH_S)
    keeper = Keeper(Ledger(path=str(path)), clock)
    keeper.wait(ANSWERS_S)
    takes, pages, commits = [], [], []
    held = [f"slurm/r{number}" for number in range(running)]
    for _ in range(TICKS):
        clock.advance(1.0)
        made = tick(clock, running)
        began_s = time.perf_counter()
        keeper.take([made], held)
        takes.append(time.perf_counter() - began_s)
        if keeper._in_flight is not None:  # noqa: SLF001 - the agent has no use for waiting
            assert keeper._came_back.wait(ANSWERS_S)  # noqa: SLF001 - as above
            commits.append(time.perf_counter() - began_s - takes[-1])
        began_s = time.perf_counter()
        shown = sum(1 for _ in keeper.readings())
        pages.append(time.perf_counter() - began_s)
    wal = Path(f"{path}-wal").stat().st_size
    keeper.stop(ANSWERS_S)
    for what, seconds in (("take", takes), ("readings", pages), ("commit, synced to disk", commits)):
        ordered = sorted(seconds)
        worst = ordered[int(len(ordered) * 0.99)]
        middle = statistics.median(ordered)
        print(f"{what}, {running} jobs: median {middle * 1e3:.2f} ms, p99 {worst * 1e3:.2f} ms")
    print(f"readings shown: {shown}; WAL: {wal / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
