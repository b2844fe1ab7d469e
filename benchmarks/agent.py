"""What the agent costs on a node: CPU, memory, first page, scrapes.

    python -m benchmarks.agent [--seconds 60] [--markdown]

Default settings, a tick each second, eight simulated GPUs, the machine's own network, disks and host. CPU is
what both processes use, less what the simulated library uses; `benchmarks.driver_host` says how that is
known.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
from tests.e2e.servers import Server, agent, answers, free_port, running, wait_for

from benchmarks import driver_host

SCRAPE_EVERY_S = 15.0
SETTLE_S = 10.0
STARTS = 5
CACHED_SCRAPES_A_TICK = 5


class Figure(NamedTuple):
    """One line of the table; `budget` is what the design allows."""

    what: str
    value: str
    budget: str = ""


def processes(server: Server) -> dict[str, psutil.Process]:
    """The agent and its driver host."""
    own = psutil.Process(server.process.pid)
    (host,) = own.children()
    return {"agent": own, "driver host": host}


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def pss_mib(process: psutil.Process) -> float:
    """Proportional set size: shared pages count in parts (Documentation/filesystems/proc.rst)."""
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    (kib,) = (int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024


def cpu_and_memory(server: Server, seconds: float) -> Iterator[Figure]:
    """CPU seconds a minute under a scrape each 15 s, and memory at the end."""
    running = processes(server)
    before = {name: cpu_s(process) for name, process in running.items()}
    started_s = time.monotonic()
    scrapes = max(1, round(seconds / SCRAPE_EVERY_S))
    for number in range(scrapes):
        time.sleep(max(0.0, started_s + number * SCRAPE_EVERY_S - time.monotonic()))
        server.get("/metrics")
    time.sleep(max(0.0, started_s + seconds - time.monotonic()))
    per_minute = 60 / (time.monotonic() - started_s)
    used = {name: (cpu_s(process) - before[name]) * per_minute for name, process in running.items()}
    library_s = driver_host.measure(seconds).library_s
    yield Figure("CPU, agent and driver host", f"{sum(used.values()) - library_s:.2f} s a minute", "0.5")
    yield Figure("of that, agent", f"{used['agent']:.2f} s a minute")
    yield Figure("of that, driver host", f"{used['driver host'] - library_s:.2f} s a minute")
    yield Figure("not in there: simulated library", f"{library_s:.2f} s a minute")
    pss = {name: pss_mib(process) for name, process in running.items()}
    yield Figure("memory (PSS), agent and driver host", f"{sum(pss.values()):.1f} MiB", "80")
    yield Figure("of that, driver host", f"{pss['driver host']:.1f} MiB", "25")


def scrapes(server: Server, seconds: float) -> Iterator[Figure]:
    """How long a scrape takes that meets a new snapshot, and one that meets a page rendered already."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=5)
    rendered: list[float] = []
    cached: list[float] = []
    body = b""

    def scrape() -> float:
        nonlocal body
        started_s = time.perf_counter()
        connection.request("GET", "/metrics")
        body = connection.getresponse().read()
        return (time.perf_counter() - started_s) * 1e3

    with contextlib.closing(connection):
        for _ in range(round(seconds)):
            time.sleep(1.0 - time.monotonic() % 1.0 + 0.5)  # between two ticks, which fall on whole seconds
            rendered.append(scrape())
            cached.extend(scrape() for _ in range(CACHED_SCRAPES_A_TICK))
    series = sum(1 for line in body.splitlines() if not line.startswith(b"#"))
    yield Figure("page", f"{series} series, {len(body) / 1024:.0f} KiB")
    for name, times_ms, budget in (("rendered anew", rendered, "25"), ("rendered already", cached, "2")):
        # Inclusive: of sixty scrapes the other method makes up a number beyond the slowest.
        p50, p99 = statistics.median(times_ms), statistics.quantiles(times_ms, n=100, method="inclusive")[98]
        yield Figure(
            f"scrape, {name}",
            f"p50 {p50:.1f} ms, p99 {p99:.1f} ms ({len(times_ms)} scrapes)",
            f"p99 {budget}",
        )


def first_page(folder: Path) -> Figure:
    """From the start of the process to the first answer at /metrics."""
    times_s = []
    for _ in range(STARTS):
        port = free_port()
        command = [sys.executable, "-m", "clusterwatt", "run", "--simulate", "h100", "--listen"]
        log = folder / "first_page.log"
        started_s = time.monotonic()
        with running(
            [*command, f"127.0.0.1:{port}"], log, os.environ | {"XDG_STATE_HOME": str(folder)}
        ) as process:
            wait_for(process, log, partial(answers, f"http://127.0.0.1:{port}/metrics"), "its first page")
            times_s.append(time.monotonic() - started_s)
    return Figure("first page", f"{statistics.median(times_s):.2f} s after the start", "1")


def measure(seconds: float) -> Iterator[Figure]:
    """All figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield first_page(folder)
        with agent(folder, "--simulate", "h100") as server:
            time.sleep(SETTLE_S)
            yield from cpu_and_memory(server, seconds)
            yield from scrapes(server, seconds)


def main() -> None:
    """Print the table, plain or for the README."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="length of each measurement")
    parser.add_argument("--markdown", action="store_true", help="a table for the README")
    arguments = parser.parse_args()
    line = "| {} | {} | {} |" if arguments.markdown else "{:38} {:42} {}"
    print(f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores\n")
    print(line.format("figure", "measured", "budget"))
    if arguments.markdown:
        print("|---|---|---|")
    for figure in measure(arguments.seconds):
        print(line.format(*figure), flush=True)


if __name__ == "__main__":
    main()
