"""Whose the processes on GPUs are, by their cgroups."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.gpu import GpuProcess
from clusterwatt.readings.work import Job, ProcessOwner
from clusterwatt.source import Account
from clusterwatt.sysfs import Files
from clusterwatt.workloads.process import Listed, ProcessCollector, listed
from tests.clocks import FakeClock
from tests.faulty import refuse_open
from tests.machines import put
from tests.workloads.procfs import BOOT_S, Host

POD_UID = "7922aa99-0bd4-4a9c-8f1f-4b9a0f9d3b5e"
CONTAINER = "c0ffee" + "0" * 58


class Bench:
    def __init__(self, root: Path, *, shows_all: bool = True) -> None:
        self.clock = FakeClock()
        self.host = Host(root, self.clock, shows_all=shows_all)
        self.on_gpus: dict[int, float] = {}
        self.collector = ProcessCollector(Files(root, self.clock), self.clock, self._listed)

    def _listed(self) -> Listed:
        return self.on_gpus

    def found(self, *pids: int) -> list[Reading]:
        """What is said of processes that are on a list made now."""
        self.on_gpus = dict.fromkeys(pids, self.clock.monotonic_s())
        return list(self.collector.collect())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def owners(readings: list[Reading]) -> dict[int, str]:
    return {reading.pid: reading.owner for reading in readings if isinstance(reading, ProcessOwner)}


def jobs(readings: list[Reading]) -> list[Job]:
    return [reading for reading in readings if isinstance(reading, Job)]


def failures(readings: list[Reading]) -> list[Failure]:
    return [reading for reading in readings if isinstance(reading, Failure)]


def test_each_process_has_the_owner_of_its_cgroup(bench: Bench) -> None:
    slices = "/kubepods.slice/kubepods-pod" + POD_UID.replace("-", "_") + ".slice"
    bench.host.process(11, "/system.slice/slurmstepd.scope/job_211/step_0/user/task_0")
    bench.host.process(12, f"{slices}/cri-containerd-{CONTAINER}.scope")
    bench.host.process(13, f"/system.slice/docker-{CONTAINER}.scope")
    bench.host.process(14, "/system.slice/trainer.service")
    bench.host.process(15, "/user.slice/user-1000.slice/session-42.scope")
    bench.host.process(16, "/init.scope")
    assert owners(bench.found(11, 12, 13, 14, 15, 16, 17)) == {
        11: "slurm/211",
        12: f"pod/{POD_UID}",
        13: f"container/{CONTAINER[:12]}",
        14: "unit/trainer.service",
        15: "user/1000",
    }


def test_without_processes_on_gpus_nothing_is_looked_at(bench: Bench, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "proc")
    assert bench.found() == []


def test_units_and_users_are_jobs_by_themselves(bench: Bench, tmp_path: Path) -> None:
    put(tmp_path, "/etc/passwd", "root:x:0:0::/root:/bin/sh\nada:x:1000:1000:Ada:/home/ada:/bin/sh\n")
    bench.host.process(14, "/system.slice/trainer.service", started_s=500.0)
    bench.host.process(15, "/user.slice/user-1000.slice/session-42.scope", started_s=600.0)
    bench.host.process(16, "/user.slice/user-4711.slice/user@4711.service/app.slice/run-r9f.scope")
    bench.host.process(17, "/system.slice/slurmstepd.scope/job_211/step_0")
    uid = str(os.getuid())  # of the made-up processes
    unit, user, nameless = jobs(bench.found(14, 15, 16, 17))
    assert (unit.job_id, unit.kind, unit.name, unit.uid) == (
        "unit/trainer.service",
        "service",
        "trainer.service",
        uid,
    )
    assert (user.job_id, user.kind, user.name, user.user, user.uid) == (
        "user/1000",
        "interactive",
        "ada",
        "ada",
        "1000",
    )
    assert (nameless.name, nameless.user, nameless.uid) == ("4711", "4711", "4711")
    assert (unit.started_s, user.started_s) == (BOOT_S + 500.0, BOOT_S + 600.0)
    assert {unit.scheduler, user.scheduler} == {"process"}


def test_a_job_began_with_its_oldest_process_also_when_that_has_ended(bench: Bench) -> None:
    session = "/user.slice/user-1000.slice/session-42.scope"
    bench.host.process(15, session, started_s=600.0)
    bench.host.process(16, session, started_s=400.0)
    assert [job.started_s for job in jobs(bench.found(15, 16))] == [BOOT_S + 400.0]
    assert [job.started_s for job in jobs(bench.found(15))] == [BOOT_S + 400.0]
    assert jobs(bench.found(99)) == []
    assert [job.started_s for job in jobs(bench.found(15))] == [BOOT_S + 600.0]


def test_a_user_who_is_added_later_gets_a_name(bench: Bench, tmp_path: Path) -> None:
    bench.host.process(15, "/user.slice/user-1000.slice/session-42.scope")
    assert jobs(bench.found(15))[0].user == "1000"
    put(tmp_path, "/etc/passwd", "ada:x:1000:1000::/:/bin/sh\n")
    assert jobs(bench.found(15))[0].user == "ada"


# --- whose number it is --------------------------------------------------------------------------------


def test_g08_without_the_hosts_pids_no_process_is_attributed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, shows_all=False)
    bench.host.process(17, "/system.slice/clusterwatt.service", command="agent")
    found = bench.found(17, 31007)
    assert owners(found) == {}
    assert jobs(found) == []
    (failure,) = failures(found)
    assert (failure.item, failure.reason, failure.ongoing) == ("host pids", "hidden", False)
    assert "hostPID" in failure.detail
    assert "31007" not in failure.detail
    assert [failure.ongoing for failure in failures(bench.found(17))] == [True]


def test_g08_with_the_hosts_proc_both_resolve_through_it(bench: Bench) -> None:
    bench.host.process(17, "/system.slice/slurmstepd.scope/job_5/step_0")
    bench.host.process(31007, "/system.slice/slurmstepd.scope/job_6/step_0")
    assert owners(bench.found(17, 31007)) == {17: "slurm/5", 31007: "slurm/6"}


def test_a_process_that_has_ended_has_no_owner(bench: Bench, tmp_path: Path) -> None:
    bench.host.process(11, "/system.slice/slurmstepd.scope/job_211/step_0")
    assert owners(bench.found(11)) == {11: "slurm/211"}
    shutil.rmtree(tmp_path / "proc/11")
    assert bench.found(11) == []


def test_a_number_that_was_given_to_a_new_process_since_the_list_is_nobodys(bench: Bench) -> None:
    bench.on_gpus = {11: bench.clock.monotonic_s()}
    bench.host.later(8.0)
    bench.host.process(
        11, "/system.slice/slurmstepd.scope/job_9/step_0", started_s=bench.clock.monotonic_s() - 3.0
    )
    assert list(bench.collector.collect()) == []
    bench.on_gpus = {11: bench.clock.monotonic_s()}  # and now it is on a GPU itself
    assert owners(list(bench.collector.collect())) == {11: "slurm/9"}


def test_a_process_that_began_just_before_the_list_is_taken(bench: Bench) -> None:
    bench.host.process(11, "/system.slice/slurmstepd.scope/job_9/step_0", started_s=bench.clock.monotonic_s())
    assert owners(bench.found(11)) == {11: "slurm/9"}
    bench.host.later(20.0)
    assert owners(list(bench.collector.collect())) == {11: "slurm/9"}


def test_the_newest_list_with_a_process_counts() -> None:
    def on(pid: int, listed_s: float) -> GpuProcess:
        return GpuProcess("0", "GPU-a", pid, "compute", 1.0, None, listed_s)

    assert listed([on(1, 5.0), on(2, 5.0), on(1, 9.0), on(1, 7.0)]) == {1: 9.0, 2: 5.0}
    assert listed([]) == {}


# --- what goes wrong -----------------------------------------------------------------------------------


def test_a_process_that_may_not_be_read_does_not_take_the_others_down(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.host.process(11, "/system.slice/slurmstepd.scope/job_211/step_0")
    bench.host.process(31007, "/system.slice/slurmstepd.scope/job_212/step_0")
    refuse_open(monkeypatch, "/31007")
    found = bench.found(31007, 11)
    assert owners(found) == {11: "slurm/211"}
    (failure,) = failures(found)
    assert failure.reason == "permission"
    assert "31007" not in failure.detail


@pytest.mark.parametrize("name", ["stat", "cgroup"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"31 (a) b) S 1"])
def test_a_file_with_nonsense_is_no_owner(bench: Bench, tmp_path: Path, name: str, content: bytes) -> None:
    bench.host.process(11, "/system.slice/slurmstepd.scope/job_211/step_0")
    bench.host.process(12, "/system.slice/slurmstepd.scope/job_211/step_0")
    put(tmp_path, f"/proc/11/{name}", content)
    assert owners(bench.found(11, 12)) == {12: "slurm/211"}


def test_a_name_with_brackets_and_blanks_does_not_shift_the_fields(bench: Bench) -> None:
    bench.host.process(11, "/system.slice/slurmstepd.scope/job_211/step_0", command="a) S 1 (b) 2")
    assert owners(bench.found(11)) == {11: "slurm/211"}


def test_g18_neither_command_line_nor_environment_leaves_proc(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cgroup = "/system.slice/trainer.service"
    bench.host.process(4242, cgroup, environ={"DB_PASSWORD": "EXAMPLE2"}, command="EXAMPLE-NOT-REAL")
    put(tmp_path, "/proc/4242/cmdline", "python\0train.py\0--api-key=EXAMPLE-NOT-REAL\0")
    bench.on_gpus = {4242: bench.clock.monotonic_s()}
    with caplog.at_level(logging.DEBUG):
        said = repr(Account("process", bench.clock).without_failures(bench.collector.collect()))
    assert "unit/trainer.service" in said
    assert "EXAMPLE" not in said + caplog.text
