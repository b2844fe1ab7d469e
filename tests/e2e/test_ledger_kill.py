"""kill -9 at random moments: what the ledger holds is the truth of one commit ago, and Prometheus agrees.

The simulated counters are exact integrals over the calendar's time, so that the truth of any moment is known
without the agent. `CLUSTERWATT_KILLS` sets how often it is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
import urllib.error
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterwatt.ledger.report import reader
from clusterwatt.simulate.nvml import SimulatedLibrary
from tests.e2e.page import Page
from tests.e2e.servers import Server, free_port, get, prometheus, query, running, until

pytestmark = pytest.mark.e2e

KILLS = int(os.environ.get("CLUSTERWATT_KILLS", "20"))
COMMIT_S = 0.5
TICK_S = 1.0  # a commit writes what a tick has booked
LIFE_S = (0.4, 3.6)
SCRAPES = 3
WITHIN_S = 30.0
DURABLE = ("clusterwatt_job_", "clusterwatt_unattributed_", "clusterwatt_account_", "clusterwatt_unobserved_")
JOBS = "clusterwatt_job_energy_joules_total"
NAMES = "clusterwatt_job_info"
NOBODY = "clusterwatt_unattributed_energy_joules_total"
COMMITTED = "clusterwatt_ledger_commit_timestamp_seconds"
BURN = "while True: pass"


class Truth:
    """What the boards have drawn since they were loaded."""

    def __init__(self) -> None:
        self._boards = SimulatedLibrary("h100", 8, 1, time.time).gpus

    def joules(self, at_s: float) -> float:
        return sum(board.energy_j(at_s) for board in self._boards)


class Watch:
    """Every durable counter ever seen on the page; none may fall."""

    def __init__(self) -> None:
        self.highest: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.pages = 0

    def look(self, url: str) -> Page | None:
        try:
            page = Page(get(f"{url}/metrics"))
        except (urllib.error.URLError, OSError):
            return None
        self.pages += 1
        for name in page.names():
            if name.startswith(DURABLE) and name.endswith("_total"):
                for labels, value in page.series(name):
                    key = name, frozenset(labels.items())
                    assert value >= self.highest.get(key, 0.0), f"{name} {labels} fell"
                    self.highest[key] = value
        return page


@contextlib.contextmanager
def life(folder: Path, port: int, number: int) -> Iterator[Server]:
    """An agent from its start on; it may not answer yet."""
    log, url = folder / f"agent-{number}.log", f"http://127.0.0.1:{port}"
    settings = (f"ledger.path={folder / 'ledger.db'}", f"ledger.commit_seconds={COMMIT_S}")
    command = [
        sys.executable,
        "-m",
        "clusterwatt",
        "run",
        "--simulate",
        "h100",
        "--listen",
        f"127.0.0.1:{port}",
    ]
    command += [part for setting in settings for part in ("--set", setting)]
    variables = {name: text for name, text in os.environ.items() if not name.startswith("CLUSTERWATT_")}
    with running(command, log, variables | {"XDG_STATE_HOME": str(folder)}) as process:
        yield Server(process, url, log)


def left_behind(path: Path) -> tuple[float, float]:
    """As the next agent finds it: what the boards' counters stood at, and what is booked on GPUs."""
    with reader(path) as books:
        rows = [*books.usage(0.0, 1e11), books.unattributed(0.0, 1e11)]
        info = books.info()
        raw = books.counters()
    parts = [(part, joules) for row in rows for part, _, joules in row.totals.energy()]
    assert info.booked_joules == pytest.approx(info.measured_joules, rel=1e-9)
    assert sum(joules for _, joules in parts) == pytest.approx(info.booked_joules, rel=1e-9)
    return sum(raw.values()), sum(joules for part, joules in parts if part == "gpu")


