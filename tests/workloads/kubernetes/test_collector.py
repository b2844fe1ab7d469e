"""Who holds what on a node of Kubernetes: kubelet, API and cgroups together."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from clusterwatt.attribution.holders import Holders
from clusterwatt.config.model import Kubernetes as Settings
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.work import (
    Claim,
    GpuAllocated,
    Job,
    JobHostUse,
    JobMember,
    JobPod,
    NodeLabels,
    Scheduler,
    SchedulerNode,
    SlurmdPod,
)
from clusterwatt.sysfs import Files
from clusterwatt.workloads.kubernetes.collector import KubernetesCollector
from tests.attribution.node import by_type, gpu
from tests.clocks import FakeClock
from tests.workloads.kubernetes.api_server import ApiServer, reference
from tests.workloads.kubernetes.kubelet_server import Kubelet, claim, container, pod
from tests.workloads.trees import Tree

A = "GPU-aaaaaaaa-0000-0000-0000-00000000000a"
B = "GPU-bbbbbbbb-0000-0000-0000-00000000000b"
MIG = "MIG-cccccccc-0000-0000-0000-00000000000c"
C = "c" * 64
R = TypeVar("R", bound=Reading)


def uid(number: int) -> str:
    return f"00000000-1111-2222-3333-{number:012}"


class Node:
    """A node with a kubelet, with or without an API."""

    def __init__(self, root: Path, kubelet: Kubelet, api: ApiServer | None = None) -> None:
        self.tree = Tree(root)
        self.clock = FakeClock()
        self.kubelet = kubelet
        self.api = api
        settings = Settings(
            socket=str(kubelet.path),
            node_name="node-a",
            api_url=api.url if api else "",
            token_file=str(api.token_file) if api else "",
            ca_file=str(api.ca_file) if api else "",
            deadline_seconds=5,
        )
        self.collector = self.make(settings)

    def make(self, settings: Settings, **environ: str) -> KubernetesCollector:
        files = Files(self.tree.root, self.clock)
        return KubernetesCollector(files, settings, self.clock, environ=environ)

    def start(self, number: int, *, guaranteed: bool = False) -> str:
        """A pod's cgroup."""
        name = uid(number).replace("-", "_")
        kind = "" if guaranteed else "burstable-"
        middle = "" if guaranteed else "/kubepods-burstable.slice"
        path = f"/kubepods.slice{middle}/kubepods-{kind}pod{name}.slice"
        self.tree.cgroup(f"{path}/cri-containerd-{C}.scope")
        stat = "usage_usec 7500000\nuser_usec 1\nsystem_usec 1\n"
        self.tree.cgroup(path, cpu__stat=stat, memory__current="1000\n", memory__stat="inactive_file 200\n")
        return path

    def log(self, namespace: str, name: str, number: int) -> None:
        self.tree.write(f"/var/log/pods/{namespace}_{name}_{uid(number)}/main/0.log", "")

    def later(self, seconds: float = 15.0) -> list[Reading]:
        """What is read after some time."""
        self.clock.advance(seconds)
        return self.read()

    def read(self) -> list[Reading]:
        return list(self.collector.collect())


def of(kind: type[R], readings: Iterable[Reading]) -> list[R]:
    return [reading for reading in readings if isinstance(reading, kind)]


def failures(readings: Iterable[Reading]) -> list[tuple[str, str]]:
    return [(problem.item, problem.reason) for problem in of(Failure, readings) if not problem.ongoing]


def claims(readings: Iterable[Reading]) -> list[tuple[str, str, str]]:
    return [(found.job_id, found.device, found.member) for found in of(Claim, readings)]


@pytest.fixture
def node(tmp_path: Path, kubelet: Kubelet, api: ApiServer) -> Node:
    return Node(tmp_path / "root", kubelet, api)


@pytest.fixture
def bare(tmp_path: Path, kubelet: Kubelet) -> Node:
    """A node on which the agent may not ask the API."""
    return Node(tmp_path / "root", kubelet)


