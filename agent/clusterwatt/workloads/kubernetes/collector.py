"""Puts together what the kubelet has assigned, what the API says of the pods, and which of them are there.

A pod holds its devices from the moment its cgroup is there until it is gone or the API says that it is over,
whether or not anything runs in it. While kubelet or API cannot be asked their last word stands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.config.model import Kubernetes as Settings
from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.work import (
    Claim,
    JobHostUse,
    JobMember,
    JobPod,
    NodeLabels,
    Scheduler,
    SchedulerNode,
)
from clusterwatt.sysfs import Files
from clusterwatt.workloads.cgroups import Cgroups, WorkCgroup
from clusterwatt.workloads.kubernetes import hami, identity
from clusterwatt.workloads.kubernetes.api import Api
from clusterwatt.workloads.kubernetes.cluster import Cluster
from clusterwatt.workloads.kubernetes.devices import DRA_DRIVER, devices
from clusterwatt.workloads.kubernetes.identity import Member
from clusterwatt.workloads.kubernetes.kubelet import AssignedPod, Kubelet
from clusterwatt.workloads.kubernetes.owners import Chain, nearest
from clusterwatt.workloads.kubernetes.pods import Pod, PodName, logged

PATIENCE_SECONDS = 60.0  # in which the API may say whose a pod is, before it counts as a job of its own
RULES_SECONDS = 600.0  # for so long after the kubelet's last answer Kubernetes still rules over the GPUs


class KubernetesCollector:
    """Says which pods hold which GPUs; nothing on a node without the kubelet's socket."""

    name = "kubernetes"

    def __init__(
        self,
        files: Files,
        settings: Settings,
        clock: Clock,
        *,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._files = files
        self._settings = settings
        self._clock = clock
        self._cgroups = Cgroups(files, clock, kinds=("pod",))
        paths = dict.fromkeys((f"{files.root}{settings.socket}", settings.socket))
        self._kubelet = Kubelet(
            tuple(paths), clock, every_s=settings.kubelet_seconds, deadline_s=settings.deadline_seconds
        )
        self._cluster: Cluster | None = None
        self._unasked: Failure | None = None  # why the API is not asked, though it could be
        node = settings.node_name or environ.get("NODE_NAME", "")
        api = Api.known(settings, environ, clock, settings.deadline_seconds)
        if api is not None and node:
            self._cluster = Cluster(api, node, settings, clock)
        elif api is not None:
            detail = (
                "the API is not asked: set NODE_NAME from spec.nodeName, or workloads.kubernetes.node_name"
            )
            self._unasked = Failure("api", "not_configured", detail)
        self._seen: frozenset[str] | None = None  # uids of pods with a cgroup; None: cgroups are not shown
        self._waiting: set[str] = set()
        self._waiting_since_s: dict[str, float] = {}

    def collect(self) -> Iterator[Reading]:
        """Jobs of pods that hold GPUs, with their pods, devices and use of the host."""
        if self._kubelet.socket() is None and self._kubelet.pods is None:
            return
        cgroups = self._pod_cgroups()
        yield from self._cgroups.take_failures()
        changed = self._look(frozenset(cgroups))
        if changed:
            self._files.forget(self._settings.pod_logs)
        problem = self._kubelet.refresh(changed=changed)
        if problem is not None:
            yield problem
        assigned = [pod for pod in self._kubelet.pods or () if any(self._devices(pod))]
        yield from self._ask_cluster(assigned, changed=changed)
        yield from self._node()
        if self._kubelet.pods is not None:
            yield from self._say(assigned, cgroups)

    def _node(self) -> Iterator[Reading]:
        """What the API said of the node, once it has."""
        cluster = self._cluster
        if cluster is None or cluster.node_labels is None:
            return
        yield NodeLabels(labels=tuple(sorted(cluster.node_labels.items())))
        cordoned = cluster.cordoned
        if cordoned is not None:
            # status.capacity is no number to expect: it counts replicas and instances, and falls with a card.
            in_maintenance = self._settings.cordon_is_maintenance and cordoned
            yield SchedulerNode(scheduler="kubernetes", maintenance=in_maintenance)

    def _say(self, assigned: list[AssignedPod], cgroups: Mapping[str, WorkCgroup]) -> Iterator[Reading]:
        """Who holds what, by the last answers."""
        pods: dict[str, tuple[Pod, AssignedPod]] = {}
        for found in self._identified(assigned):
            if isinstance(found, Failure):
                yield found
            else:
                pods[found[0].uid] = found
        if not pods and self._clock.monotonic_s() - self._kubelet.answered_s > RULES_SECONDS:
            if self._kubelet.socket() is None:
                self._kubelet.forget()  # the node is none of Kubernetes any more
            return
        yield Scheduler(scheduler="kubernetes")
        jobs, unread = self._jobs([pod for pod, _ in pods.values()])
        if unread is not None:
            yield unread
        for job_id, members in jobs.items():
            yield identity.job(members, self._settings)
            for member in members:
                uid = member.pod.uid
                yield JobMember(member=f"pod/{uid}", job_id=job_id)
                if uid in pods:
                    yield from self._holdings(job_id, *pods[uid])
                if uid in cgroups:
                    yield self._host_use(uid, cgroups[uid])

    def _pod_cgroups(self) -> dict[str, WorkCgroup]:
        return {
            cgroup.owner.pod_uid: cgroup
            for cgroup in self._cgroups.scan()
            if cgroup.owner.kind == "pod" and not cgroup.owner.container_id
        }

    def _look(self, uids: frozenset[str]) -> bool:
        """Take the pods that have a cgroup now; whether any came or went."""
        if self._seen is None and not uids:  # a node of Kubernetes has pods: its cgroups are not shown here
            return False
        changed = uids != self._seen
        self._seen = uids
        return changed

    def _is_there(self, uid: str) -> bool:
        return self._seen is None or uid in self._seen

    def _devices(self, pod: AssignedPod) -> Iterator[tuple[str, str, str | None]]:
        """Container, name of the device at its source, and as a claim names it."""
        slices = self._cluster.slices if self._cluster is not None else {}
        for container in pod.containers:
            for name, device in devices(container, self._settings.resources, slices):
                yield container.name, name, device

    def _ask_cluster(self, assigned: list[AssignedPod], *, changed: bool) -> Iterator[Failure]:
        if self._unasked is not None:
            yield self._unasked
            self._unasked = msgspec.structs.replace(self._unasked, ongoing=True)
        if self._cluster is None:
            return
        drivers = {claimed.driver for pod in assigned for one in pod.containers for claimed in one.claimed}
        now_s = self._clock.monotonic_s()
        waiting = {key: since_s for key, since_s in self._waiting_since_s.items() if key in self._waiting}
        self._waiting_since_s, self._waiting = waiting, set()
        yield from self._cluster.refresh(
            changed=changed,
            missing=any(now_s - since_s < PATIENCE_SECONDS for since_s in waiting.values()),
            claims=DRA_DRIVER in drivers,
            alive=self._seen or frozenset(),
        )

    def _identified(self, assigned: list[AssignedPod]) -> Iterator[tuple[Pod, AssignedPod] | Failure]:
        """The pods that the kubelet means, without those that are over, gone, or not to be told yet."""
        logs: Mapping[PodName, set[str]] = {}
        if self._settings.pod_logs:
            try:
                logs = logged(self._files.names(self._settings.pod_logs))
            except OSError as error:
                yield failure(self._settings.pod_logs, error)
        for holder in assigned:
            name = holder.namespace, holder.name
            pod = self._cluster.pods.get(name) if self._cluster is not None else None
            uids = [uid for uid in logs.get(name, ()) if self._is_there(uid)]
            if pod is not None and (self._is_there(pod.uid) or (pod.over and not uids)):
                if not pod.over:
                    yield pod, holder
                continue
            # The API does not know it, or an earlier one of this name; the kubelet's logs name it as well.
            if self._may_be_told(uids[0] if uids else "/".join(name)):
                continue
            if len(uids) == 1:
                yield Pod(*name, uid=uids[0]), holder
            elif not (pod or logs or (self._cluster is not None and self._cluster.answers)):
                yield Pod(*name, uid="/".join(name)), holder
                remedy = f"let the agent list pods through the API, or show it {self._settings.pod_logs}"
                detail = f"its uid is not known, so it may be over or count apart from its job: {remedy}"
                yield Failure("/".join(name), "unidentified", detail)

    def _may_be_told(self, key: str) -> bool:
        """Whether the API may still say what is not known; it is waited for so long."""
        if self._cluster is None or not self._cluster.may_know_more:
            return False
        now_s = self._clock.monotonic_s()
        self._waiting.add(key)
        return now_s - self._waiting_since_s.setdefault(key, now_s) < PATIENCE_SECONDS

    def _jobs(self, holders: list[Pod]) -> tuple[dict[str, list[Member]], Failure | None]:
        """By job: pods that hold devices, and with them the other pods of their jobs on this node."""
        companions = self._companions(holders)
        chains: Mapping[str, Chain] = {}
        problem = None
        if self._cluster is not None:
            chains, problem = self._cluster.chains([*holders, *companions])
        jobs: dict[str, list[Member]] = {}
        for pod in holders:
            chain = chains.get(pod.uid)
            if chain is None and self._may_be_told(pod.uid):
                continue
            member = Member(pod, chain or nearest(pod))
            jobs.setdefault(identity.job_id(member), []).append(member)
        for pod in companions:
            member = Member(pod, chains.get(pod.uid) or nearest(pod))
            jobs.get(identity.job_id(member), []).append(member)
        return jobs, problem

    def _companions(self, holders: list[Pod]) -> list[Pod]:
        """Pods that hold no device, in the namespaces of those that do."""
        if self._cluster is None:
            return []
        namespaces = {pod.namespace for pod in holders}
        uids = {pod.uid for pod in holders}
        return [
            pod
            for pod in self._cluster.pods.values()
            if pod.namespace in namespaces
            and pod.uid not in uids
            and not pod.over
            and self._is_there(pod.uid)
        ]

    def _holdings(self, job_id: str, pod: Pod, holder: AssignedPod) -> Iterator[Reading]:
        """The pod's containers that hold devices, and each device once."""
        devices = hami.resolved(list(self._devices(holder)), pod.hami)
        for container in dict.fromkeys(container for container, _, _ in devices):
            yield JobPod(job_id, pod.namespace, pod.name, container, pod.host)
        for container, device in dict.fromkeys((container, device) for container, _, device in devices):
            if device is not None:
                yield Claim(job_id, device, source="kubernetes", member=f"pod/{pod.uid}/{container}")
        unknown = [name for _, name, device in devices if device is None]
        # The slice of a device may be newer than the API's last answer.
        if unknown and not self._may_be_told(f"{pod.uid} {unknown[0]}"):
            detail = f"{len(unknown)} devices have names of an unknown form, such as {unknown[0][:100]}"
            yield Failure(f"{pod.namespace}/{pod.name}", "unknown_device", detail)

    def _host_use(self, uid: str, cgroup: WorkCgroup) -> JobHostUse | Failure:
        try:
            cpu_seconds = self._cgroups.cpu_seconds(cgroup)
            memory_bytes = self._cgroups.memory_bytes(cgroup)
        except OSError as error:
            return failure(f"pod/{uid}", error)
        return JobHostUse(f"pod/{uid}", cpu_seconds, memory_bytes)
