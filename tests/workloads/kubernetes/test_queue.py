"""What waits in Kubernetes: pods without a node that ask for GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.config.load import load
from clusterwatt.config.model import Kubernetes, KubernetesQueue
from clusterwatt.learnt import Learnt
from clusterwatt.readings.work import SchedulerPending
from clusterwatt.wanted import Known, wanted
from clusterwatt.workloads.kubernetes.queue import KubernetesQueueCollector
from tests.clocks import FakeClock
from tests.workloads.kubernetes.api_server import ApiServer, reference


def collector(api: ApiServer) -> KubernetesQueueCollector:
    kubernetes = Kubernetes(api_url=api.url, token_file=str(api.token_file), ca_file=str(api.ca_file))
    return KubernetesQueueCollector(KubernetesQueue(), kubernetes, SystemClock(), environ={})


def told(asking: KubernetesQueueCollector) -> dict[str, tuple[float, float]]:
    readings = [one for one in asking.collect() if isinstance(one, SchedulerPending)]
    assert {one.scheduler for one in readings} <= {"kubernetes"}
    return {one.partition: (one.jobs, one.gpus) for one in readings}


def limits(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "main", "resources": {"limits": dict(asked), "requests": dict(asked)}}


def waits(api: ApiServer, name: str, gpus: int, *owners: dict[str, Any], **labels: str) -> None:
    """A pod in `team` that waits, with the labels of a queue or a group."""
    keys = {"queue": "kueue.x-k8s.io/queue-name", "jobset": "jobset.sigs.k8s.io/jobset-name"}
    api.pod("team", name, name, *owners, labels={keys[key]: value for key, value in labels.items()})
    api.pods[-1]["spec"]["containers"] = [limits({"nvidia.com/gpu": str(gpus), "cpu": "8", "memory": "64Gi"})]


def test_pods_of_one_controller_or_group_are_one_job_in_its_queue(api: ApiServer) -> None:
    for rank in range(4):
        waits(
            api, f"train-{rank}", 8, reference("Job", f"workers-{rank // 2}"), queue="large", jobset="train"
        )
    for rank in range(2):
        waits(api, f"sweep-{rank}", 1, reference("Job", "sweep"))
    waits(api, "alone", 2)
    waits(api, "without", 0)
    assert told(collector(api)) == {"large": (1, 32), "team": (2, 4)}
    assert api.queries[-1]["fieldSelector"] == ["spec.nodeName=,status.phase=Pending"]


def test_a_queue_that_is_empty_again_shows_0(api: ApiServer) -> None:
    asking = collector(api)
    assert told(asking) == {}
    waits(api, "one", 1, queue="large")
    assert told(asking) == {"large": (1, 1)}
    api.pods.clear()
    assert told(asking) == {"large": (0, 0)}


def test_every_container_counts_and_mig_and_shared_gpus_do(api: ApiServer) -> None:
    waits(api, "one", 1)
    api.pods[-1]["spec"]["containers"] += [
        limits({"nvidia.com/mig-1g.10gb": "2", "nvidia.com/gpumem": "3000"}),
        limits({"nvidia.com/gpu.shared": 1, "example.com/gpu": "7"}),
        {"name": "sidecar"},
    ]
    api.pods[-1]["spec"]["initContainers"] = [limits({"nvidia.com/gpu": "3"})]
    assert told(collector(api)) == {"team": (1, 4)}
    api.pods[-1]["spec"]["initContainers"] = [limits({"nvidia.com/gpu": "8"})]
    assert told(collector(api)) == {"team": (1, 8)}


def test_an_api_that_does_not_tell_says_nothing_of_the_queue(api: ApiServer) -> None:
    asking = collector(api)
    api.status["/api/v1/pods"] = 403
    with pytest.raises(PermissionError, match="needs list on pods"):
        told(asking)
    api.status["/api/v1/pods"] = 500
    with pytest.raises(OSError, match="HTTP status 500"):
        told(asking)
    nowhere = KubernetesQueueCollector(KubernetesQueue(), Kubernetes(), FakeClock(), environ={})
    with pytest.raises(OSError, match=r"set workloads\.kubernetes\.api_url"):
        told(nowhere)


def test_a_server_that_has_dropped_the_version_is_asked_for_the_newest(api: ApiServer) -> None:
    waits(api, "one", 1)
    api.expired = True
    assert told(collector(api)) == {"team": (1, 1)}


@pytest.mark.parametrize(
    ("settings", "asks"),
    [
        ([], False),
        (["workloads.kubernetes_queue.enabled=true"], True),
        (["workloads.kubernetes_queue.enabled=true", "workloads.kubernetes_queue.on_node=another"], False),
    ],
)
def test_one_agent_asks_and_only_where_it_is_told_to(settings: list[str], *, asks: bool) -> None:
    config = load(None, {}, settings).config
    names = {one.name for one in wanted(config, FakeClock(), Known(lambda: None, Learnt(None, FakeClock())))}
    assert ("kubernetes_queue" in names) is asks
