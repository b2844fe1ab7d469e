"""The commands as people type them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from clusterwatt import cli
from tests.clocks import FakeClock
from tests.ledger.batches import keeper
from tests.report.books import BEGIN_S


def said(capfdbinary: pytest.CaptureFixture[bytes], *argv: str) -> str:
    assert cli.main(argv) == 0
    captured = capfdbinary.readouterr()
    assert captured.err == b""
    return captured.out.decode()


@pytest.mark.parametrize("text", ["-1.5h", "-7y", "-7days"])
def test_a_time_that_looks_like_an_option_says_which_forms_there_are(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", "--from", text]) == 2
    assert "expected now, -7d" in capsys.readouterr().err


def test_report_of_a_period_in_local_time(ledger: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    period = ("--from", "2026-11-30T13:00", "--to", "2026-12-01")
    text = said(capfdbinary, "report", "--ledger", str(ledger), *period, "--by", "user", "--format", "json")
    document = json.loads(text)
    assert document["from"] == "2026-11-30T13:00:00+01:00"
    assert document["to"] == "2026-12-01T00:00:00+01:00"
    assert [line["user"] for line in document["lines"]] == ["ann", "bob"]


def test_the_jobs_with_the_most_gpu_hours_and_the_others(
    ledger: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    period = ("--from", "2026-11-30T13:00", "--to", "2026-12-01")
    text = said(capfdbinary, "report", "--ledger", str(ledger), *period, "--limit", "1")
    first = [row.split("  ")[0] for row in text.splitlines()[2:]]
    assert first == ["slurm/1", "1 more", "unattributed", "total"]


def test_a_time_that_begins_with_a_hyphen_is_no_option(
    ledger: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert "by job" in said(capfdbinary, "report", "--ledger", str(ledger), "--from", "-7d", "--to", "-1h")


def test_the_ledger_of_the_configuration(
    ledger: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    config = tmp_path / "clusterwatt.yaml"
    config.write_text(f"ledger: {{path: {ledger}}}\n")
    text = said(capfdbinary, "jobs", "--config", str(config), "--format", "csv")
    assert text.endswith("\r\n")
    assert "slurm/1" in text


def test_job(ledger: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert said(capfdbinary, "job", "slurm/1", "--ledger", str(ledger)).startswith("Receipt of slurm/1 ")
    card = said(
        capfdbinary, "job", "slurm/1", "--ledger", str(ledger), "--format", "card-json", "--tokens", "1e9",
        "--flops-per-token", "6e9",
    )  # fmt: skip
    assert json.loads(card)["compute"]["flop"] == pytest.approx(6e18)
    assert json.loads(card)["time"]["started"] is not None
    assert BEGIN_S


BACKWARDS = (
    "--from (2026-11-30T00:00+01:00) is not before --to (2026-11-29T00:00+01:00): give an earlier --from"
)


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        (("job",), 2, "required: ID"),
        (("job", "slurm/1", "--tokens", "0"), 2, "expected a number above 0, as 1.5e12"),
        (("jobs", "--limit", "0"), 2, "expected a whole number from 1 to 999999"),
        (("report", "--limit", "all"), 2, "expected a whole number from 1 to 999999"),
        (("report", "--by", "team"), 2, "invalid choice"),
        (("report", "--from", "2026-11-30", "--to", "2026-11-29"), 2, BACKWARDS),
        (("job", "slurm/1", "--from", "2026-11-30", "--to", "2026-11-29"), 2, BACKWARDS),
        (("report", "--from", "2026-11-30", "--to", "2026-11-30"), 2, "is not before --to"),
        (("report", "--from", "2099-01-01"), 2, "--from (2099-01-01T00:00+01:00) is not before --to (20"),
        (("report", "--from", "-999999w"), 2, "--from '-999999w': expected a time from 1970 to 9998"),
        (("report", "--from", "-7D"), 2, "--from '-7D': expected now, -7d (m, h, d, w)"),
        (("report", "--to", "2026-02-30"), 2, "--to '2026-02-30': there is no such time: "),
        (("job", "slurm/77"), 1, "does not know slurm/77: `clusterwatt jobs` lists those that it knows"),
    ],
)
def test_mistakes_are_one_line(
    ledger: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], status: int, words: str
) -> None:
    assert cli.main((*argv, "--ledger", str(ledger))) == status
    text = capsys.readouterr().err
    assert words in text
    assert text.count("\n") == 1


@pytest.mark.parametrize("argv", [("jobs",), ("job", "slurm/1"), ("report",)])
def test_a_pipe_is_refused_and_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert cli.main([*argv, "--ledger", str(pipe)]) == 1
    assert "expected a plain file" in capsys.readouterr().err


@pytest.fixture
def without_jobs(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    keeper(path, FakeClock(BEGIN_S)).stop(5.0)
    return path


def test_a_ledger_without_jobs_is_named(
    without_jobs: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    asked = ("--ledger", str(without_jobs))
    assert said(capfdbinary, "jobs", *asked).startswith(f"no jobs in ledger {without_jobs} ")
    assert said(capfdbinary, "jobs", "--running", *asked).startswith("no running jobs in ledger ")
    assert said(capfdbinary, "report", *asked).splitlines()[-1].startswith("no jobs in ledger ")
    assert json.loads(said(capfdbinary, "jobs", *asked, "--format", "json"))["lines"] == []
    for command in ("jobs", "report"):
        assert "no jobs" not in said(capfdbinary, command, *asked, "--format", "csv")
