"""The topmost controller is the job, whatever stands between."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusterwatt.config.model import Kubernetes as Settings
from clusterwatt.workloads.kubernetes import identity
from clusterwatt.workloads.kubernetes.api import Address, Api, ApiError
from clusterwatt.workloads.kubernetes.identity import Member
from clusterwatt.workloads.kubernetes.objects import OwnerReference
from clusterwatt.workloads.kubernetes.owners import KEPT_SECONDS, Chain, Owner, Owners
from clusterwatt.workloads.kubernetes.pods import Pod
from tests.clocks import FakeClock
from tests.workloads.kubernetes.api_server import ApiServer, reference

APPS, JOB_SET, KUBEFLOW = "/apis/apps/v1", "/apis/jobset.x-k8s.io/v1alpha2", "/apis/kubeflow.org/v1"
RAY, LWS, VOLCANO = "/apis/ray.io/v1", "/apis/leaderworkerset.x-k8s.io/v1", "/apis/batch.volcano.sh/v1alpha1"
SETTINGS = Settings()

# Root and plural of each kind; the chain of each job from the pod's own controller up; its kind of work.
PLACES = {
    "Job": ("/apis/batch/v1", "jobs"),
    "CronJob": ("/apis/batch/v1", "cronjobs"),
    "Pod": ("/api/v1", "pods"),
    "Deployment": (APPS, "deployments"),
    "ReplicaSet": (APPS, "replicasets"),
    "StatefulSet": (APPS, "statefulsets"),
    "JobSet": (JOB_SET, "jobsets"),
    "PyTorchJob": (KUBEFLOW, "pytorchjobs"),
    "MPIJob": (KUBEFLOW, "mpijobs"),
    "Notebook": (KUBEFLOW, "notebooks"),
    "RayJob": (RAY, "rayjobs"),
    "RayCluster": (RAY, "rayclusters"),
    "LeaderWorkerSet": (LWS, "leaderworkersets"),
    "Experiment": ("/apis/example.com/v1", "experiments"),
}
CHAINS = [
    (["Job"], "Job", "batch"),
    (["Job", "CronJob"], "Job", "batch"),
    (["Job", "JobSet"], "JobSet", "batch"),
    (["PyTorchJob"], "PyTorchJob", "batch"),
    (["Job", "MPIJob"], "MPIJob", "batch"),
    (["StatefulSet", "MPIJob"], "MPIJob", "batch"),
    (["RayCluster"], "RayCluster", "batch"),
    (["RayCluster", "RayJob"], "RayJob", "batch"),
    (["StatefulSet", "Pod", "StatefulSet", "LeaderWorkerSet"], "LeaderWorkerSet", "service"),
    (["ReplicaSet", "Deployment"], "Deployment", "service"),
    (["StatefulSet"], "StatefulSet", "service"),
    (["StatefulSet", "Notebook"], "Notebook", "interactive"),
    (["PyTorchJob", "Experiment"], "Experiment", "batch"),
]


def owners(api: ApiServer, clock: FakeClock) -> Owners:
    address = Address(api.url, str(api.token_file), str(api.ca_file))
    return Owners(Api(address, clock, 5.0), clock, identity.keys(SETTINGS))


def owned(api: ApiServer, *kinds: str) -> Pod:
    """A pod below a chain of controllers, which are made."""
    references = []
    for height, kind in enumerate(kinds):
        root, _ = PLACES[kind]
        group = root.removeprefix("/apis/").removeprefix("/api/")
        references.append(reference(kind, f"{kind.lower()}-{height}", group=group))
    for height, kind in enumerate(kinds):
        root, plural = PLACES[kind]
        api.object(root, "team", plural, f"{kind.lower()}-{height}", *references[height + 1 : height + 2])
    return pod_of(references[0])


def pod_of(made_by: dict[str, object], **marks: str) -> Pod:
    above = OwnerReference(
        str(made_by["apiVersion"]), str(made_by["kind"]), str(made_by["name"]), str(made_by["uid"]), True
    )
    return Pod("team", "pod-0", "uid-of-pod", marks, above)


@pytest.mark.parametrize(
    ("kinds", "topmost", "work"), CHAINS, ids=["-".join(kinds) for kinds, _, _ in CHAINS]
)
def test_the_topmost_controller_is_the_job(api: ApiServer, kinds: list[str], topmost: str, work: str) -> None:
    pod = owned(api, *kinds)
    member = Member(pod, owners(api, FakeClock()).chain(pod))
    job = identity.job([member], SETTINGS)
    assert (job.k8s_owner_kind, job.kind) == (topmost, work)
    assert job.job_id == f"k8s/uid-of-{topmost.lower()}-{len(member.chain.owners) - 1}"
    assert job.name == job.k8s_owner


def test_volcanos_job_is_not_kubernetes_own(api: ApiServer) -> None:
    api.object(VOLCANO, "team", "jobs", "train")
    pod = pod_of(reference("Job", "train", group="batch.volcano.sh/v1alpha1"))
    assert [owner.uid for owner in owners(api, FakeClock()).chain(pod).owners] == ["uid-of-train"]
    assert api.asked == [VOLCANO, f"{VOLCANO}/namespaces/team/jobs/train"]


def test_controllers_are_read_once_and_without_their_content(api: ApiServer) -> None:
    clock = FakeClock()
    walk = owners(api, clock)
    pod = owned(api, "Job", "JobSet")
    first = walk.chain(pod)
    asked = len(api.asked)
    assert walk.chain(pod) == first
    assert len(api.asked) == asked
    assert all(
        "PartialObjectMetadata" in accept
        for path, accept in zip(api.asked, api.accepted, strict=True)
        if "/team/" in path
    )
    clock.advance(KEPT_SECONDS)
    assert walk.chain(pod) == first
    assert len(api.asked) == asked + 2


def test_where_a_controller_may_not_be_read_the_last_known_one_is_the_job(api: ApiServer) -> None:
    pod = owned(api, "ReplicaSet", "Deployment")
    api.status[f"{APPS}/namespaces"] = 403
    chain = owners(api, FakeClock()).chain(pod)
    assert chain == Chain((Owner("ReplicaSet", "replicaset-0", "uid-of-replicaset-0"),), whole=False)
    assert identity.job_id(Member(pod, chain)) == "k8s/uid-of-replicaset-0"


def test_where_it_may_not_be_read_the_operators_label_names_the_group(api: ApiServer) -> None:
    api.status["/apis/batch/v1/namespaces"] = 403
    pods = [
        pod_of(reference("Job", f"train-workers-{index}"), **{"jobset.sigs.k8s.io/jobset-name": "train"})
        for index in range(2)
    ]
    walk = owners(api, FakeClock())
    jobs = [identity.job([Member(pod, walk.chain(pod))], SETTINGS) for pod in pods]
    assert {(job.job_id, job.name, job.k8s_owner_kind) for job in jobs} == {
        ("k8s/team/JobSet/train", "train", "JobSet")
    }


def test_plain_pods_of_a_group_are_one_job() -> None:
    marks = {"kueue.x-k8s.io/pod-group-name": "sweep"}
    pods = [Pod("team", f"p{index}", f"uid-{index}", marks) for index in range(2)]
    assert {identity.job_id(Member(pod, Chain())) for pod in pods} == {"k8s/team/PodGroup/sweep"}


def test_what_was_known_of_a_controller_stands_when_it_is_gone_or_forbidden(api: ApiServer) -> None:
    clock = FakeClock()
    walk = owners(api, clock)
    pod = owned(api, "Job", "JobSet")
    before = walk.chain(pod)
    for status in (403, 404, 500):
        api.status["/apis"] = status
        clock.advance(KEPT_SECONDS)
        assert walk.chain(pod) == before


def test_a_controller_that_cannot_be_read_now_is_not_guessed(api: ApiServer) -> None:
    pod = owned(api, "Job", "JobSet")
    api.status[JOB_SET] = 500
    walk = owners(api, FakeClock())
    with pytest.raises(ApiError):
        walk.chain(pod)
    api.status.clear()
    assert [owner.kind for owner in walk.chain(pod).owners] == ["Job", "JobSet"]


def test_a_controller_that_is_gone_is_the_topmost(api: ApiServer) -> None:
    pod = pod_of(reference("Job", "gone"))
    assert owners(api, FakeClock()).chain(pod) == Chain((Owner("Job", "gone", "uid-of-gone"),))


def test_another_controller_of_the_same_name_is_not_asked_for_its_owner(api: ApiServer) -> None:
    above = reference("JobSet", "other", group="jobset.x-k8s.io/v1alpha2")
    api.objects["/apis/batch/v1/namespaces/team/jobs/gone"] = {
        "metadata": {"uid": "another", "ownerReferences": [above]}
    }
    chain = owners(api, FakeClock()).chain(pod_of(reference("Job", "gone")))
    assert [owner.uid for owner in chain.owners] == ["uid-of-gone"]


def test_what_the_topmost_controller_says_goes_before_what_others_say() -> None:
    def owner(kind: str, **marks: str) -> Owner:
        return Owner(kind, kind.lower(), kind, {f"clusterwatt.io/{key}": text for key, text in marks.items()})

    chain = Chain((owner("Job", user="job", account="job"), owner("JobSet", user="set")))
    pod = Pod("team", "p", "1", {"clusterwatt.io/user": "pod", "kueue.x-k8s.io/queue-name": "pod"})
    job = identity.job([Member(pod, chain)], SETTINGS)
    assert (job.user, job.account, job.queue) == ("set", "job", "pod")


def test_controllers_that_own_each_other_come_to_an_end(api: ApiServer) -> None:
    one, two = reference("Job", "one"), reference("Job", "two")
    api.object("/apis/batch/v1", "team", "jobs", "one", two)
    api.object("/apis/batch/v1", "team", "jobs", "two", one)
    assert len(owners(api, FakeClock()).chain(pod_of(one)).owners) <= 10


def test_an_exempt_job_says_so_on_pod_or_controller() -> None:
    def exempt(on_pod: str, on_owner: str) -> bool:
        owner = Owner("Job", "train", "u", {"clusterwatt.io/exempt": on_owner})
        pod = Pod("team", "p", "1", {"clusterwatt.io/exempt": on_pod})
        return identity.job([Member(pod, Chain((owner,)))], SETTINGS).exempt

    assert exempt("true", "")
    assert exempt("", "True")
    assert not exempt("false", "no")


def test_a_notebook_of_jupyterhub_is_interactive_and_names_its_user() -> None:
    pod = Pod("hub", "jupyter-ada", "1", {"hub.jupyter.org/username": "ada@example.org"})
    job = identity.job([Member(pod, Chain())], SETTINGS)
    assert (job.kind, job.user, job.account) == ("interactive", "ada@example.org", "hub")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pods=st.sampled_from([1, 2, 64]), chain=st.sampled_from([kinds for kinds, _, _ in CHAINS]), data=st.data()
)
def test_cut_into_any_number_of_pods_a_job_is_the_same(
    pods: int, chain: list[str], data: st.DataObject
) -> None:
    """On whichever nodes they run, and whatever each pod says of itself."""
    controllers = tuple(
        Owner(kind, f"{kind}-{height}", f"uid-{height}", {"clusterwatt.io/user": "ada"})
        for height, kind in enumerate(chain)
    )
    members = [
        Member(
            Pod("team", f"pod-{index}", f"uid-of-pod-{index}", {"clusterwatt.io/user": f"user-{index}"}),
            # Pods of one job may come through different Jobs of a JobSet.
            Chain(
                (
                    *(Owner(o.kind, f"{o.name}-{index}", f"{o.uid}-{index}") for o in controllers[:-1]),
                    controllers[-1],
                )
            ),
        )
        for index in range(pods)
    ]
    whole = identity.job(members, SETTINGS)
    node = data.draw(st.lists(st.sampled_from(members), min_size=1, unique_by=lambda member: member.pod.uid))
    assert {identity.job_id(member) for member in members} == {whole.job_id}
    assert identity.job(node, SETTINGS) == whole