def test_a_pod_of_a_job_set(node: Node, kubelet: Kubelet, api: ApiServer) -> None:
    node.start(1)
    kubelet.say(
        pod("team", "train-0", container("main", {"nvidia.com/gpu": [A, B]}), container("log")),
        pod("team", "other", container("main", {"nvidia.com/gpumem": ["x"], "amd.com/gpu": ["y"]})),
    )
    api.pod("team", "train-0", uid(1), reference("Job", "train-workers-0"))
    job_set = reference("JobSet", "train", group="jobset.x-k8s.io/v1alpha2")
    api.object("/apis/batch/v1", "team", "jobs", "train-workers-0", job_set)
    queue = {
        "kueue.x-k8s.io/queue-name": "big",
        "clusterwatt.io/user": "ada",
        "clusterwatt.io/account": "nlp",
    }
    api.object("/apis/jobset.x-k8s.io/v1alpha2", "team", "jobsets", "train", labels=queue)
    readings = node.read()
    assert failures(readings) == []
    assert of(Scheduler, readings) == [Scheduler("kubernetes")]
    assert of(Job, readings) == [
        Job(
            "k8s/uid-of-train",
            "kubernetes",
            "batch",
            name="train",
            user="ada",
            account="nlp",
            queue="big",
            k8s_namespace="team",
            k8s_owner="train",
            k8s_owner_kind="JobSet",
            started_s=1_699_999_200.0,
        )
    ]
    assert of(JobMember, readings) == [JobMember(f"pod/{uid(1)}", "k8s/uid-of-train")]
    assert of(JobPod, readings) == [JobPod("k8s/uid-of-train", "team", "train-0", "main")]
    assert claims(readings) == [
        ("k8s/uid-of-train", A, f"pod/{uid(1)}/main"),
        ("k8s/uid-of-train", B, f"pod/{uid(1)}/main"),
    ]
    assert of(JobHostUse, readings) == [JobHostUse(f"pod/{uid(1)}", 7.5, 800.0)]


def test_g03_sharers_of_a_time_sliced_gpu_are_all_named(bare: Node, kubelet: Kubelet) -> None:
    for number in (1, 2):
        bare.start(number)
        bare.log("team", f"p{number}", number)
    kubelet.say(
        pod("team", "p1", container("main", {"nvidia.com/gpu.shared": [f"{A}::0"]})),
        pod("team", "p2", container("main", {"nvidia.com/gpu.shared": [f"{A}::2"]})),
    )
    assert claims(bare.read()) == [
        (f"k8s/{uid(1)}", A, f"pod/{uid(1)}/main"),
        (f"k8s/{uid(2)}", A, f"pod/{uid(2)}/main"),
    ]


def test_g37_guaranteed_pods_are_recognised(bare: Node, kubelet: Kubelet) -> None:
    bare.start(1, guaranteed=True)
    bare.start(2)
    for number in (1, 2):
        bare.log("team", f"p{number}", number)
    kubelet.say(
        pod("team", "p1", container("main", {"nvidia.com/gpu": [A]})),
        pod("team", "p2", container("main", {"nvidia.com/mig-3g.40gb": [MIG]})),
    )
    assert [(job, device) for job, device, _ in claims(bare.read())] == [
        (f"k8s/{uid(1)}", A),
        (f"k8s/{uid(2)}", MIG),
    ]


def hold(node: Node, kubelet: Kubelet, *names: str) -> None:
    """Pods that hold a GPU each, in their order; only what the kubelet says and their cgroups."""
    kubelet.say(*(pod("team", name, container("main", {"nvidia.com/gpu": [A]})) for name in names))
    for number in range(1, len(names) + 1):
        node.start(number)


