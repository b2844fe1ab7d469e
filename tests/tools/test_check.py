"""The report of `make check`: what fails, what was left out, and what that means for CI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import apt
from tests.tools.check import CLOSING_LINE, SKIP_LINE, Report, Step, attempt, run_step


@pytest.mark.parametrize(
    "line",
    [
        "1799 passed in 110.80s (0:01:50)",
        "1 failed, 1799 passed, 2 skipped in 9.81s",
        "========= 15 passed, 6 deselected in 74.95s (0:01:14) =========",
    ],
)
def test_the_closing_line_of_pytest_is_found(line: str) -> None:
    found = CLOSING_LINE.search(f"..s..\nsomething passed in between\n{line}\n")
    assert found
    assert found.group() == line


def test_a_skipped_test_is_left_out() -> None:
    found = SKIP_LINE.search("SKIPPED [1] tests/test_x.py:12: promtool is not here: fetch it\n")
    assert found
    assert (found["where"], found["why"]) == ("tests/test_x.py:12", "promtool is not here: fetch it")


def test_a_step_that_fails_shows_what_it_said(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    run_step(Step("good", (sys.executable, "-c", "print('quiet')")), report)
    run_step(Step("bad", (sys.executable, "-c", "raise SystemExit('the reason')")), report)
    output = capsys.readouterr().out
    assert report.failed == ["bad"]
    assert "quiet" not in output
    assert "the reason" in output


def test_what_cannot_be_had_is_left_out_with_its_reason() -> None:
    report = Report()

    def unavailable() -> Path:
        raise apt.Unavailable("no apt-get on this machine")

    def broken() -> Path:
        raise subprocess.CalledProcessError(1, "pip", stderr="first\nno network\n")

    assert attempt("tool", report, unavailable) is None
    assert attempt("environment", report, broken) is None
    assert report.left_out == ["tool: no apt-get on this machine", "environment: no network"]
