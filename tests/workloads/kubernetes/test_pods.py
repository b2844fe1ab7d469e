"""What is kept of a pod."""

from __future__ import annotations

from clusterwatt.workloads.kubernetes import objects
from clusterwatt.workloads.kubernetes.objects import Meta, OwnerReference
from clusterwatt.workloads.kubernetes.pods import Pod, controller, from_api, logged, marks


def test_what_is_kept_of_a_pod() -> None:
    meta = Meta(
        name="p",
        namespace="team",
        uid="ABC",
        labels={"user": "ada", "other": "x"},
        annotations={"note": "long"},
    )
    status = objects.PodStatus(phase="Running", start_time="2023-11-14T22:13:20Z")
    assert from_api(objects.Pod(meta, status), {"user", "none"}) == Pod(
        "team", "p", "abc", {"user": "ada"}, None, 1_700_000_000.0, over=False
    )


def test_an_annotation_goes_before_a_label_of_the_same_name_and_is_cut() -> None:
    meta = Meta(labels={"user": "ada-40example"}, annotations={"user": "ada@example" * 100})
    assert marks(meta, {"user"}) == {"user": ("ada@example" * 100)[:253]}


def test_owners_that_do_not_manage_the_object_are_none() -> None:
    budget = OwnerReference("v1", "Budget", "b", "1", controller=False)
    job = OwnerReference("batch/v1", "Job", "j", "2", controller=True)
    assert controller(Meta(owner_references=[budget, job])) == job
    assert controller(Meta(owner_references=[budget, OwnerReference("v1", "X", "x", "3", None)])) is None
    assert controller(Meta()) is None


def test_a_pod_without_a_start_has_none() -> None:
    for text in (None, "", "soon"):
        assert from_api(objects.Pod(Meta(), objects.PodStatus("Pending", text)), ()).started_s is None


def test_uids_in_the_names_of_the_kubelets_logs() -> None:
    folders = [
        "team_web-0_AAA",
        "team_web-0_bbb",
        "kube-system_proxy_ccc",
        "lost+found",
        "a_b",
        "a_b_c_d",
        "__x",
    ]
    assert logged(folders) == {("team", "web-0"): {"aaa", "bbb"}, ("kube-system", "proxy"): {"ccc"}}
