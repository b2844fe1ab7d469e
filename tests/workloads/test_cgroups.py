"""Where the cgroups of jobs, pods and containers are, and what is read of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from clusterwatt.sysfs import Files
from clusterwatt.workloads.cgroups import MAX_LISTINGS, Cgroups, WorkCgroup
from tests.clocks import FakeClock
from tests.workloads.trees import V2, Tree

C, D = "c" * 64, "d" * 64
UID = "11111111-2222-3333-4444-555555555555"
POD = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
SCOPE = "/system.slice/slurmstepd.scope"
MEMORY_STAT = "anon 1000\nfile 5000\nactive_file 1000\ninactive_file 4000\n"
MEMORY_STAT_V1 = "cache 1\ninactive_file 1\ntotal_cache 5000\ntotal_inactive_file 4000\n"


def cgroups(tree: Tree, clock: FakeClock, *kinds: str) -> Cgroups:
    return Cgroups(Files(tree.root, clock), clock, kinds or ("slurm", "pod", "container"))


def names(found: list[WorkCgroup]) -> list[str]:
    return sorted(f"{cgroup.owner.name}:{cgroup.owner.container_id[:3]}" for cgroup in found)


def one(found: list[WorkCgroup]) -> WorkCgroup:
    (cgroup,) = found
    return cgroup


def test_all_kinds_on_v2(tmp_path: Path) -> None:
    tree, clock = Tree(tmp_path), FakeClock()
    tree.cgroup(f"{SCOPE}/system")
    tree.cgroup(f"{SCOPE}/job_1/step_0/user/task_0", 10)
    tree.cgroup(f"{POD}/cri-containerd-{C}.scope", 20)
    tree.cgroup(f"{POD}/crio-conmon-{D}.scope", 21)
    tree.cgroup(f"/system.slice/docker-{D}.scope/init.scope", 30)
    tree.cgroup(f"/user.slice/user-5.slice/user@5.service/user.slice/libpod-{'e' * 64}.scope/container", 40)
    tree.cgroup("/system.slice/sshd.service", 50)
    found = cgroups(tree, clock).scan()
    assert names(found) == [
        "container/dddddddddddd:ddd",
        "container/eeeeeeeeeeee:eee",
        f"pod/{UID}:",
        f"pod/{UID}:ccc",
        "slurm/1:",
    ]
    assert one([place for place in found if place.owner.job]).directory == f"{V2}{SCOPE}/job_1"
    assert names(cgroups(tree, clock, "slurm").scan()) == ["slurm/1:"]
    assert names(cgroups(tree, clock, "container").scan()) == [
        "container/dddddddddddd:ddd",
        "container/eeeeeeeeeeee:eee",
    ]


def test_each_owner_comes_once_from_the_hierarchies_of_v1(tmp_path: Path) -> None:
    tree, clock = Tree(tmp_path, ("freezer", "memory", "cpu,cpuacct")), FakeClock()
    tree.cgroup("/slurm/uid_7/job_1/step_batch", 10)
    tree.cgroup(f"/kubepods/burstable/pod{UID}/{C}", 20)
    assert names(cgroups(tree, clock).scan()) == [f"pod/{UID}:", f"pod/{UID}:ccc", "slurm/1:"]


def test_hybrid_hosts_have_both(tmp_path: Path) -> None:
    clock = FakeClock()
    tree = Tree(tmp_path, ("freezer", "memory", "unified"))
    tree.cgroup("/system.slice/docker-" + C + ".scope")
    for hierarchy in ("freezer", "memory"):
        (tmp_path / f"sys/fs/cgroup/{hierarchy}/slurm/uid_0/job_3").mkdir(parents=True)
    assert names(cgroups(tree, clock).scan()) == [f"container/{'c' * 12}:ccc", "slurm/3:"]


def test_a_job_of_two_daemons_on_one_host_has_two_places(tmp_path: Path) -> None:
    tree, clock = Tree(tmp_path), FakeClock()
    for node in ("a", "b"):
        tree.cgroup(f"/system.slice/{node}_slurmstepd.scope/job_1/step_0/user", 10)
    assert names(cgroups(tree, clock).scan()) == ["slurm/1:", "slurm/1:"]


def test_slurm_in_a_pod_is_found_there(tmp_path: Path) -> None:
    tree, clock = Tree(tmp_path), FakeClock()
    tree.cgroup(f"{POD}/cri-containerd-{C}.scope/system.slice/slurmstepd.scope/job_9/step_0", 10)
    looked = cgroups(tree, clock, "slurm")
    owner = one(looked.scan()).owner
    assert (owner.name, owner.pod_uid, owner.container_id) == ("slurm/9", UID, C)
    assert len(looked.slurmd_paths) == 1


def test_a_new_job_is_seen_at_the_next_scan_and_one_that_ended_is_not(tmp_path: Path) -> None:
    tree, clock = Tree(tmp_path), FakeClock()
    tree.cgroup("/system.slice/sshd.service")
    looked = cgroups(tree, clock)
    assert looked.scan() == []
    assert not looked.slurmd_paths
    tree.cgroup(f"{SCOPE}/job_1/step_0", 10)
    tree.cgroup(f"{SCOPE}/job_1", cpu__stat="usage_usec 5\n")
    assert names(looked.scan()) == ["slurm/1:"]
    assert looked.slurmd_paths
    assert looked.cpu_seconds(looked.scan()[0]) == 5e-6
    tree.remove(f"{SCOPE}/job_1")
    tree.cgroup(f"{SCOPE}/job_2")  # as many links as before
    assert names(looked.scan()) == ["slurm/2:"]
    assert not [path for path in looked._files._descriptors if "job_1" in path]


def test_directories_without_news_are_not_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, clock = Tree(tmp_path), FakeClock()
    for number in range(5):
        tree.cgroup(f"/system.slice/a{number}.service/inner/leaf")
    tree.cgroup(f"{SCOPE}/job_1/step_0")
    if (tmp_path / f"{V2}/system.slice/a0.service/inner/leaf"[1:]).stat().st_nlink != 2:
        pytest.skip(
            "this machine's file system does not count the links of directories as that of cgroups does"
        )
    listed: list[str] = []
    scandir = os.scandir

    def counted(path: Any) -> Any:
        listed.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    looked = cgroups(tree, clock)
    looked.scan()
    everything = len(listed)
    assert everything > 10
    listed.clear()
    clock.advance(2)
    looked.scan()
    assert listed == [f"{tmp_path}{V2}{SCOPE}"]
    clock.advance(9)
    looked.scan()
    assert len(listed) == 1 + everything


def test_a_place_that_cannot_be_listed_costs_its_neighbours_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, clock = Tree(tmp_path), FakeClock()
    tree.cgroup(f"{SCOPE}/job_1/step_0", 10)
    tree.cgroup(f"/docker/{C}", 20)
    looked = cgroups(tree, clock)
    everything = names(looked.scan())
    scandir = os.scandir

    def refused(path: Any) -> Any:
        if str(path).endswith("slurmstepd.scope"):
            raise OSError(errno.EACCES, "planted")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    assert names(looked.scan()) == everything  # what was known there stays while it exists
    (failure,) = looked.take_failures()
    assert failure.item.endswith("slurmstepd.scope")
    assert looked.take_failures() == []
    tree.remove(f"{SCOPE}/job_1")
    assert names(looked.scan()) == ["container/cccccccccccc:ccc"]


def test_a_tree_without_an_end_is_cut_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, clock = Tree(tmp_path), FakeClock()
    monkeypatch.setattr("clusterwatt.workloads.cgroups.MAX_LISTINGS", 10)
    for number in range(20):
        tree.cgroup(f"/a{number}/b/c")
    looked = cgroups(tree, clock)
    looked.scan()
    (failure,) = looked.take_failures()
    assert failure.reason == "too_many"
    tree.cgroup("/x" * 200)
    assert MAX_LISTINGS > 10
    looked.scan()


def test_cpu_and_memory_on_v2(tmp_path: Path) -> None:
    tree, clock = Tree(tmp_path), FakeClock()
    tree.cgroup(
        f"{SCOPE}/job_1",
        cpu__stat="usage_usec 2500000\nuser_usec 2\n",
        memory__current="10000\n",
        memory__stat=MEMORY_STAT,
    )
    looked = cgroups(tree, clock)
    job = one(looked.scan())
    assert looked.cpu_seconds(job) == 2.5
    assert looked.memory_bytes(job) == 6000


def test_cpu_and_memory_on_v1(tmp_path: Path) -> None:
    tree, clock = Tree(tmp_path, ("freezer", "memory", "cpu,cpuacct")), FakeClock()
    tree.cgroup(
        f"/docker/{C}",
        cpuacct__usage="2500000000\n",
        memory__usage_in_bytes="10000\n",
        memory__stat=MEMORY_STAT_V1,
    )
    looked = cgroups(tree, clock)
    container = one(looked.scan())
    assert looked.cpu_seconds(container) == 2.5
    assert looked.memory_bytes(container) == 6000


def test_what_no_controller_counts_is_not_there(tmp_path: Path) -> None:
    tree, clock = Tree(tmp_path, ("freezer",)), FakeClock()
    tree.cgroup("/slurm/uid_0/job_1", 1)
    looked = cgroups(tree, clock)
    job = one(looked.scan())
    assert looked.cpu_seconds(job) is None
    assert looked.memory_bytes(job) is None


def test_memory_is_added_up_every_ten_seconds(tmp_path: Path) -> None:
    tree, clock = Tree(tmp_path), FakeClock()
    tree.cgroup(f"{SCOPE}/job_1", memory__current="10000\n", memory__stat=MEMORY_STAT)
    looked = cgroups(tree, clock)
    job = one(looked.scan())
    assert looked.memory_bytes(job) == 6000
    tree.cgroup(f"{SCOPE}/job_1", memory__current="20000\n")
    assert looked.memory_bytes(job) == 6000
    clock.advance(10)
    assert looked.memory_bytes(job) == 16000


def test_processes_of_a_job_are_those_of_all_its_steps(tmp_path: Path) -> None:
    tree, clock = Tree(tmp_path), FakeClock()
    tree.cgroup(f"{SCOPE}/job_1/step_0/user/task_0", 10, 11)
    tree.cgroup(f"{SCOPE}/job_1/step_extern/user/task_special", 12, 0)
    looked = cgroups(tree, clock)
    job = one(looked.scan())
    assert sorted(looked.pids(job)) == [10, 11, 12]
    assert len(looked.pids(job, limit=1)) == 1
    tree.remove(f"{SCOPE}/job_1")
    assert looked.pids(job) == []
    assert looked.cpu_seconds(job) is None


@pytest.mark.parametrize("missing", ["sys/fs/cgroup", "sys"])
def test_a_node_without_cgroups(tmp_path: Path, missing: str) -> None:
    (tmp_path / missing).parent.mkdir(parents=True, exist_ok=True)
    looked = Cgroups(Files(tmp_path, FakeClock()), FakeClock())
    assert looked.scan() == []
    assert looked.take_failures() == []
