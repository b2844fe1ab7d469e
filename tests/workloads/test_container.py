"""Containers with GPUs: which they were given, by what a process in them was started with."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.work import Claim, Job, JobHostUse
from clusterwatt.source import Account
from clusterwatt.sysfs import Files
from clusterwatt.workloads.container import ContainerCollector, Inside, given
from tests.clocks import FakeClock
from tests.faulty import refuse_open
from tests.workloads.trees import BOOT_S, Tree

FIRST, SECOND = "c0ffee" + "0" * 58, "decade" + "1" * 58
DOCKER = f"/system.slice/docker-{FIRST}.scope"
GPU, MIG = "GPU-2afdc162-a1a9-481c-97e9-c98e6059d085", "MIG-77e5ae5f-2d17-5a7b-9bf2-a6a0dbd0a3f6"
USUAL, EVERYTHING = "00000000a80425fb", "000001ffffffffff"  # CapBnd of docker run, and with --privileged


class Bench:
    def __init__(self, root: Path, hierarchies: tuple[str, ...] = ()) -> None:
        self.clock = FakeClock()
        self.tree = Tree(root, hierarchies)
        self.collector = ContainerCollector(Files(root, self.clock), self.clock)

    def container(
        self, path: str, pid: int, visible: str | None = None, *, capabilities: str = USUAL
    ) -> None:
        self.tree.cgroup(path, pid, cpu__stat="usage_usec 5000000\n", memory__current="1000\n")
        self.tree.write(f"/sys/fs/cgroup{path}/memory.stat", "inactive_file 200\n")
        self.process(path, pid, visible, capabilities=capabilities)

    def process(self, path: str, pid: int, visible: str | None, *, capabilities: str = USUAL) -> None:
        self.tree.process(pid, {} if visible is None else {"NVIDIA_VISIBLE_DEVICES": visible})
        self.tree.write(f"/proc/{pid}/cgroup", f"0::{path}\n")
        self.tree.write(f"/proc/{pid}/status", f"Name:\tpython3\nCapBnd:\t{capabilities}\n")

    def found(self) -> list[Reading]:
        readings = list(self.collector.collect())
        self.clock.advance(5.0)
        return readings


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def claims(readings: list[Reading]) -> set[tuple[str, str]]:
    found = [reading for reading in readings if isinstance(reading, Claim)]
    assert {claim.source for claim in found} <= {"container"}
    return {(claim.job_id, claim.device) for claim in found}


def jobs(readings: list[Reading]) -> list[str]:
    return [reading.job_id for reading in readings if isinstance(reading, Job)]


def test_a_container_is_a_job_with_what_it_was_given_and_what_it_uses(bench: Bench) -> None:
    bench.container(DOCKER, 101, f"{GPU},3")
    found = bench.found()
    name = f"container/{FIRST[:12]}"
    assert [reading for reading in found if isinstance(reading, Job)] == [
        Job(job_id=name, scheduler="container", kind="service", started_s=BOOT_S + 100.0)
    ]
    assert claims(found) == {(name, GPU), (name, "index:3")}
    assert [reading for reading in found if isinstance(reading, JobHostUse)] == [JobHostUse(name, 5.0, 800.0)]


@pytest.mark.parametrize(
    "path",
    [
        f"/docker/{FIRST}",
        f"/machine.slice/libpod-{FIRST}.scope/container",
        f"/system.slice/trainer.service/libpod-payload-{FIRST}",
        f"/default/{FIRST}",
    ],
)
def test_containers_are_found_whatever_runtime_made_them(bench: Bench, path: str) -> None:
    bench.container(path, 101, GPU)
    assert claims(bench.found()) == {(f"container/{FIRST[:12]}", GPU)}


def test_the_user_of_a_container_without_root_is_told_by_its_place(bench: Bench) -> None:
    bench.tree.write("/etc/passwd", "ada:x:1000:1000::/home/ada:/bin/sh\n")
    path = f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{FIRST}.scope/container"
    bench.container(path, 101, GPU)
    (job,) = [reading for reading in bench.found() if isinstance(reading, Job)]
    assert (job.user, job.uid) == ("ada", "1000")


def test_pods_and_jobs_of_slurm_are_for_others_to_tell(bench: Bench) -> None:
    uid = "7922aa99_0bd4_4a9c_8f1f_4b9a0f9d3b5e"
    bench.container(f"/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{FIRST}.scope", 101, GPU)
    bench.container(
        f"/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/docker-{SECOND}.scope", 102, GPU
    )
    assert bench.found() == []


@pytest.mark.parametrize(
    ("visible", "devices"),
    [
        ("0,1", ("index:0", "index:1")),
        (f"{GPU}, {MIG}", (GPU, MIG)),
        ("1:0,GPU-2afdc162", ("index:1:0", "GPU-2afdc162")),
        (
            "MIG-GPU-2afdc162-a1a9-481c-97e9-c98e6059d085/1/0",
            ("MIG-GPU-2afdc162-a1a9-481c-97e9-c98e6059d085/1/0",),
        ),
        ("nvidia.com/gpu=0,nvidia.com/mig=1:0", ("index:0", "index:1:0")),
        (f"runtime.nvidia.com/gpu={GPU}", (GPU,)),
        ("0,0", ("index:0",)),
        ("all", ()),
        ("nvidia.com/gpu=all", ()),
        ("0,all", ()),
        ("void", ()),
        ("none", ()),
        ("", ()),
        ("GPU-$(id),../../etc,-1,99999,amd.com/gpu=0", ()),
    ],
)
def test_what_the_variable_means(visible: str, devices: tuple[str, ...]) -> None:
    assert given(visible) == devices


def test_a_list_without_end_is_cut() -> None:
    assert len(given(",".join(str(number) for number in range(5000)))) <= 1024


@pytest.mark.parametrize("visible", ["all", "void"])
def test_what_a_container_with_all_gpus_uses_is_left_to_the_processes(bench: Bench, visible: str) -> None:
    bench.container(DOCKER, 101, visible)
    found = bench.found()
    assert jobs(found) == [f"container/{FIRST[:12]}"]
    assert claims(found) == set()


def test_a_privileged_container_has_every_device_whatever_it_says(bench: Bench) -> None:
    bench.container(DOCKER, 101, "0", capabilities=EVERYTHING)
    found = bench.found()
    assert jobs(found) == [f"container/{FIRST[:12]}"]
    assert claims(found) == set()


@pytest.mark.parametrize("visible", [None, "", "none"])
def test_a_container_without_gpus_is_no_job(bench: Bench, visible: str | None) -> None:
    bench.container(DOCKER, 101, visible)
    assert bench.found() == []


def test_a_process_that_has_cleared_its_environment_does_not_hide_what_another_tells(bench: Bench) -> None:
    bench.container(DOCKER, 101)
    bench.tree.cgroup(DOCKER, 101, 102)
    bench.process(DOCKER, 102, GPU)
    assert claims(bench.found()) == {(f"container/{FIRST[:12]}", GPU)}


def test_a_container_that_is_just_being_made_is_asked_again(bench: Bench) -> None:
    bench.container(DOCKER, 101)  # still the runtime's own process
    assert claims(bench.found()) == set()
    bench.process(DOCKER, 101, GPU)
    assert claims(bench.found()) == {(f"container/{FIRST[:12]}", GPU)}


def test_what_is_known_is_not_asked_for_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.container(DOCKER, 101, GPU)
    bench.container(f"/docker/{SECOND}", 102)
    for _ in range(10):
        bench.found()
    looked: list[int] = []
    look = bench.collector._look

    def noted(pid: int, name: str) -> Inside | None:
        looked.append(pid)
        return look(pid, name)

    monkeypatch.setattr(bench.collector, "_look", noted)
    for _ in range(12):  # a minute
        bench.found()
    assert looked == [102]


def test_a_container_that_has_ended_is_gone(bench: Bench) -> None:
    bench.container(DOCKER, 101, GPU)
    bench.container(f"/docker/{SECOND}", 102, MIG)
    assert len(claims(bench.found())) == 2
    bench.tree.remove(DOCKER)
    bench.clock.advance(10.0)
    assert claims(bench.found()) == {(f"container/{SECOND[:12]}", MIG)}


def test_g08_a_number_that_means_another_process_in_the_nodes_proc_is_not_believed(bench: Bench) -> None:
    """In a PID namespace of its own the agent reads numbers here that mean other processes there."""
    bench.container(DOCKER, 101)
    bench.process("/system.slice/other.service", 101, GPU)
    assert bench.found() == []


def test_a_process_that_may_not_be_looked_at_costs_only_its_container(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.container(DOCKER, 31007, GPU)
    bench.container(f"/docker/{SECOND}", 102, MIG)
    refuse_open(monkeypatch, "/31007/environ")
    found = bench.found()
    assert claims(found) == {(f"container/{SECOND[:12]}", MIG)}
    (failure,) = [reading for reading in found if isinstance(reading, Failure)]
    assert (failure.item, failure.reason, failure.ongoing) == ("containers", "permission", False)
    assert "CAP_SYS_PTRACE" in failure.detail
    assert "31007" not in failure.detail
    assert [reading.ongoing for reading in bench.found() if isinstance(reading, Failure)] == [True]


def test_g18_of_the_environment_only_the_devices_leave_proc(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.container(DOCKER, 101, GPU)
    secret = {"NVIDIA_VISIBLE_DEVICES": GPU, "DB_PASSWORD": "EXAMPLE2", "XNVIDIA_VISIBLE_DEVICES": "EXAMPLE3"}
    bench.tree.process(101, secret)
    with caplog.at_level(logging.DEBUG):
        said = repr(Account("container", bench.clock).without_failures(bench.collector.collect()))
    assert GPU in said
    assert "EXAMPLE" not in said + caplog.text


def test_without_cgroups_there_are_no_containers(tmp_path: Path) -> None:
    clock = FakeClock()
    assert list(ContainerCollector(Files(tmp_path, clock), clock).collect()) == []


def test_on_cgroup_v1_a_container_is_found_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ("memory", "cpuacct", "devices"))
    path = f"/docker/{FIRST}"
    bench.tree.cgroup(path, 101)
    bench.tree.write(f"/sys/fs/cgroup/cpuacct{path}/cpuacct.usage", "7000000000\n")
    bench.process(path, 101, GPU)
    found = bench.found()
    assert claims(found) == {(f"container/{FIRST[:12]}", GPU)}
    assert [use.cpu_seconds for use in found if isinstance(use, JobHostUse)] == [7.0]
