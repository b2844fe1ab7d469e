"""Blocked processes: what counts, for how long, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.catalog import faults
from clusterwatt.collectors import processes
from clusterwatt.collectors.processes import ProcessesCollector
from clusterwatt.readings.host import BlockedProcesses
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock
from tests.machines import machine, put

KERNEL_THREAD = 0x0020_8040
FROZEN = 0x0041_0000
ORDINARY = 0x0040_0000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def run(
    root: Path,
    pid: int,
    state: str,
    *,
    command: str = "python3",
    flags: int = ORDINARY,
    start: int = 500,
    switches: int = 7,
) -> None:
    rest = " ".join(["0"] * 30)
    put(
        root,
        f"/proc/{pid}/stat",
        f"{pid} ({command}) {state} 1 {pid} {pid} 0 -1 {flags} 1 0 0 0 9 9 0 0 20 0 1 0 {start} {rest}\n",
    )
    put(
        root,
        f"/proc/{pid}/status",
        f"Name:\t{command}\nState:\t{state}\nvoluntary_ctxt_switches:\t{switches}\n"
        "nonvoluntary_ctxt_switches:\t99\n",
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    run(tmp_path, 1, "S", command="systemd")
    put(tmp_path, "/proc/meminfo", "MemTotal: 1 kB\n")
    return tmp_path


def watch(root: Path, clock: FakeClock) -> ProcessesCollector:
    return ProcessesCollector(Files(root, clock), clock)


def blocked(collector: ProcessesCollector) -> tuple[float, float]:
    (reading,) = collector.collect()
    assert isinstance(reading, BlockedProcesses)
    return reading.processes, reading.oldest_age_seconds


def test_nothing_is_blocked(root: Path, clock: FakeClock) -> None:
    for pid, state in enumerate("RSTtZXI", start=10):
        run(root, pid, state)
    assert blocked(watch(root, clock)) == (0, 0)


def test_the_age_is_that_of_the_oldest_since_it_was_first_seen(root: Path, clock: FakeClock) -> None:
    collector = watch(root, clock)
    run(root, 10, "D")
    assert blocked(collector) == (1, 0)
    clock.advance(15)
    run(root, 11, "D")
    assert blocked(collector) == (2, 15)
    clock.advance(300)
    assert blocked(collector) == (2, 315)
    run(root, 10, "R")
    assert blocked(collector) == (1, 300)
    run(root, 11, "S")
    assert blocked(collector) == (0, 0)


def test_a_busy_reader_is_not_one_long_sleep(root: Path, clock: FakeClock) -> None:
    """Asleep each time we look, and at work in between: the kernel counts each sleep as a switch."""
    collector = watch(root, clock)
    for switches in range(7, 40):
        run(root, 10, "D", switches=switches)
        assert blocked(collector) == (1, 0)
        clock.advance(15)


def test_another_process_under_the_same_pid_is_another(root: Path, clock: FakeClock) -> None:
    collector = watch(root, clock)
    run(root, 10, "D", start=500)
    blocked(collector)
    clock.advance(600)
    run(root, 10, "D", start=99_000)
    assert blocked(collector) == (1, 0)


@pytest.mark.parametrize(
    "command",
    ["a b", "S (x", ") S 1 1", "python3 (train) D", "((", "D", "", ") D 1 2 (", "\N{SNOWMAN}"],
)
@pytest.mark.parametrize(("state", "number"), [("D", 1), ("S", 0)])
def test_commands_with_blanks_and_parentheses(
    root: Path, clock: FakeClock, command: str, state: str, number: int
) -> None:
    run(root, 10, state, command=command)
    assert blocked(watch(root, clock))[0] == number


@pytest.mark.parametrize("flags", [KERNEL_THREAD, FROZEN])
def test_kernel_threads_and_frozen_tasks_sleep_so_by_design(root: Path, clock: FakeClock, flags: int) -> None:
    run(root, 10, "D", flags=flags)
    assert blocked(watch(root, clock)) == (0, 0)


def test_a_process_that_ends_while_we_look(root: Path, clock: FakeClock) -> None:
    (root / "proc/10").mkdir()
    run(root, 11, "D")
    (root / "proc/11/status").unlink()
    assert blocked(watch(root, clock)) == (1, 0)


def test_processes_that_are_hidden_from_us_are_not_counted_as_none(tmp_path: Path, clock: FakeClock) -> None:
    run(tmp_path, 4711, "S")
    with pytest.raises(PermissionError):
        blocked(watch(tmp_path, clock))


def test_machines() -> None:
    clock = FakeClock()
    for name, number in (("h100-ib", 0), ("nfs-lustre", 2)):
        collector = ProcessesCollector(machine(name), clock)
        assert blocked(collector) == (number, 0)
        clock.advance(15)
        assert blocked(collector) == (number, 15 if number else 0)


def test_this_machine(clock: FakeClock) -> None:
    number, age_s = blocked(ProcessesCollector(Files("/", clock), clock))
    assert number >= 0
    assert age_s == 0


def test_names_keep_the_rules() -> None:
    assert list(faults(processes.METRICS)) == []
