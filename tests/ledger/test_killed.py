"""A writer that is killed at any moment, or runs out of room, has written whole commits and nothing else."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusterwatt.ledger.report import reader
from clusterwatt.ledger.store import Store
from tests.clocks import FakeClock
from tests.ledger.writer import JOULES
from tests.machines import REPOSITORY

KILLS = 8
COMMIT_S = 0.01  # about as long as one takes


@contextmanager
def writer(path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.ledger.writer", str(path), *arguments]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def check(path: Path) -> int:
    """Open what is left as the next agent would; all sums must be those of whole commits."""
    store = Store(path, FakeClock())
    state, _ = store.open("2023-11")
    store.close()
    commits = state.node.commits
    assert state.booked_joules() == pytest.approx(commits * JOULES, rel=1e-9)
    assert state.node.measured_joules == pytest.approx(commits * JOULES, rel=1e-9)
    with reader(path) as books:
        rows = [*books.usage(0.0, 1e11), books.unattributed(0.0, 1e11)]
        totals = sum(joules for row in rows for _, _, joules in row.totals.energy())
        assert totals == pytest.approx(commits * JOULES, rel=1e-9)
        half = [*books.usage(0.0, 1_700_003_000.0), books.unattributed(0.0, 1_700_003_000.0)]
        rest = [*books.usage(1_700_006_400.0, 1e11), books.unattributed(1_700_006_400.0, 1e11)]
        parts = sum(joules for row in (*half, *rest) for _, _, joules in row.totals.energy())
        assert parts == pytest.approx(commits * JOULES, rel=1e-9)
        assert books._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return commits


def test_kill_9_at_random_moments(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    chance = random.Random(5)
    said = 0
    for _ in range(KILLS):
        with writer(path) as process:
            assert process.stdout is not None
            for _ in range(chance.randint(1, 12)):
                said = int(process.stdout.readline())
            end_s = time.monotonic() + chance.random() * COMMIT_S
            while time.monotonic() < end_s:
                pass  # somewhere within a commit
            process.kill()
            for line in process.stdout.read().split():
                said = int(line)
        assert said <= check(path) <= said + 1  # it may have died before it could say so


def test_no_room_is_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with writer(path, str(300_000)) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        last = ""
        while (line := process.stdout.readline().strip()).isdecimal():
            last = line
        assert line in ("full", "io_error")
        process.stdin.write("\n")
        process.stdin.flush()
        after = int(process.stdout.readline())  # what could not be written went with the next
    assert after > int(last)
    store = Store(path, FakeClock())
    state, _ = store.open("2023-11")
    store.close()
    # A commit that failed is in the next one: more joules than commits would bring.
    assert state.booked_joules() == pytest.approx((state.node.commits + 1) * JOULES, rel=1e-9)
    assert state.node.measured_joules == pytest.approx(state.booked_joules(), rel=1e-12)
