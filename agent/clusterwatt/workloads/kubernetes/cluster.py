"""What the API says of this node: its pods with their controllers, slices of the DRA driver, the node itself.

What was said last stands while the API cannot be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from clusterwatt.clock import EARLY, Clock
from clusterwatt.config.model import Kubernetes as Settings
from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure
from clusterwatt.readings.work import LAST_WORD_SECONDS
from clusterwatt.workloads.kubernetes import identity, pods, slices
from clusterwatt.workloads.kubernetes.api import Api, ApiError
from clusterwatt.workloads.kubernetes.devices import Slices
from clusterwatt.workloads.kubernetes.objects import Node, PodList
from clusterwatt.workloads.kubernetes.owners import FORBIDDEN, NOT_FOUND, Chain, Owners
from clusterwatt.workloads.kubernetes.pods import Pod, PodName

AT_ONCE_SECONDS = 1.0  # when pods came or went
AGAIN_SECONDS = 5.0  # for what the last answer did not hold
FORBIDDEN_SECONDS = 60.0  # until what was forbidden is asked again
NODE_LABELS = "nvidia.com/"
RIGHTS = {
    "pods": "get and list on pods",
    "node": "get on nodes",
    "resourceslices": "get and list on resourceslices.resource.k8s.io",
}


class Cluster:
    """Asks the API when it is time, and keeps what it said. Belongs to one thread.

    `node_labels`: None until the API has told of the node.
    """

    def __init__(self, api: Api, node: str, settings: Settings, clock: Clock) -> None:
        self.pods: dict[PodName, Pod] = {}
        self.slices: Slices = {}
        self.node_labels: Mapping[str, str] | None = None
        self._cordoned: tuple[float, bool] | None = None
        self._api = api
        self._node = node
        self._every_s = settings.api_seconds
        self._clock = clock
        self._keys = identity.keys(settings)
        self._owners = Owners(api, clock, self._keys)
        self._chains: dict[str, Chain] = {}
        self._owners_silent: tuple[float, Failure] | None = None
        self._asked_s = float("-inf")
        self._changed = False
        self._not_before_s: dict[str, float] = {}
        self._failing: dict[str, Failure] = {}

    @property
    def may_know_more(self) -> bool:
        """Whether a pod that is not known now may be with the next answer."""
        problem = self._failing.get("pods")
        return problem is None or problem.reason != "forbidden"

    @property
    def cordoned(self) -> bool | None:
        """Whether the node is; None when the API has not told for a day, since alerts are held back by it."""
        if self._cordoned is None or self._clock.monotonic_s() - self._cordoned[0] > LAST_WORD_SECONDS:
            return None
        return self._cordoned[1]

    @property
    def answers(self) -> bool:
        """Whether the newest question for pods was answered."""
        return "pods" not in self._failing and self._asked_s > float("-inf")

    def refresh(
        self, *, changed: bool, missing: bool, claims: bool, alive: frozenset[str]
    ) -> Iterator[Failure]:
        """Ask what is due. Yields what is not to be had.

        `changed`: pods came or went. `missing`: something that is there is not known. `claims`: devices of
        DRA are in use. `alive`: uids with a cgroup; a pod that the API no longer knows is kept while it has
        one.
        """
        now_s = self._clock.monotonic_s()
        self._changed |= changed
        asked = set()
        if self._due(now_s, missing):
            self._asked_s, self._changed = now_s, False
            questions = {"pods": lambda: self._take_pods(alive), "node": self._take_node}
            if claims:
                questions["resourceslices"] = self._take_slices
            else:
                self._failing.pop("resourceslices", None)
            for what, take in questions.items():
                if now_s < self._not_before_s.get(what, now_s):
                    continue
                asked.add(what)
                if not self._ask(what, take):
                    break
        for what, problem in self._failing.items():
            yield problem if what in asked else msgspec.structs.replace(problem, ongoing=True)

    def chains(self, wanted: Iterable[Pod]) -> tuple[dict[str, Chain], Failure | None]:
        """Controllers by pod uid, of those whose are known; and why others are not."""
        now_s = self._clock.monotonic_s()
        silent = self._owners_silent
        if silent is not None and now_s - silent[0] < AGAIN_SECONDS * (1 - EARLY):
            problem: Failure | None = msgspec.structs.replace(silent[1], ongoing=True)
        else:
            problem = self._owners_silent = None
        for pod in wanted:
            if problem is None:
                try:
                    self._chains[pod.uid] = self._owners.chain(pod)
                except OSError as error:
                    problem = failure("api: owners", error)
                    self._owners_silent = now_s, problem
        return self._chains, problem

    def _due(self, now_s: float, missing: bool) -> bool:
        wait_s = self._every_s
        if self._changed and "pods" not in self._failing:
            wait_s = AT_ONCE_SECONDS
        elif self._changed or missing:
            wait_s = min(wait_s, AGAIN_SECONDS)
        return now_s - self._asked_s >= wait_s * (1 - EARLY)

    def _ask(self, what: str, take: Callable[[], None]) -> bool:
        """Put one question; False when nobody answers, so that the others would only take longer."""
        self._failing.pop(what, None)
        try:
            take()
        except ApiError as error:
            problem = failure(f"api: {what}", error)
            if error.status == FORBIDDEN:
                detail = f"{error}: the agent's service account needs {RIGHTS[what]}"
                problem = Failure(problem.item, "forbidden", detail)
                self._not_before_s[what] = self._clock.monotonic_s() + FORBIDDEN_SECONDS
            self._failing[what] = problem
        except OSError as error:
            self._failing[what] = failure(f"api: {what}", error)
            return False
        return True

    def _take_slices(self) -> None:
        self.slices = slices.fetch(self._api, self._node)

    def _take_pods(self, alive: frozenset[str]) -> None:
        answer = self._api.listed("/api/v1/pods", PodList, f"spec.nodeName={self._node}")
        told = [pods.from_api(pod, self._keys) for pod in answer.items or ()]
        known = {name: pod for name, pod in self.pods.items() if pod.uid in alive}
        self.pods = {**known, **{(pod.namespace, pod.name): pod for pod in told}}
        uids = {pod.uid for pod in self.pods.values()}
        self._chains = {uid: chain for uid, chain in self._chains.items() if uid in uids}

    def _take_node(self) -> None:
        path = f"/api/v1/nodes/{self._node}"
        try:
            node = self._api.get(path, Node, {"resourceVersion": "0"})
        except ApiError as error:
            if error.status == NOT_FOUND:
                raise ApiError(
                    f"there is no node {self._node}: NODE_NAME is to be its spec.nodeName"
                ) from None
            raise
        labels = node.metadata.labels or {}
        self.node_labels = {name: value for name, value in labels.items() if name.startswith(NODE_LABELS)}
        self._cordoned = self._clock.monotonic_s(), node.spec.unschedulable
