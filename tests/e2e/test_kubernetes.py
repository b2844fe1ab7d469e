"""Kubernetes with simulated GPUs: the agent asks kubelet and API, and its page says who holds what."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.page import Page
from tests.e2e.servers import Server, agent, until
from tests.workloads.kubernetes.api_server import ApiServer, reference
from tests.workloads.kubernetes.kubelet_server import Kubelet, claim, container, pod, socket_folder
from tests.workloads.trees import Tree

pytestmark = pytest.mark.e2e

SEEN_S = 20.0
ALLOCATED = "clusterwatt_gpu_allocated"


def uid(number: int) -> str:
    return f"00000000-1111-2222-3333-{number:012}"


@contextlib.contextmanager
def watching(folder: Path, kubelet: Kubelet, api: ApiServer) -> Iterator[tuple[Server, Tree]]:
    """The agent on such a node, with four GPUs."""
    tree = Tree(folder / "root")
    settings = {
        "simulate.gpus": 4,
        "simulate.jobs": "false",
        "workloads.kubernetes.socket": kubelet.path,
        "workloads.kubernetes.node_name": "node-a",
        "workloads.kubernetes.api_url": api.url,
        "workloads.kubernetes.token_file": api.token_file,
        "workloads.kubernetes.ca_file": api.ca_file,
        "workloads.kubernetes.every_seconds": 0.5,
        "workloads.kubernetes.kubelet_seconds": 1,
        "workloads.kubernetes.api_seconds": 5,
    }
    chosen = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with agent(folder, "--simulate", "h100", "--root", str(tree.root), *chosen) as server:
        yield server, tree


def shares(page: Page) -> dict[tuple[str, str], float]:
    """Share by GPU and job."""
    return {(found["gpu"], found["job_id"]): share for found, share in page.series(ALLOCATED)}


def test_pods_hold_whole_shared_and_claimed_gpus(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    api = ApiServer(tmp_path / "api")
    with contextlib.ExitStack() as stack:
        stack.callback(api.close)
        kubelet = Kubelet(stack.enter_context(socket_folder()) / "kubelet.sock")
        stack.callback(kubelet.stop)
        server, tree = stack.enter_context(watching(tmp_path, kubelet, api))
        uuids = until(lambda: _uuids(server.page()), SEEN_S, "GPUs are seen")
        for number, name in enumerate(("train-0", "web-0", "web-1", "dra"), 1):
            tree.cgroup(f"/kubepods/pod{uid(number)}/{'c' * 64}")
            kind = {"t": "PyTorchJob", "w": "StatefulSet", "d": "Job"}[name[0]]
            group = {"t": "kubeflow.org/v1", "w": "apps/v1", "d": "batch/v1"}[name[0]]
            api.pod("team", name, uid(number), reference(kind, name[:3], group=group))
        api.slices["v1"] = [
            {
                "spec": {
                    "driver": "gpu.nvidia.com",
                    "pool": {"name": "node-a", "generation": 1},
                    "devices": [{"name": "gpu-9", "attributes": {"uuid": {"string": uuids["2"]}}}],
                }
            }
        ]
        kubelet.say(
            pod("team", "train-0", container("main", {"nvidia.com/gpu": [uuids["0"]]})),
            pod("team", "web-0", container("main", {"nvidia.com/gpu.shared": [f"{uuids['1']}::0"]})),
            pod("team", "web-1", container("main", {"nvidia.com/gpu.shared": [f"{uuids['1']}::2"]})),
            pod("team", "dra", container("main", {}, claim("gpu-9"))),
        )
        held = {("0", "k8s/uid-of-tra"): 1.0, ("1", "k8s/uid-of-web"): 1.0, ("2", "k8s/uid-of-dra"): 1.0}
        until(lambda: shares(server.page()) == held, SEEN_S, "the jobs of all pods")
        page = server.page()
        assert page.value("clusterwatt_scheduler_gpus_allocated", scheduler="kubernetes") == 3
        assert page.by("job_id", ALLOCATED, kind="service", account="team") == {"k8s/uid-of-web": 1.0}
        kubelet.stop()
        up = {"collector": "kubernetes"}
        until(
            lambda: server.page().value("clusterwatt_collector_up", **up) == 0, SEEN_S, "the kubelet is gone"
        )
        assert shares(server.page()) == held
        tree.remove(f"/kubepods/pod{uid(4)}")
        del held["2", "k8s/uid-of-dra"]
        until(lambda: shares(server.page()) == held, SEEN_S, "a pod goes while the kubelet is away")
        kubelet.start()
        until(
            lambda: server.page().value("clusterwatt_collector_up", **up) == 1, SEEN_S, "the kubelet is back"
        )
        assert shares(server.page()) == held


def _uuids(page: Page) -> dict[str, str]:
    return {found["gpu"]: found["uuid"] for found, _ in page.series("clusterwatt_gpu_info")}
