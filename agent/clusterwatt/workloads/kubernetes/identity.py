"""Which job a pod belongs to, and what is said of it: the same on every node on which the job has pods.

The topmost controller is the job. Where it may not be read, or pods of one group have no controller at all,
the label of a known operator names the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from clusterwatt.config.model import Kubernetes as Settings
from clusterwatt.readings.work import Job
from clusterwatt.workloads.kubernetes.owners import Chain
from clusterwatt.workloads.kubernetes.pods import Marks, Pod

# Labels and annotations that hold a group together: JobSet, LeaderWorkerSet, Kueue's plain pods, the
# coscheduling plugin, Volcano.
GROUPS = {
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    "kueue.x-k8s.io/pod-group-name": "PodGroup",
    "scheduling.x-k8s.io/pod-group": "PodGroup",
    "scheduling.k8s.io/group-name": "PodGroup",
}
EXEMPT = "clusterwatt.io/exempt"


class Member(msgspec.Struct, frozen=True):
    """A pod with its controllers."""

    pod: Pod
    chain: Chain


def keys(settings: Settings) -> frozenset[str]:
    """All labels and annotations that are looked at."""
    configured = (settings.user_labels, settings.account_labels, settings.queue_labels)
    return frozenset(
        {EXEMPT, *GROUPS, *settings.interactive_labels, *(key for part in configured for key in part)}
    )


def job_id(member: Member) -> str:
    """The job's identity: its controller's uid, else namespace, kind and name of its group."""
    group = _group(member)
    if group is not None:
        return f"k8s/{member.pod.namespace}/{'/'.join(group)}"
    owners = member.chain.owners
    return f"k8s/{owners[-1].uid if owners else member.pod.uid}"


def job(members: Iterable[Member], settings: Settings) -> Job:
    """The job of some pods of it, of which there is at least one."""
    ordered = sorted(members, key=lambda member: member.pod.name)
    first = ordered[0]
    pod = first.pod
    owner_kind, owner_name = _owner(first)
    found = tuple(marks for member in ordered for marks in _marks(member))
    started = [member.pod.started_s for member in ordered if member.pod.started_s is not None]
    return Job(
        job_id=job_id(first),
        scheduler="kubernetes",
        kind=_kind(first, settings, found),
        name=owner_name,
        user=_first(found, settings.user_labels),
        account=_first(found, settings.account_labels) or pod.namespace,
        queue=_first(found, settings.queue_labels),
        k8s_namespace=pod.namespace,
        k8s_owner=owner_name,
        k8s_owner_kind=owner_kind,
        started_s=min(started, default=None),
        exempt=any(marks.get(EXEMPT, "").lower() == "true" for marks in found),
    )


def _group(member: Member) -> tuple[str, str] | None:
    """Kind and name of the group that a label names, where controllers do not tell."""
    owners = member.chain.owners
    if owners and member.chain.whole:
        return None
    for key, kind in GROUPS.items():
        name = member.pod.marks.get(key)
        if name and (not owners or owners[-1].kind != kind):
            return kind, name
    return None


def _owner(member: Member) -> tuple[str, str]:
    group = _group(member)
    if group is not None:
        return group
    owners = member.chain.owners
    return (owners[-1].kind, owners[-1].name) if owners else ("Pod", member.pod.name)


def _marks(member: Member) -> Iterator[Marks]:
    """From the topmost controller down to the pod: what is said above is the same for all pods."""
    yield from (owner.marks for owner in reversed(member.chain.owners))
    yield member.pod.marks


def _first(found: tuple[Marks, ...], wanted: tuple[str, ...]) -> str:
    return next((marks[key] for key in wanted for marks in found if marks.get(key)), "")


def _kind(member: Member, settings: Settings, found: tuple[Marks, ...]) -> str:
    """The first controller from above that tells; a StatefulSet below an MPIJob does not."""
    for kind in (_owner(member)[0], *(owner.kind for owner in reversed(member.chain.owners))):
        if kind in settings.interactive_kinds:
            return "interactive"
        if kind in settings.service_kinds:
            return "service"
        if kind.endswith("Job"):
            return "batch"
    return "interactive" if _first(found, settings.interactive_labels) else "batch"
