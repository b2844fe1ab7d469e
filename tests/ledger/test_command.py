"""`clusterwatt ledger`: what it holds, copies, and what it says when there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterwatt.cli import main
from tests.clocks import FakeClock
from tests.ledger.batches import amounts, batch, commit, gpu_entry, keeper


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger whose agent runs."""
    return tmp_path / "ledger.db"


def ledger(path: Path, *arguments: str) -> int:
    return main(["ledger", *arguments, "--set", f"ledger.path={path}"])


def test_info_beside_the_agent(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    books = keeper(path, clock)
    commit(books, clock, batch(clock, {gpu_entry(): amounts(joules=3.6e6)}, unobserved_seconds=9.0))
    assert ledger(path, "info") == 0
    said = capsys.readouterr().out
    for line in (
        f"ledger           {path}",
        "last commit      2023-11-14 22:13:20 UTC",
        "hours            2023-11-14 22:00:00 UTC to 2023-11-14 22:00:00 UTC",
        "jobs             1",
        "measured         1.000 kWh",
        "booked           1.000 kWh",
        "not observed     9 s",
    ):
        assert line in said.splitlines()
    books.stop(5.0)


def test_a_ledger_is_named_as_for_the_reports(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    books = keeper(path, clock)
    commit(books, clock, batch(clock, {gpu_entry(): amounts()}))
    books.stop(5.0)
    assert main(["ledger", "info", "--ledger", str(path)]) == 0
    assert f"ledger           {path}" in capsys.readouterr().out


def test_backup_beside_the_agent(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    books = keeper(path, clock)
    commit(books, clock, batch(clock, {gpu_entry(): amounts()}))
    copy = tmp_path / "copy.db"
    assert ledger(path, "backup", str(copy)) == 0
    assert ledger(path, "backup", str(copy)) == 1
    assert "--force replaces it" in capsys.readouterr().err
    assert ledger(path, "backup", str(copy), "--force") == 0
    books.stop(5.0)
    assert ledger(copy, "info") == 0
    assert "jobs             1" in capsys.readouterr().out


def test_what_is_wrong_is_one_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ledger(path, "info") == 1
    assert capsys.readouterr().err == (
        f"clusterwatt: {path}: there is no ledger; it is where ledger.path of the agent says\n"
    )
    assert ledger(path, "backup") == 2
    assert ledger(path, "info", "x") == 2
    path.write_text("no database at all " * 200)
    assert ledger(path, "info") == 1
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize("words", [("info",), ("backup", "copy.db")])
def test_a_pipe_is_refused_and_not_waited_for(
    path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    assert ledger(path, *words) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"clusterwatt: {path}: expected a plain file, found a pipe or device")
    assert said.count("\n") == 1


def test_an_empty_file_is_no_ledger_yet(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert ledger(path, "info") == 1
    said = capsys.readouterr().err
    assert said.startswith(f"clusterwatt: {path}: it is empty: no ledger yet")
    assert said.count("\n") == 1
