"""Pods that ask for GPUs and have no node yet, from the API: what waits in Kubernetes.

For one agent of a cluster: it lists such pods of all namespaces. Work that an admission queue holds back
before it has pods (suspended jobs of Kueue) is not seen here. Pods of one controller or group are one job, by
what they say themselves: no controller is asked for.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from clusterwatt.clock import Clock
from clusterwatt.config.model import Kubernetes, KubernetesQueue
from clusterwatt.readings.base import Reading
from clusterwatt.workloads.kubernetes import identity, pods
from clusterwatt.workloads.kubernetes.api import Api, ApiError
from clusterwatt.workloads.kubernetes.identity import Member
from clusterwatt.workloads.kubernetes.objects import Container, WaitingPod, WaitingPodList
from clusterwatt.workloads.kubernetes.owners import FORBIDDEN, nearest
from clusterwatt.workloads.queue import Waiting, pending

SELECTOR = "spec.nodeName=,status.phase=Pending"
MAX_PARTITIONS = 1_000  # that are remembered, to show 0


class KubernetesQueueCollector:
    """Lists what waits. A queue or namespace in which something has waited shows 0 from then on."""

    name = "kubernetes_queue"

    def __init__(
        self,
        settings: KubernetesQueue,
        kubernetes: Kubernetes,
        clock: Clock,
        *,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._kubernetes = kubernetes
        self._keys = identity.keys(kubernetes)
        self._known: dict[str, None] = {}
        self._api = Api.known(kubernetes, environ, clock, settings.timeout_seconds)

    def collect(self) -> Iterator[Reading]:
        """A reading for each queue. Raises OSError when the API does not tell."""
        if self._api is None:
            raise OSError(
                errno.ENOTCONN, "no API is known: run in the cluster, or set workloads.kubernetes.api_url"
            )
        try:
            answer = self._api.listed("/api/v1/pods", WaitingPodList, SELECTOR)
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            raise PermissionError(
                errno.EPERM, f"{error}: the agent's service account needs list on pods of all namespaces"
            ) from None
        waiting = list(self._waiting(answer.items or ()))
        self._known.update(dict.fromkeys(some.partition for some in waiting))
        while len(self._known) > MAX_PARTITIONS:
            del self._known[next(iter(self._known))]
        yield from pending("kubernetes", self._known, waiting)

    def _waiting(self, found: Iterable[WaitingPod]) -> Iterator[Waiting]:
        """The jobs of some pods, in the queue of each one's first pod."""
        jobs: dict[str, Waiting] = {}
        for one in found:
            gpus = self._gpus(one)
            if not gpus:
                continue
            pod = pods.from_api(one, self._keys)
            job_id = identity.job_id(Member(pod, nearest(pod)))
            known = jobs.get(job_id) or Waiting(self._queue(pod), 1, 0)
            jobs[job_id] = known._replace(gpus=known.gpus + gpus)
        yield from jobs.values()

    def _queue(self, pod: pods.Pod) -> str:
        labels = self._kubernetes.queue_labels
        return next((pod.marks[label] for label in labels if pod.marks.get(label)), pod.namespace)

    def _gpus(self, pod: WaitingPod) -> int:
        """What the pod asks for: its containers together, or its greediest init container."""
        together = sum(map(self._of_container, pod.spec.containers or ()))
        return max([together, *map(self._of_container, pod.spec.init_containers or ())])

    def _of_container(self, container: Container) -> int:
        asked = container.resources.limits or {}
        return sum(
            int(count)
            for resource, count in asked.items()
            if any(fnmatchcase(resource, pattern) for pattern in self._kubernetes.resources)
            and str(count).isdecimal()
        )