def test_without_the_api_a_pod_is_a_job_of_its_own(bare: Node, kubelet: Kubelet) -> None:
    hold(bare, kubelet, "solo")
    bare.log("team", "solo", 1)
    bare.log("team", "solo", 9)  # an earlier pod of the name, without a cgroup
    readings = bare.read()
    assert claims(readings) == [(f"k8s/{uid(1)}", A, f"pod/{uid(1)}/main")]
    (job,) = of(Job, readings)
    assert (job.k8s_owner_kind, job.k8s_owner, job.account, job.kind) == ("Pod", "solo", "team", "batch")
    assert failures(readings) == []


def test_a_pod_whose_uid_nobody_tells_still_holds_its_gpu(bare: Node, kubelet: Kubelet) -> None:
    hold(bare, kubelet, "solo")
    readings = bare.read()
    assert claims(readings) == [("k8s/team/solo", A, "pod/team/solo/main")]
    assert failures(readings) == [("team/solo", "unidentified")]


def test_pods_that_are_over_hold_nothing(node: Node, kubelet: Kubelet, api: ApiServer) -> None:
    """The kubelet may list devices of pods that have ended: kubernetes/kubernetes#132020."""
    hold(node, kubelet, "over", "failed", "gone", "runs")
    for number, (name, phase) in enumerate(
        {"over": "Succeeded", "failed": "Failed", "gone": "Running"}.items()
    ):
        api.pod("team", name, uid(number + 1), phase=phase)
    api.pod("team", "runs", uid(4))
    node.tree.remove(node.start(3))
    assert claims(node.read()) == [(f"k8s/{uid(4)}", A, f"pod/{uid(4)}/main")]


def test_a_recreated_pod_of_a_stateful_set_is_another(node: Node, kubelet: Kubelet, api: ApiServer) -> None:
    stateful_set = reference("StatefulSet", "web", group="apps/v1")
    hold(node, kubelet, "web-0")
    api.pod("team", "web-0", uid(1), stateful_set)
    api.object("/apis/apps/v1", "team", "statefulsets", "web")
    assert claims(node.read()) == [("k8s/uid-of-web", A, f"pod/{uid(1)}/main")]
    node.tree.remove(node.start(1))
    node.start(2)
    assert claims(node.later(2)) == []  # the API's cache still has the old one
    api.pods.clear()
    api.pod("team", "web-0", uid(2), stateful_set)
    readings = node.later(5)
    assert claims(readings) == [("k8s/uid-of-web", A, f"pod/{uid(2)}/main")]
    assert [job.kind for job in of(Job, readings)] == ["service"]


def test_a_static_pod_is_known_by_its_hash(node: Node, kubelet: Kubelet, api: ApiServer) -> None:
    digest = "0123456789abcdef0123456789abcdef"
    node.tree.cgroup(f"/kubepods/pod{digest}/{C}")
    kubelet.say(pod("kube-system", "smi-node-a", container("main", {"nvidia.com/gpu": [A]})))
    owner = reference("Node", "node-a", group="v1")
    mark = {"kubernetes.io/config.hash": digest, "kubernetes.io/config.source": "file"}
    api.pod("kube-system", "smi-node-a", uid(1), owner, annotations=mark)
    readings = node.read()
    assert claims(readings) == [(f"k8s/{digest}", A, f"pod/{digest}/main")]
    assert [job.k8s_owner_kind for job in of(Job, readings)] == ["Pod"]


def test_while_the_kubelet_restarts_its_last_word_stands(
    node: Node, kubelet: Kubelet, api: ApiServer
) -> None:
    hold(node, kubelet, "one", "two")
    for number, name in enumerate(("one", "two"), 1):
        api.pod("team", name, uid(number))
    before = claims(node.read())
    assert len(before) == 2
    kubelet.stop()
    readings = node.later()
    assert claims(readings) == before
    assert failures(readings) == [("", "io_error")]
    ongoing = node.later(2)
    assert claims(ongoing) == before
    assert [(found.item, found.ongoing) for found in of(Failure, ongoing)] == [("", True)]
    node.tree.remove(node.start(2))
    readings = node.later(2)  # a pod that goes meanwhile goes at once
    assert claims(readings) == before[:1]
    assert of(Scheduler, readings)
    kubelet.start()
    kubelet.say(pod("team", "one", container("main", {"nvidia.com/gpu": [B]})))
    readings = node.later()
    assert claims(readings) == [(f"k8s/{uid(1)}", B, f"pod/{uid(1)}/main")]
    assert of(Failure, readings) == []


