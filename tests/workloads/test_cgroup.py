"""Paths of cgroups, as Slurm, kubelets, runtimes and systemd make them, and whose they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.workloads.cgroup import Owner, most_specific, owner_of, owner_of_lines

C = "c" * 64
D = "0123456789abcdef" * 4
UID = "11111111-2222-3333-4444-555555555555"
UNDERSCORED = UID.replace("-", "_")
STATIC = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"

SLURM = {
    "/slurm/uid_1000/job_211/step_0/task_3": Owner(job="211", step="0", uid="1000"),
    "/slurm/uid_1000/job_211/step_batch/task_0": Owner(job="211", step="batch", uid="1000"),
    "/slurm/uid_1000/job_211": Owner(job="211", uid="1000"),
    "/slurm_gpu07/uid_1000/job_211/step_extern": Owner(job="211", step="extern", uid="1000"),
    "/slurm/uid_1000/job_211/step_4294967291": Owner(job="211", step="batch", uid="1000"),
    "/slurm/uid_1000/job_211/step_4294967290/task_0": Owner(job="211", step="interactive", uid="1000"),
    "/system.slice/slurmstepd.scope/job_211/step_0/user/task_0": Owner(job="211", step="0"),
    "/system.slice/slurmstepd.scope/job_211/step_extern/slurm": Owner(job="211", step="extern"),
    "/system.slice/slurmstepd.scope/job_211/step_extern/user/task_special": Owner(job="211", step="extern"),
    "/system.slice/slurmstepd.scope/job_211/step_interactive/user/task_0": Owner(
        job="211", step="interactive"
    ),
    "/system.slice/gpu07_slurmstepd.scope/job_211/step_batch/user/task_0": Owner(job="211", step="batch"),
    "/system.slice/gpu_a_07_slurmstepd.scope/job_211": Owner(job="211"),
    "/system.slice/slurmstepd.scope/s8FXKTA79XAR00/step_batch/user/task_0": Owner(
        sluid="s8FXKTA79XAR00", step="batch"
    ),
    "/../slurmstepd.scope/job_211/step_0/user/task_0": Owner(job="211", step="0"),
    "/../../slurm/uid_0/job_7/step_0": Owner(job="7", step="0", uid="0"),
    f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{C}.scope/system.slice/slurmstepd.scope"
    "/job_9/step_0/user/task_0": Owner(job="9", step="0", pod_uid=UID, container_id=C),
}
PODS = {
    "/kubepods.slice/kubepods-burstable.slice/"
    f"kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{C}.scope": C,
    f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{C}.scope": C,
    f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice": "",
    f"/kubepods/burstable/pod{UID}/{C}": C,
    f"/kubepods/pod{UID}/{C}": C,
    f"/kubepods/besteffort/pod{UID}": "",
    f"/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{C}": C,
    "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
    f"kubelet-kubepods-besteffort-pod{UNDERSCORED}.slice/cri-containerd-{C}.scope": C,
    f"/system.slice/docker-{D}.scope/kubelet.slice/kubelet-kubepods.slice/"
    f"kubelet-kubepods-pod{UNDERSCORED}.slice/cri-containerd-{C}.scope": C,
    f"/system.slice/docker-{D}.scope/kubelet.slice/kubelet-kubepods-pod{UNDERSCORED}.slice": "",
    f"kubelet/kubepods/besteffort/pod{UID}/{C}": C,
    f"/../../pod{UID}/{C}": C,
    f"/../cri-containerd-{C}.scope": None,
    f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-conmon-{C}.scope": "",
    f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{C}.scope/docker/{D}": C,
    f"/kubepods/pod{UID.upper()}/{C}": None,
}
CONTAINERS = {
    f"/docker/{C}": C,
    f"/system.slice/docker-{C}.scope": C,
    f"/system.slice/docker-{C}.scope/init.scope": C,
    f"/docker/{D}/docker/{C}": C,
    f"/machine.slice/libpod-{C}.scope/container": C,
    f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{C}.scope/container": C,
    f"/system.slice/trainer.service/libpod-payload-{C}": C,
    f"/system.slice/nerdctl-{C}.scope": C,
    f"/../docker-{C}.scope": C,
    f"/default/{C}": C,
}
REST = {
    "/system.slice/trainer.service": Owner(unit="trainer.service"),
    "/system.slice/system-train.slice/train@3.service": Owner(unit="train@3.service"),
    "/ml.slice/ml-train.slice/trainer.service": Owner(unit="trainer.service"),
    "/../trainer.service": Owner(unit="trainer.service"),
    "/../../system.slice/trainer.service/worker": Owner(unit="trainer.service"),
    "/user.slice/user-1000.slice/session-42.scope": Owner(uid="1000"),
    "/user.slice/user-1000.slice/user@1000.service/app.slice/run-r9f.scope": Owner(uid="1000"),
    "/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service": Owner(uid="1000"),
    "/../../user-1000.slice/session-42.scope": Owner(uid="1000"),
}
NOBODY = (
    "",
    "/",
    "/..",
    "/../..",
    "/init.scope",
    "/user.slice",
    "/system.slice",
    "/kubepods.slice",
    "/system.slice/slurmstepd.scope/system",
    "/system.slice/slurmstepd.scope",
    "/system.slice/slurmstepd.scope/job_",
    "/system.slice/slurmstepd.scope/job_12x/step_0",
    "/slurm/uid_1000",
    "/slurm/uid_1000/job_/step_0",
    f"/machine.slice/libpod-conmon-{C}.scope",
    f"/docker/{'c' * 63}",
    f"/docker/{'c' * 65}",
)


@pytest.mark.parametrize("path", SLURM)
def test_jobs_of_slurm(path: str) -> None:
    owner = owner_of(path)
    assert owner == SLURM[path]
    assert owner.kind == "slurm"
    assert owner.name == (f"slurm/{owner.job}" if owner.job else f"sluid/{owner.sluid}")


@pytest.mark.parametrize("path", [path for path, container in PODS.items() if container is not None])
def test_pods(path: str) -> None:
    owner = owner_of(path)
    assert owner == Owner(pod_uid=UID, container_id=PODS[path] or "")
    assert owner.name == f"pod/{UID}"
    assert owner.kind == "pod"


def test_a_static_pod_has_the_digits_of_a_hash() -> None:
    assert owner_of(f"/kubepods/burstable/pod{STATIC}/{C}") == Owner(pod_uid=STATIC, container_id=C)


@pytest.mark.parametrize("path", CONTAINERS)
def test_containers(path: str) -> None:
    owner = owner_of(path)
    assert owner == Owner(container_id=C)
    assert owner.name == f"container/{'c' * 12}"
    assert owner.kind == "container"


@pytest.mark.parametrize("path", REST)
def test_units_and_users(path: str) -> None:
    owner = owner_of(path)
    assert owner == REST[path]
    assert owner.name == (f"unit/{owner.unit}" if owner.unit else f"user/{owner.uid}")


@pytest.mark.parametrize("path", NOBODY)
def test_places_that_are_nobodys(path: str) -> None:
    assert owner_of(path) is None


def test_a_removed_cgroup_is_still_its_owners() -> None:
    assert owner_of("/slurm/uid_1000/job_211 (deleted)") == Owner(job="211", uid="1000")


def test_g22_several_daemons_on_a_host_name_their_node() -> None:
    lines = {
        "0::/system.slice/node-a_slurmstepd.scope/job_4242/step_0/user/task_0": ("4242", "0"),
        "6:memory:/slurm_node-a/uid_1000/job_4243/step_batch": ("4243", "batch"),
        "0::/system.slice/slurmstepd.scope/job_4244/step_extern/user/task_special": ("4244", "extern"),
    }
    for line, (job, step) in lines.items():
        owner = owner_of_lines(line)
        assert owner is not None
        assert (owner.job, owner.step) == (job, step)
    assert owner_of_lines("0::/system.slice/slurmstepd.scope/system") is None


@pytest.mark.parametrize(
    "line",
    [
        f"0::/kubepods/pod{UID}/{C}",
        f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{C}.scope",
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/crio-{C}.scope",
    ],
)
def test_g37_guaranteed_pods_are_recognised(line: str) -> None:
    assert owner_of_lines(line) == Owner(pod_uid=UID, container_id=C)


def test_slurm_on_v1_may_name_the_job_in_the_freezers_line_alone() -> None:
    text = (
        "12:cpuset:/\n9:name=systemd:/system.slice/slurmd.service\n8:pids:/system.slice/slurmd.service\n"
        "6:freezer:/slurm_vm/uid_0/job_1/step_batch\n4:memory:/user.slice/user-0.slice/session-1.scope\n"
        "0::/system.slice/slurmd.service\n"
    )
    assert owner_of_lines(text) == Owner(job="1", step="batch", uid="0")


def test_of_two_lines_of_one_job_the_one_with_the_step_counts() -> None:
    text = "3:cpuset:/slurm/uid_1/job_5\n2:memory:/slurm/uid_1/job_5/step_3/task_0\n1:cpu:/slurm/uid_1/job_5"
    assert owner_of_lines(text) == Owner(job="5", step="3", uid="1")


def test_the_pod_that_slurm_runs_in_is_known_from_another_line() -> None:
    text = f"3:freezer:/../slurm/uid_1/job_5/step_0\n2:memory:/kubepods/burstable/pod{UID}/{C}"
    assert owner_of_lines(text) == Owner(job="5", step="0", uid="1", pod_uid=UID, container_id=C)


def test_precedence() -> None:
    user, unit, container = Owner(uid="1"), Owner(unit="a.service"), Owner(container_id=C)
    pod, job = Owner(pod_uid=UID), Owner(job="1")
    rising = [user, unit, container, pod]
    for place, owner in enumerate(rising):
        assert most_specific(rising[: place + 1][::-1]) == owner
    assert most_specific([*rising, job]) == Owner(job="1", pod_uid=UID)
    assert most_specific([None, None]) is None


PARTS = st.sampled_from(
    [
        "slurmstepd.scope", "a_slurmstepd.scope", "slurm", "slurm_a", "uid_0", "job_1", "job_", "step_0",
        "user", "s8FXKTA79XAR00", "task_0", f"pod{UID}", "kubepods", C, f"docker-{C}.scope",
        f"crio-conmon-{C}.scope", "system.slice", "a.service", "user.slice", "user-5.slice", "..", "",
        "libpod-payload-", "(deleted)",
    ]
)  # fmt: skip
PATHS = st.lists(PARTS | st.text(max_size=8), max_size=9).map("/".join)


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5), PATHS).map(":".join)).map("\n".join))
def test_whatever_the_kernel_says_nothing_is_raised_and_no_name_is_empty(text: str) -> None:
    owner = owner_of_lines(text)
    if owner is not None:
        kind, _, name = owner.name.partition("/")
        assert kind in {"slurm", "sluid", "pod", "container", "unit", "user"}
        assert name


@given(st.text())
def test_any_text_at_all(text: str) -> None:
    for owner in (owner_of_lines(text), owner_of(text)):
        assert owner is None or owner.name.partition("/")[2]
