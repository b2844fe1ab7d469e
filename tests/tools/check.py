"""`make check`: every check in turn, all failures at the end, and what could not be checked here.

With `--full` nothing may be left out: a program that cannot be had, or a test that skips, is a failure. What
the machine itself cannot do, for want of a kernel or of rights, is told and is no failure.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.tools import apt, pythons

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
SOURCES = ("agent", "tests", "benchmarks", "dashboards")
PROGRAMS = (
    *("promtool", "prometheus", "amtool", "alertmanager", "node_exporter"),
    *("systemd-analyze", "victoria-metrics"),
)
PROGRAMS_FULL = (*PROGRAMS, "chromium", "ip", "slurmctld")
STEP_TIMEOUT_S = 900

PYTEST = ("-m", "pytest", "--quiet", "-rs", "--durations=3", "--durations-min=5")
PARALLEL = ("-n", "2")
# Other interpreters run what a difference between them has shown in before, or would: text of errors, regular
# expressions, threads, dates, sqlite, parsing.
TELLING = (
    *("tests/attribution", "tests/config", "tests/feeds", "tests/flight", "tests/ledger", "tests/meters"),
    *("tests/nvml", "tests/report", "tests/training", "tests/workloads", "tests/expose/test_render.py"),
    *("tests/test_cli.py", "tests/test_golden.py", "tests/test_pipeline.py", "tests/test_worker.py"),
)
CLOSING_LINE = re.compile(r"^=* ?\d+ (passed|failed|skipped|error|deselected).* in [\d.]+s.*$", re.MULTILINE)
MACHINE = "this machine"  # so begins the reason of a skip that no program can mend: kernel, rights
SKIP_LINE = re.compile(r"^SKIPPED \[\d+\] (?P<where>\S+): (?P<why>.*)$", re.MULTILINE)


@dataclass
class Report:
    """What has been found so far."""

    failed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Step:
    """A command that succeeds or fails."""

    name: str
    command: tuple[str | Path, ...]


def static_steps() -> Iterator[Step]:
    """What is checked without running the agent."""
    yield Step("format", (BIN / "ruff", "format", "--check", *SOURCES))
    yield Step("lint", (BIN / "ruff", "check", *SOURCES))
    yield Step("types", (BIN / "mypy",))
    yield Step("layers", (BIN / "lint-imports", "--no-cache"))


def unit_step(python: Path, version: str, *, full: bool, only: Sequence[str] = ()) -> Step:
    """Unit tests, golden pages and rules on one interpreter; `only`: in these files and folders."""
    marks = "not e2e and not scale" if full else "not e2e and not scale and not full"
    return Step(f"unit tests, Python {version}", (python, *PYTEST, *PARALLEL, "-m", marks, *only))


def end_to_end_step(*, full: bool, alone: bool) -> Step:
    """The real agent among real servers; one test at a time. `alone`: those that measure rates and times."""
    marks = (
        "e2e and not scale"
        + ("" if full else " and not full")
        + (" and alone" if alone else " and not alone")
    )
    name = "end to end, measured" if alone else "end to end"
    return Step(name, (sys.executable, *PYTEST, "-m", marks, "tests/e2e"))


def run_step(step: Step, report: Report) -> None:
    """Run it; its output is shown when it fails, pytest's closing line always."""
    started_s = time.monotonic()
    status, output = run_command(step.command)
    closing = CLOSING_LINE.search(output)
    if status != 0:
        report.failed.append(step.name)
        say("FAIL", step.name, started_s, output)
    else:
        say("ok", step.name, started_s, closing.group() if closing else "")
    for skip in SKIP_LINE.finditer(output):
        to = report.impossible if skip["why"].startswith(MACHINE) else report.left_out
        to.append(f"{step.name}: {skip['where']}: {skip['why']}")


def run_command(command: Sequence[str | Path]) -> tuple[int, str]:
    """Exit status and output; a command that does not end is interrupted, so that it can clean up."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"PATH": f"{os.environ['PATH']}{os.pathsep}{apt.BIN}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=STEP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate()
            output += f"\ninterrupted after {STEP_TIMEOUT_S} s"
            return 1, output
        return process.returncode, output


def attempt(name: str, report: Report, get: Callable[[], Path]) -> Path | None:
    """Get something that the checks need; when it cannot be had, they go on without it."""
    started_s = time.monotonic()
    try:
        path = get()
    except (apt.Unavailable, subprocess.CalledProcessError) as error:
        complaint = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        report.left_out.append(f"{name}: {(complaint.strip() or str(error)).splitlines()[-1]}")
        say("none", name, started_s)
        return None
    say("ok", name, started_s)
    return path


def say(result: str, name: str, started_s: float, output: str = "") -> None:
    """One line for each step as soon as it is done, and what is worth reading of its output; in one piece."""
    line = f"{result:4} {name} ({time.monotonic() - started_s:.1f} s)\n"
    sys.stdout.write(f"{line}{output.rstrip()}\n" if output else line)
    sys.stdout.flush()


def check(*, full: bool) -> Report:
    """Run all steps, whatever fails on the way.

    The end-to-end tests mostly wait, so other work goes on beside them. With `full` those that measure rates
    and times have the machine for themselves.
    """
    report = Report()
    found = pythons.others()
    chosen = pythons.ends(found)
    with ThreadPoolExecutor(max_workers=1) as installing, ThreadPoolExecutor(max_workers=1) as background:
        for step in static_steps():
            run_step(step, report)
        for name in PROGRAMS_FULL if full else PROGRAMS:
            attempt(name, report, partial(apt.fetch, name))
        if full:
            run_step(end_to_end_step(full=True, alone=True), report)  # before anything writes to the disk
        others = {
            version: installing.submit(pythons.environment, version, python)
            for version, python in chosen.items()
        }
        end_to_end = [background.submit(run_step, end_to_end_step(full=full, alone=False), report)]
        if not full:
            end_to_end.append(background.submit(run_step, end_to_end_step(full=False, alone=True), report))
        run_step(unit_step(Path(sys.executable), f"3.{sys.version_info.minor}", full=full), report)
        for version, environment in others.items():
            python = attempt(f"environment, Python {version}", report, environment.result)
            if python:
                run_step(unit_step(python, version, full=False, only=TELLING), report)
        for step_done in end_to_end:
            step_done.result()
    return report


def main() -> int:
    """Run the checks; 0 when all that could be checked is good."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="nothing may be left out")
    full = parser.parse_args().full
    started_s = time.monotonic()
    report = check(full=full)
    if report.impossible:
        print("\nNot possible here:", *report.impossible, sep="\n  ")
    if report.left_out:
        print("\nLeft out:", *report.left_out, sep="\n  ")
    if report.failed:
        print("\nFailed:", *report.failed, sep="\n  ")
    bad = bool(report.failed) or (full and bool(report.left_out))
    if full and report.left_out:
        print("\nFULL=1 allows nothing to be left out.")
    print(f"\n{'FAILED' if bad else 'All good'} after {time.monotonic() - started_s:.0f} s")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