def test_a_kubelet_that_hangs_costs_a_deadline_and_no_claim(tmp_path: Path, kubelet: Kubelet) -> None:
    node = Node(tmp_path / "root", kubelet)
    node.collector = node.make(Settings(socket=str(kubelet.path), deadline_seconds=0.2))
    hold(node, kubelet, "one")
    node.log("team", "one", 1)
    before = claims(node.read())
    kubelet.hang()
    readings = node.later()
    assert claims(readings) == before != []
    assert failures(readings) == [("", "timeout")]


def test_while_the_api_is_silent_its_last_word_stands(node: Node, kubelet: Kubelet, api: ApiServer) -> None:
    hold(node, kubelet, "one")
    api.pod("team", "one", uid(1), reference("Job", "train"))
    api.object("/apis/batch/v1", "team", "jobs", "train")
    before = claims(node.read())
    assert before == [("k8s/uid-of-train", A, f"pod/{uid(1)}/main")]
    api.status["/"] = 503
    readings = node.later(40)
    assert claims(readings) == before
    assert ("api: pods", "io_error") in failures(readings)


def test_a_pod_waits_for_the_api_to_say_whose_it_is(node: Node, kubelet: Kubelet, api: ApiServer) -> None:
    hold(node, kubelet, "one")
    node.log("team", "one", 1)
    api.status["/"] = 503
    assert claims(node.read()) == []
    assert of(Scheduler, node.later(15))
    assert claims(node.later(60)) == [(f"k8s/{uid(1)}", A, f"pod/{uid(1)}/main")]
    api.status.clear()
    api.pod("team", "one", uid(1), reference("Job", "train"))
    api.object("/apis/batch/v1", "team", "jobs", "train")
    assert claims(node.later(30)) == [("k8s/uid-of-train", A, f"pod/{uid(1)}/main")]


def test_who_may_not_list_pods_is_told_what_is_missing(node: Node, kubelet: Kubelet, api: ApiServer) -> None:
    hold(node, kubelet, "one")
    node.log("team", "one", 1)
    api.status["/api/v1/pods"] = 403
    readings = node.read()
    assert claims(readings) == [(f"k8s/{uid(1)}", A, f"pod/{uid(1)}/main")]
    (problem,) = of(Failure, readings)
    assert (problem.item, problem.reason) == ("api: pods", "forbidden")
    assert "get and list on pods" in problem.detail


