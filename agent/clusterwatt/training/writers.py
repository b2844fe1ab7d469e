"""Which node and which job a run belongs to: by who wrote its files.

An event file bears the name of the host that wrote it. In a container that is the container's own name, by
default its short id or the pod's name; whoever knows these tells them, with the owner of each. Jobs of
Kubernetes with an index for each pod set another: `train-0` for the pod `train-0-x7k2p`
(https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from clusterwatt.config.model import Training as Settings
from clusterwatt.readings.work import Job, JobPod
from clusterwatt.training.event_files import Name, Place

CLOCK_SLACK_S = 2.0  # names hold whole seconds
LONGEST_HOST_NAME = 63  # the kubelet cuts the name of a pod to it (truncatePodHostnameIfNeeded)


class Process(NamedTuple):
    """A process of the node's own: whose it is (a job's id or the name of a `JobMember`), and since when."""

    owner: str
    started_s: float
    uid: int


def hosts_of_work(pods: Iterable[JobPod], jobs: Iterable[Job]) -> dict[str, str]:
    """Owners by host name, of the node's pods and of containers under the names that they get by default.

    The owner is empty where pods of two jobs, in two namespaces, have the same name.
    """
    owners: dict[str, str] = {}
    for pod in pods:
        host = (pod.host or pod.k8s_pod)[:LONGEST_HOST_NAME].rstrip("-.")
        owners[host] = pod.job_id if owners.get(host, pod.job_id) == pod.job_id else ""
    for job in jobs:
        kind, _, container_id = job.job_id.partition("/")
        if kind == "container":
            owners[container_id] = job.job_id
    return owners


class Writers:
    """Tells files of this node from those of others, and finds their owners.

    `process`: the process that has a pid now. `members`: owners by the host names of containers and pods.
    """

    def __init__(
        self,
        settings: Settings,
        host: str,
        process: Callable[[int], Process | None],
        members: Callable[[], Mapping[str, str]],
    ) -> None:
        self._any_host = settings.any_host
        self._host = host.lower()
        self._patterns = [re.compile(pattern) for pattern in settings.hosts if pattern]
        self._job_in_path = re.compile(settings.job_from_path) if settings.job_from_path else None
        self._process = process
        self._members = members

    def accepts(self, name: Name) -> bool:
        """Whether a file is exported by this node."""
        return self._any_host or self._is_node(name.host) or name.host in self._members()

    def owner(self, place: Place, uid: int) -> str:
        """Whose a file is, `uid` being the user whose file it is; empty when nothing tells."""
        name = place.name
        if name.pid is not None and self._is_node(name.host):
            process = self._process(name.pid)
            # Pids are given out again, and those of a container mean others here.
            if (
                process is not None
                and process.uid == uid
                and process.started_s <= (name.created_s or 0.0) + CLOCK_SLACK_S
            ):
                return process.owner
        owner = self._members().get(name.host, "")
        if not owner and self._job_in_path is not None:
            match = self._job_in_path.search(place.path)
            job = match["job"] if match is not None else None
            owner = f"slurm/{job}" if job else ""
        return owner

    def _is_node(self, host: str) -> bool:
        """Whether a host name is the node's: its own, with or without the domain, or a configured one."""
        if not host:
            return False
        if any(pattern.fullmatch(host) for pattern in self._patterns):
            return True
        host = host.lower()
        short, long = sorted((host, self._host), key=len)
        return short == long or long.startswith(short + ".")
