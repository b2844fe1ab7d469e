"""Programs that hang, fail, print without end, or leave children behind."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from clusterwatt.program import end_all, lines_of, output_of
from tests.e2e.servers import agent, end, until


def program(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_the_answer_is_what_it_prints(tmp_path: Path) -> None:
    assert output_of([program(tmp_path / "a", "echo one; echo; printf two; echo noise >&2")], 5.0) == (
        "one\n\ntwo"
    )
    assert list(lines_of([program(tmp_path / "b", "echo one; echo two")], 5.0)) == [b"one", b"two"]


def test_arguments_are_not_read_by_a_shell(tmp_path: Path) -> None:
    assert output_of([program(tmp_path / "a", 'printf "%s|" "$@"'), "$HOME; true", "a b"], 5.0) == (
        "$HOME; true|a b|"
    )


def test_nothing_of_the_agents_environment_reaches_it_but_what_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "example")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    shows = program(tmp_path / "a", "exec env")
    names = {line.partition(b"=")[0] for line in lines_of([shows], 5.0, variables=("SLURM_CONF",))}
    assert names - {b"PWD", b"SHLVL", b"_"} == {b"PATH", b"LC_ALL", b"SLURM_CONF"}


def test_one_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    hangs = program(tmp_path / "a", f"sleep 60 & echo $! > {child}; wait")
    started_s = time.monotonic()
    with pytest.raises(TimeoutError, match=r"took more than 0\.3 s"):
        output_of([hangs], 0.3)
    assert time.monotonic() - started_s < 5
    pid = int(child.read_text())
    until(lambda: not runs(pid), 5.0, "its child has ended")


def runs(pid: int) -> bool:
    """Whether a process is there; one that nobody has waited for yet has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_one_that_closes_its_output_and_stays_is_ended(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        output_of([program(tmp_path / "a", "exec sleep 60 >&- 2>&-")], 0.3)


def test_one_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="ended with 1: Could not open device"):
        output_of([program(tmp_path / "a", "echo 'Could not open device' >&2; exit 1")], 5.0)
    with pytest.raises(OSError, match="ended with 3: no word"):
        output_of([program(tmp_path / "b", "exit 3")], 5.0)


def test_one_that_prints_without_end_is_ended(tmp_path: Path) -> None:
    endless = program(tmp_path / "a", "exec yes")
    with pytest.raises(OSError, match="printed more than 100000 bytes"):
        list(lines_of([endless], 10.0, max_bytes=100_000))
    # What it complains of is not kept whole either, and does not count.
    loud = program(tmp_path / "b", "head -c 3000000 /dev/zero >&2; echo well")
    assert output_of([loud], 10.0) == "well"


def test_one_that_is_not_read_to_its_end_is_ended(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    lines = lines_of([program(tmp_path / "a", f"echo $$ > {mark}; echo one; exec sleep 60")], 10.0)
    assert next(lines) == b"one"
    del lines
    assert not runs(int(mark.read_text()))


def with_a_child(path: Path, pids: Path) -> str:
    """A program that hangs with a child of its own, once it has written down both."""
    return program(path, f"sleep 60 & echo $$ $! > {pids}.part; mv {pids}.part {pids}; wait")


def test_all_that_run_are_ended_with_their_children(tmp_path: Path) -> None:
    said: list[OSError] = []

    def ask(name: str) -> None:
        try:
            output_of([with_a_child(tmp_path / name, tmp_path / f"{name}.pids")], 60.0)
        except OSError as error:
            said.append(error)

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    files = [tmp_path / "a.pids", tmp_path / "b.pids"]
    until(lambda: all(file.exists() for file in files), 5.0, "both run")
    end_all()
    for thread in threads:
        thread.join(5.0)
    pids = [int(pid) for file in files for pid in file.read_text().split()]
    until(lambda: not any(runs(pid) for pid in pids), 5.0, "all have ended")
    assert [str(error).rpartition("/")[2][2:] for error in said] == ["ended with -9: no word"] * 2
    assert output_of([program(tmp_path / "c", "echo well")], 5.0) == "well"


def test_an_agent_that_stops_leaves_no_program_behind(tmp_path: Path) -> None:
    pids, settings = tmp_path / "pids", tmp_path / "agent.yaml"
    with_a_child(tmp_path / "squeue", pids)
    settings.write_text(
        "collectors: {gpu: {enabled: false}}\n"
        f"workloads: {{slurm_queue: {{enabled: true, commands: {tmp_path}, timeout_seconds: 50}}}}\n"
        f"ledger: {{path: {tmp_path}/ledger.sqlite}}\n"
    )
    with agent(tmp_path, "--config", str(settings)) as server:
        until(pids.exists, 5.0, "squeue runs")
        group = [int(pid) for pid in pids.read_text().split()]
        assert all(runs(pid) for pid in group)
        assert end(server.process) == 0
        until(lambda: not any(runs(pid) for pid in group), 2.0, "squeue and its child have ended")


def test_one_that_is_not_there() -> None:
    assert not os.path.exists("/nowhere/program")
    with pytest.raises(FileNotFoundError):
        output_of(["/nowhere/program"], 1.0)


def test_a_line_without_end_is_not_kept(tmp_path: Path) -> None:
    endless = program(tmp_path / "a", "exec tr '\\0' x < /dev/zero")
    with pytest.raises(OSError, match="a printed a line of more than 1048576 bytes"):
        list(lines_of([endless], 10.0, max_bytes=256 << 20))