def test_an_expired_version_is_asked_anew(node: Node, kubelet: Kubelet, api: ApiServer) -> None:
    hold(node, kubelet, "one")
    api.pod("team", "one", uid(1))
    api.expired = True
    assert claims(node.read()) == [(f"k8s/{uid(1)}", A, f"pod/{uid(1)}/main")]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_dra_devices_are_known_by_their_slices(
    node: Node, kubelet: Kubelet, api: ApiServer, version: str
) -> None:
    for number in (1, 2):
        node.start(number)
        api.pod("team", f"p{number}", uid(number))
    mig = claim("gpu-1-mig-9-0-4")
    kubelet.say(
        pod("team", "p1", container("main", {}, claim("gpu-0"), mig)),
        pod("team", "p2", container("main", {}, claim("gpu-0"), claim("nic-0", driver="example.com"))),
    )

    def device(name: str, unique: str) -> dict[str, object]:
        attributes = {"uuid": {"string": unique}, "minor": {"int": 0}, "type": {"string": "gpu"}}
        inner = {"attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}
        return {"name": name, "basic": inner} if version == "v1beta1" else {"name": name, **inner}

    def spec(
        generation: int, *devices: dict[str, object], driver: str = "gpu.nvidia.com"
    ) -> dict[str, object]:
        pool = {"name": "node-a", "generation": generation, "resourceSliceCount": 1}
        return {"spec": {"driver": driver, "pool": pool, "nodeName": "node-a", "devices": devices}}

    api.slices[version] = [
        spec(7, device("gpu-0", A), device("gpu-1-mig-9-0-4", MIG)),
        spec(6, device("gpu-0", B)),  # of an older generation
        spec(9, device("gpu-0", B), driver="example.com"),
    ]
    readings = node.read()
    assert [(job, device) for job, device, _ in claims(readings)] == [
        (f"k8s/{uid(1)}", A),
        (f"k8s/{uid(1)}", MIG),
        (f"k8s/{uid(2)}", A),
    ]
    assert failures(readings) == []


def test_a_slice_that_comes_late_is_waited_for(node: Node, kubelet: Kubelet, api: ApiServer) -> None:
    node.start(1)
    api.pod("team", "p1", uid(1))
    kubelet.say(pod("team", "p1", container("main", {}, claim("gpu-1-mig-9-0-4"))))
    api.slices["v1"] = []
    assert claims(node.read()) == []
    assert failures(node.later()) == []
    assert failures(node.later(60)) == [("team/p1", "unknown_device")]


def test_a_node_without_a_kubelet_says_nothing(tmp_path: Path, kubelet: Kubelet) -> None:
    kubelet.stop()
    assert Node(tmp_path / "root", kubelet).read() == []


def test_a_node_that_leaves_kubernetes_is_ruled_by_it_no_more(bare: Node, kubelet: Kubelet) -> None:
    hold(bare, kubelet, "one")
    bare.log("team", "one", 1)
    assert of(Scheduler, bare.read())
    kubelet.stop()
    bare.tree.remove(bare.start(1))
    assert of(Scheduler, bare.later(60))
    assert of(Scheduler, bare.later(600)) == []
    assert bare.later() == []


def test_the_remedy_is_named_where_the_extra_is_missing(
    bare: Node, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("h2", "h2.config", "h2.connection", "h2.settings", "h2.events", "h2.exceptions"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    hold(bare, kubelet, "one")
    (problem,) = bare.read()
    assert isinstance(problem, Failure)
    assert (problem.item, problem.reason) == ("", "not_installed")
    assert "pip install 'clusterwatt[kubernetes]'" in problem.detail
    kubelet.stop()
    assert Node(bare.tree.root / "other", kubelet).read() == []


def test_the_kubelet_is_asked_each_ten_seconds_and_when_pods_come_or_go(bare: Node, kubelet: Kubelet) -> None:
    hold(bare, kubelet, "one")
    bare.read()
    for _ in range(4):
        bare.later(2)
    assert kubelet.asked == 1
    bare.later(2)
    assert kubelet.asked == 2
    bare.start(2)
    bare.later(2)
    assert kubelet.asked == 3
    for number in range(3, 9):
        bare.start(number)
        bare.later(0.25)
    assert kubelet.asked == 4


def test_other_pods_of_the_job_belong_to_it(node: Node, kubelet: Kubelet, api: ApiServer) -> None:
    hold(node, kubelet, "worker-0")
    node.start(2)
    node.start(3)
    owner = reference("PyTorchJob", "train", group="kubeflow.org/v1")
    api.object("/apis/kubeflow.org/v1", "team", "pytorchjobs", "train")
    api.pod("team", "worker-0", uid(1), owner)
    api.pod("team", "loader-0", uid(2), owner)
    node.start(4)
    api.pod("team", "web", uid(3))
    api.pod("team", "loader-1", uid(4), owner, phase="Succeeded")
    readings = node.read()
    assert [member.member for member in of(JobMember, readings)] == [f"pod/{uid(1)}", f"pod/{uid(2)}"]
    assert [use.owner for use in of(JobHostUse, readings)] == [f"pod/{uid(1)}", f"pod/{uid(2)}"]
    assert [found.k8s_pod for found in of(JobPod, readings)] == ["worker-0"]


def test_cgroups_that_are_not_shown_take_no_pod_away(
    tmp_path: Path, kubelet: Kubelet, api: ApiServer
) -> None:
    node = Node(tmp_path / "root", kubelet, api)
    kubelet.say(pod("team", "one", container("main", {"nvidia.com/gpu": [A]})))
    api.pod("team", "one", uid(1))
    assert claims(node.read()) == [(f"k8s/{uid(1)}", A, f"pod/{uid(1)}/main")]


def test_who_does_not_say_which_node_it_is_is_told(tmp_path: Path, kubelet: Kubelet, api: ApiServer) -> None:
    node = Node(tmp_path / "root", kubelet)
    settings = Settings(socket=str(kubelet.path), api_url=api.url)
    node.collector = node.make(settings)
    hold(node, kubelet, "one")
    assert ("api", "not_configured") in failures(node.read())
    assert ("api", "not_configured") not in failures(node.later())
    node.collector = node.make(settings, NODE_NAME="node-a")
    assert ("api", "not_configured") not in failures(node.read())


NODE = "/api/v1/nodes/node-a"


def test_nvidias_labels_of_the_node_are_handed_on(node: Node, kubelet: Kubelet, api: ApiServer) -> None:
    hold(node, kubelet, "one")
    assert of(NodeLabels, node.read()) == [NodeLabels((("nvidia.com/gpu.present", "true"),))]
    state = ("nvidia.com/gpu-driver-upgrade-state", "pod-deletion-required")
    api.objects[NODE] = {"metadata": {"name": "node-a", "labels": dict([state])}}
    assert of(NodeLabels, node.later(30)) == [NodeLabels((state,))]
    api.status["/api/v1/nodes"] = 503
    assert of(NodeLabels, node.later(30)) == [NodeLabels((state,))]


def test_a_cordoned_node_is_in_maintenance_until_it_is_not(
    node: Node, kubelet: Kubelet, api: ApiServer
) -> None:
    hold(node, kubelet, "one")
    assert of(SchedulerNode, node.read()) == [SchedulerNode("kubernetes", maintenance=False)]
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    status = {"capacity": {"nvidia.com/gpu": "32"}}  # of a node whose eight GPUs are shared by four
    api.objects[NODE] |= {"spec": {"unschedulable": True, "taints": [taint]}, "status": status}
    assert of(SchedulerNode, node.later(30)) == [SchedulerNode("kubernetes", maintenance=True)]
    api.status["/api/v1/nodes"] = 503
    its_last_word = [SchedulerNode("kubernetes", maintenance=True)]
    assert of(SchedulerNode, node.later(30)) == its_last_word
    readings = node.later(86_400)  # after a day nobody may be kept from hearing of the node
    assert (of(SchedulerNode, readings), len(of(NodeLabels, readings))) == ([], 1)
    del api.status["/api/v1/nodes"]
    api.objects[NODE]["spec"] = {}
    assert of(SchedulerNode, node.later(30)) == [SchedulerNode("kubernetes", maintenance=False)]


def test_a_site_whose_cordons_are_no_maintenance_says_so(
    node: Node, kubelet: Kubelet, api: ApiServer
) -> None:
    settings = Settings(
        socket=str(kubelet.path),
        node_name="node-a",
        api_url=api.url,
        token_file=str(api.token_file),
        ca_file=str(api.ca_file),
        cordon_is_maintenance=False,
    )
    node.collector = node.make(settings)
    api.objects[NODE]["spec"] = {"unschedulable": True}
    hold(node, kubelet, "one")
    assert of(SchedulerNode, node.read()) == [SchedulerNode("kubernetes", maintenance=False)]


def test_a_node_that_the_api_does_not_tell_of_is_not_called_schedulable(bare: Node, kubelet: Kubelet) -> None:
    hold(bare, kubelet, "one")
    assert of(SchedulerNode, bare.read()) == []


def test_the_pods_of_an_indexed_job_are_told_with_their_host_names(
    node: Node, kubelet: Kubelet, api: ApiServer
) -> None:
    hold(node, kubelet, "train-0-x7k2p", "web")
    api.pod("team", "train-0-x7k2p", uid(1), hostname="train-0")
    api.pod("team", "web", uid(2))
    assert [(pod.k8s_pod, pod.host) for pod in of(JobPod, node.read())] == [
        ("train-0-x7k2p", "train-0"),
        ("web", ""),
    ]


def test_nothing_of_a_pods_environment_is_kept(node: Node, kubelet: Kubelet, api: ApiServer) -> None:
    hold(node, kubelet, "one")
    secret = {"kubectl.kubernetes.io/last-applied-configuration": '{"value": "EXAMPLE-NOT-REAL"}'}
    api.pod("team", "one", uid(1), annotations=secret)
    readings = node.read()
    assert claims(readings)
    assert "EXAMPLE-NOT-REAL" not in repr(readings)
    assert "EXAMPLE-NOT-REAL" not in repr(vars(vars(node.collector)["_cluster"]))


def test_in_a_pod_that_runs_slurmd_a_gpu_without_a_job_is_free(bare: Node, kubelet: Kubelet) -> None:
    bare.start(1)
    bare.log("team", "slurmd-0", 1)
    kubelet.say(pod("team", "slurmd-0", container("slurmd", {"nvidia.com/gpu": [A, B]})))
    said = [Scheduler("slurm"), SlurmdPod(uid(1)), Claim("slurm/7", B, "slurm"), *bare.read()]
    sources = {"slurm": True, "kubernetes": True}
    made = Holders().take(by_type([gpu(A), gpu(B, "1"), *said]), sources, now_s=0.0)
    assert {(held.uuid, held.job_id) for held in of(GpuAllocated, made)} == {(B, "slurm/7")}


def test_a_token_that_is_refused_once_costs_nobody_its_identity(
    node: Node, kubelet: Kubelet, api: ApiServer
) -> None:
    hold(node, kubelet, "one")
    node.log("team", "one", 1)
    api.pod("team", "one", uid(1), reference("Job", "train"))
    api.object("/apis/batch/v1", "team", "jobs", "train")
    api.tokens = {"second"}
    assert claims(node.read()) == []
    api.token_file.write_text("second")
    assert claims(node.later(5)) == [("k8s/uid-of-train", A, f"pod/{uid(1)}/main")]


def test_the_api_is_asked_each_half_minute_and_when_pods_come_or_go(
    node: Node, kubelet: Kubelet, api: ApiServer
) -> None:
    hold(node, kubelet, "one", "over")
    api.pod("team", "one", uid(1))
    api.pod("team", "over", uid(2), phase="Succeeded")
    node.tree.remove(node.start(2))

    def asked() -> int:
        return api.asked.count("/api/v1/pods")

    node.read()
    for _ in range(10):
        node.later(2)
    assert asked() == 1
    node.later(10)
    assert asked() == 2
    node.start(3)
    node.later(2)
    assert asked() == 3
    node.later(2)
    assert asked() == 3


def test_a_pod_that_the_api_forgot_is_whose_it_was_while_it_is_there(
    node: Node, kubelet: Kubelet, api: ApiServer
) -> None:
    hold(node, kubelet, "one")
    api.pod("team", "one", uid(1), reference("Job", "train"))
    api.object("/apis/batch/v1", "team", "jobs", "train")
    before = claims(node.read())
    api.pods.clear()
    api.objects.pop("/apis/batch/v1/namespaces/team/jobs/train")
    assert claims(node.later(30)) == before
    assert claims(node.later(900)) == before
    node.tree.remove(node.start(1))
    assert claims(node.later(2)) == []


def test_a_controller_that_cannot_be_read_is_waited_for(node: Node, kubelet: Kubelet, api: ApiServer) -> None:
    hold(node, kubelet, "one")
    api.pod("team", "one", uid(1), reference("Job", "train-0"))
    api.object(
        "/apis/batch/v1",
        "team",
        "jobs",
        "train-0",
        reference("JobSet", "train", group="jobset.x-k8s.io/v1alpha2"),
    )
    api.object("/apis/jobset.x-k8s.io/v1alpha2", "team", "jobsets", "train")
    api.status["/apis/batch"] = 500
    readings = node.read()
    assert claims(readings) == []
    assert ("api: owners", "io_error") in failures(readings)
    asked = len(api.asked)
    assert [problem.ongoing for problem in of(Failure, node.later(2))] == [True]
    assert len(api.asked) == asked
    api.status.clear()
    assert claims(node.later(5)) == [("k8s/uid-of-train", A, f"pod/{uid(1)}/main")]
    assert of(Failure, node.later(2)) == []


def test_a_device_of_an_unknown_form_is_told_and_the_others_are_read(bare: Node, kubelet: Kubelet) -> None:
    bare.start(1)
    bare.log("team", "one", 1)
    kubelet.say(pod("team", "one", container("main", {"nvidia.com/gpu": [A, "x-1", "x-2"]})))
    readings = bare.read()
    assert [device for _, device, _ in claims(readings)] == [A]
    (problem,) = of(Failure, readings)
    assert (problem.item, problem.reason) == ("team/one", "unknown_device")
    assert "2 devices" in problem.detail


def test_replicas_of_one_gpu_in_one_container_are_one_claim(bare: Node, kubelet: Kubelet) -> None:
    bare.start(1)
    bare.log("team", "one", 1)
    shared = {"nvidia.com/gpu.shared": [f"{A}::0", f"{A}::1"]}
    kubelet.say(pod("team", "one", container("main", shared), container("side", shared)))
    assert [(device, member) for _, device, member in claims(bare.read())] == [
        (A, f"pod/{uid(1)}/main"),
        (A, f"pod/{uid(1)}/side"),
    ]


def test_without_the_api_a_new_pod_is_known_at_once(bare: Node, kubelet: Kubelet) -> None:
    hold(bare, kubelet, "one")
    bare.log("team", "one", 1)
    assert claims(bare.read())
    hold(bare, kubelet, "one", "two")
    bare.log("team", "two", 2)
    readings = bare.later(2)
    assert [member for _, _, member in claims(readings)] == [f"pod/{uid(1)}/main", f"pod/{uid(2)}/main"]
    assert failures(readings) == []


def test_an_api_that_nobody_serves_is_asked_one_question_at_a_time(
    node: Node, kubelet: Kubelet, api: ApiServer
) -> None:
    hold(node, kubelet, "one")
    api.close()
    assert failures(node.read()) == [("api: pods", "io_error")]


def test_a_cgroup_that_cannot_be_read_costs_its_use_of_the_host_only(
    bare: Node, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(bare, kubelet, "one", "two")
    for number, name in enumerate(("one", "two"), 1):
        bare.log("team", name, number)
    real = Files.raw

    def raw(files: Files, path: str) -> bytes | None:
        if path.endswith("cpu.stat") and uid(1).replace("-", "_") in path:
            raise OSError(errno.EIO, "Input/output error", path)
        return real(files, path)

    monkeypatch.setattr(Files, "raw", raw)
    readings = bare.read()
    assert len(claims(readings)) == 2
    assert [use.owner for use in of(JobHostUse, readings)] == [f"pod/{uid(2)}"]
    assert failures(readings) == [(f"pod/{uid(1)}", "io_error")]