def samples(store: Server, expression: str) -> list[tuple[float, float]]:
    """Time and value of each sample of one series."""
    answer = json.loads(store.get("/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
    (series,) = answer["data"]["result"]
    return [(float(at_s), float(value)) for at_s, value in series["values"]]


def increase(store: Server, name: str, from_s: float, to_s: float) -> float:
    """What Prometheus takes the rise between two of its samples for."""
    window_ms = round((to_s - from_s) * 1_000) + 1
    rise = f'sum(increase({name}{{component="gpu"}}[{window_ms}ms] @ {to_s:.3f}))'
    return query(store, rise)[""]


def test_kill_9_loses_one_commit_at_most_and_invents_nothing(
    tmp_path: Path, prometheus_program: Path
) -> None:
    truth, watch, chance = Truth(), Watch(), random.Random(7)
    port, ledger = free_port(), tmp_path / "ledger.db"
    began_s = time.time()
    with contextlib.ExitStack() as stack:
        stack.enter_context(running([sys.executable, "-c", BURN], tmp_path / "burn.log"))
        with life(tmp_path, port, 0) as server:

            def complete() -> Page | None:
                page = watch.look(server.url)
                return page if page is not None and JOBS in page and NOBODY in page else None

            until(complete, WITHIN_S, "the jobs' energy")
            seen_s = time.time()
            store = stack.enter_context(prometheus(prometheus_program, tmp_path, {"node": server.url}, 1))
            until(lambda: query(store, f"count_over_time({NOBODY}[1m]) >= {SCRAPES}"), WITHIN_S, "scrapes")
            server.process.kill()
        counted, held = left_behind(ledger)
        at_first = counted - held  # what the counters stood at when it all began
        assert truth.joules(began_s) <= at_first <= truth.joules(seen_s)
        late = 0
        for number in range(1, KILLS + 1):
            with life(tmp_path, port, number) as server:
                answers_since_s, end_s = None, time.monotonic() + chance.uniform(*LIFE_S)
                while time.monotonic() < end_s:
                    page = watch.look(server.url)
                    assert page is None or NAMES not in page or JOBS in page, "jobs without their totals"
                    if answers_since_s is None and page is not None and JOBS in page:
                        answers_since_s = time.time()
                    time.sleep(chance.uniform(0.02, 0.2))
                assert server.process.poll() is None, server.log.read_text()
                server.process.kill()
                killed_s = time.time()
                server.process.wait()
            counted, held = left_behind(ledger)
            assert held == pytest.approx(counted - at_first, abs=1.0), "booked is what the counters counted"
            assert counted <= truth.joules(killed_s), "more than was drawn"
            if answers_since_s is not None and killed_s - answers_since_s > TICK_S + COMMIT_S:
                late += counted < truth.joules(killed_s - TICK_S - COMMIT_S)
        assert late <= KILLS // 4, "the ledger lags behind by more than a commit"
        # What the last life of these left behind, against all that was drawn since the first reading.
        with life(tmp_path, port, KILLS + 1) as server:

            def goes_on() -> bool:
                page = watch.look(server.url)
                series = () if page is None else (*page.series(JOBS), *page.series(NOBODY))
                return sum(value for labels, value in series if labels["component"] == "gpu") > held + 1.0

            until(goes_on, WITHIN_S, "what was drawn meanwhile")
            before = len(samples(store, f"{COMMITTED}[1h]"))
            until(lambda: len(samples(store, f"{COMMITTED}[1h]")) >= before + SCRAPES, WITHIN_S, "scrapes")
            watch.look(server.url)
        assert watch.pages > KILLS
        commits = samples(store, f"{COMMITTED}[1h]")
        (first_s, first_commit_s), (last_s, last_commit_s) = commits[0], commits[-1]
        risen = increase(store, JOBS, first_s, last_s) + increase(store, NOBODY, first_s, last_s)
        drawn = truth.joules(last_commit_s) - truth.joules(first_commit_s)
        assert risen == pytest.approx(drawn, rel=0.005)
        assert query(store, f"sum(resets({JOBS}[1h])) + sum(resets({NOBODY}[1h]))") == {"": 0.0}
    counted, held = left_behind(ledger)
    assert held == pytest.approx(counted - at_first, abs=1.0)
