"""Shares of GPUs that HAMi gives: the annotation tells the GPU, the id at the kubelet may name another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterwatt.attribution.holders import Holders
from clusterwatt.readings.base import by_type
from clusterwatt.readings.work import Claim, GpuAllocated
from clusterwatt.workloads.kubernetes.hami import ANNOTATION, given, resolved
from tests.attribution.node import A, B, gpu
from tests.workloads.kubernetes.api_server import ApiServer
from tests.workloads.kubernetes.kubelet_server import Kubelet, container, pod
from tests.workloads.kubernetes.test_collector import Node, failures, of, uid


def one(uuid: str) -> str:
    return f"{uuid},NVIDIA,3000,30:"


@pytest.mark.parametrize(
    ("annotation", "containers"),
    [
        (f"{one(A)};", ((A,),)),
        (f"{one(A)}{one(B)};{one(A)};", ((A, B), (A,))),
        (f";{one(B)};", ((B,),)),  # the first container has none
        (f"{A}[0-1],NVIDIA,10240,0:;", ()),  # a MIG instance that HAMi makes
        (f"{one(A)};MLU-1,MLU,1,1:;", ()),
        ("", ()),
        (";;", ()),
        (":,;", ()),
        (f"{one(A)};" * 2_000, ()),
    ],
)
def test_annotations(annotation: str, containers: tuple[tuple[str, ...], ...]) -> None:
    assert given(annotation) == containers


def test_ids_take_the_gpus_of_the_annotation_in_order() -> None:
    ids = [("a", f"{B}-1", None), ("a", f"{B}-2", None), ("b", f"{A}-0", None)]
    assert resolved(ids, ((A, B), (B,))) == [("a", f"{B}-1", A), ("a", f"{B}-2", B), ("b", f"{A}-0", B)]


@pytest.mark.parametrize("said", [(), ((A,), (B,)), ((A, B, A),), ((A,),)])
def test_an_annotation_that_does_not_fit_the_ids_is_not_believed(said: tuple[tuple[str, ...], ...]) -> None:
    ids = [("a", f"{B}-1", None), ("a", f"{B}-2", None)]
    assert resolved(ids, said) == ids


def test_an_annotation_moves_no_device_of_another_plugin() -> None:
    whole = [("a", B, B), ("a", "what", None)]
    assert resolved(whole, ((A,),)) == whole


def start(node: Node, api: ApiServer, number: int, at_kubelet: str, said: str) -> dict[str, Any]:
    """A pod with one share; gives what the kubelet says of it."""
    name = f"share-{number}"
    api.pod("team", name, uid(number), annotations={ANNOTATION: said} if said else None)
    node.start(number)
    return pod("team", name, container("main", {"nvidia.com/gpu": [at_kubelet]}))


def test_two_pods_share_the_gpu_that_hami_has_chosen(
    tmp_path: Path, kubelet: Kubelet, api: ApiServer
) -> None:
    node = Node(tmp_path / "root", kubelet, api)
    kubelet.say(
        start(node, api, 1, f"{A}-0", f"{one(B)};"),
        start(node, api, 2, f"{A}-1", f"{one(B)};"),
    )
    readings = node.read()
    assert {(claim.job_id, claim.device) for claim in of(Claim, readings)} == {
        (f"k8s/{uid(1)}", B),
        (f"k8s/{uid(2)}", B),
    }
    assert failures(readings) == []
    infos = [gpu(A, "0"), gpu(B, "1")]
    taken = Holders().take(by_type([*readings, *infos]), {"kubernetes": True}, now_s=0.0)
    shares = of(GpuAllocated, taken)
    assert {(share.uuid, share.share) for share in shares} == {(B, 0.5)}


def test_without_the_annotation_nobody_is_charged(tmp_path: Path, kubelet: Kubelet, api: ApiServer) -> None:
    node = Node(tmp_path / "root", kubelet, api)
    kubelet.say(start(node, api, 1, f"{A}-0", ""))
    assert of(Claim, node.read()) == []
    assert failures(node.later(60)) == [("team/share-1", "unknown_device")]
