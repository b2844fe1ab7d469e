"""Cgroups that the kernel makes, with a process that uses CPU and memory in them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.sysfs import Files
from clusterwatt.workloads.cgroup import owner_of_lines
from clusterwatt.workloads.cgroups import MOUNT, Cgroups, WorkCgroup
from tests.clocks import FakeClock
from tests.e2e.servers import until

pytestmark = [pytest.mark.e2e, pytest.mark.full]

WITHIN_S = 10.0
HELD_BYTES = 50_000_000
WORK = f"held = bytearray({HELD_BYTES})\nfor i in range(0, len(held), 4096): held[i] = 1\nwhile True: pass"
V1_NEEDED = ("freezer", "memory")
V1_CPU = ("cpuacct", "cpu,cpuacct")


def hierarchies() -> list[Path]:
    """Where a job's cgroup has to be made here: in the one hierarchy of v2, or in those of v1 that count."""
    if (Path(MOUNT) / "cgroup.controllers").exists():
        return [Path(MOUNT)]
    return [Path(MOUNT, name) for name in (*V1_NEEDED, *V1_CPU) if Path(MOUNT, name).is_dir()]


@pytest.fixture
def job() -> Iterator[str]:
    """The number of a job that has a cgroup as Slurm makes it, with a busy process in its step."""
    if os.geteuid() != 0 or not os.access(MOUNT, os.W_OK):
        pytest.skip("this machine lets nobody make cgroups: that needs root and a tree that may be written")
    number = str(1_000_000_000 + os.getpid())
    v2 = (Path(MOUNT) / "cgroup.controllers").exists()
    path = (
        f"test{number}_slurmstepd.scope/job_{number}/step_0"
        if v2
        else f"slurm_test{number}/uid_0/job_{number}/step_0"
    )
    process = subprocess.Popen([sys.executable, "-c", WORK])
    try:
        for top in hierarchies():
            (top / path).mkdir(parents=True)
            (top / path / "cgroup.procs").write_text(str(process.pid))
        yield number
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        for top in hierarchies():
            folder = top / path
            while folder != top:
                with contextlib.suppress(FileNotFoundError):
                    folder.rmdir()
                folder = folder.parent


def of(looking: Cgroups, number: str) -> WorkCgroup | None:
    found = [cgroup for cgroup in looking.scan() if cgroup.owner.job == number]
    assert len(found) <= 1
    return found[0] if found else None


def test_a_jobs_cgroup_is_found_and_what_it_uses_is_read(job: str) -> None:
    clock = FakeClock()
    looking = Cgroups(Files("/", SystemClock()), clock, {"slurm"})
    cgroup = of(looking, job)
    assert cgroup is not None
    (pid,) = looking.pids(cgroup)
    owner = owner_of_lines(Path(f"/proc/{pid}/cgroup").read_text())
    assert owner is not None
    assert (owner.name, owner.step) == (f"slurm/{job}", "0")
    before_s = looking.cpu_seconds(cgroup)
    assert before_s is not None
    until(lambda: (looking.cpu_seconds(cgroup) or 0.0) > before_s + 0.1, WITHIN_S, "it uses CPU")

    def memory() -> float:
        clock.advance(10)
        return looking.memory_bytes(cgroup) or 0.0

    if memory():  # on v2 not every cgroup has the controller
        until(lambda: memory() > 0.5 * HELD_BYTES, WITHIN_S, "it holds memory")
        assert memory() < 4 * HELD_BYTES


def test_a_leaf_is_told_by_its_links_and_a_new_child_by_one_more(job: str) -> None:
    looking = Cgroups(Files("/", SystemClock()), FakeClock(), {"slurm"})
    cgroup = of(looking, job)
    assert cgroup is not None
    directory = Path(cgroup.directory)
    assert directory.stat().st_nlink == 3
    assert (directory / "step_0").stat().st_nlink == 2
    other = directory.with_name("job_1999999999")
    other.mkdir()
    try:
        assert of(looking, "1999999999") is not None
    finally:
        other.rmdir()
    assert of(looking, "1999999999") is None
    assert of(looking, job) is not None
