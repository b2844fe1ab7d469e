"""Whose a process is that writes the files of a training run."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.sysfs import Files
from clusterwatt.workloads.writer import ProcessLookup, Writer
from tests.clocks import FakeClock
from tests.workloads.procfs import BOOT_S, Host

SLURM = "/system.slice/slurmstepd.scope/job_211/step_0/user/task_0"
SESSION = "/user.slice/user-1000.slice/session-2.scope"


def look_up(host: Host, pid: int = 700) -> Writer | None:
    return ProcessLookup(Files(host.root, host.clock)).find(pid)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, FakeClock())


def test_a_process_belongs_to_the_job_of_its_cgroup_since_its_start(host: Host, tmp_path: Path) -> None:
    host.process(700, SLURM, started_s=100.0, environ={"SLURM_JOB_ID": "999"})
    uid = (tmp_path / "proc" / "700").stat().st_uid
    assert look_up(host) == Writer("slurm/211", BOOT_S + 100, uid)


@pytest.mark.parametrize(
    ("environ", "owner"),
    [
        ({"SLURM_JOB_ID": "4242"}, "slurm/4242"),
        ({"SLURM_JOB_ID": "../x"}, "user/1000"),
        ({"SLURM_JOB_ID": ""}, "user/1000"),
        ({}, "user/1000"),
    ],
)
def test_where_the_cgroup_names_no_job_the_environment_may(
    host: Host, environ: dict[str, str], owner: str
) -> None:
    host.process(700, SESSION, environ=environ)
    found = look_up(host)
    assert found is not None
    assert found.owner == owner


def test_a_pod_is_not_left_for_what_its_environment_says(host: Host) -> None:
    pod = "/kubepods.slice/kubepods-pod0a1b2c3d_0000_1111_2222_333344445555.slice/cri-containerd-" + "a" * 64
    host.process(700, pod + ".scope", environ={"SLURM_JOB_ID": "4242"})
    found = look_up(host)
    assert found is not None
    assert found.owner == "pod/0a1b2c3d-0000-1111-2222-333344445555"


def test_a_process_that_is_gone_or_cannot_be_seen_is_none(tmp_path: Path, host: Host) -> None:
    assert look_up(host) is None
    inside = Host(tmp_path / "container", FakeClock(), shows_all=False)
    inside.process(700, SLURM)
    assert look_up(inside) is None
