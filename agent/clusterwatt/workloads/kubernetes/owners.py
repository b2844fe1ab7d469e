"""Who made a pod: the chain of its controllers up to the topmost one, which is the job.

A pod of a JobSet belongs to a Job, that to the JobSet; one of a Deployment to a ReplicaSet, that to the
Deployment. Of each controller only metadata are fetched. What repeats work on a schedule is no job: each of
its runs is. A mirror pod is owned by its Node, which is none either.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import quote

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.workloads.kubernetes.api import METADATA_ONLY, Api, ApiError
from clusterwatt.workloads.kubernetes.objects import Object, OwnerReference, ResourceList
from clusterwatt.workloads.kubernetes.pods import Marks, Pod, controller, marks

NO_JOBS = frozenset({"Node", "CronJob", "CronWorkflow", "ScheduledWorkflow", "ScheduledSparkApplication"})
MAX_OWNERS = 10
MAX_KEPT = 4096
KEPT_SECONDS = 600.0  # then labels are read again, and one who was not allowed asks again
FORBIDDEN = 403
NOT_FOUND = 404


class Owner(msgspec.Struct, frozen=True):
    """A controller of a pod, with the labels and annotations that are asked for."""

    kind: str
    name: str
    uid: str
    marks: Marks = {}


class Chain(msgspec.Struct, frozen=True):
    """Controllers of a pod, its own first. `whole`: the last one is the topmost, as far as may be known."""

    owners: tuple[Owner, ...] = ()
    whole: bool = True


def nearest(pod: Pod) -> Chain:
    """What a pod itself says of its controller."""
    above = pod.controller
    if above is None or above.kind in NO_JOBS:
        return Chain()
    return Chain((Owner(above.kind, above.name, above.uid),), whole=False)


class _Kept(msgspec.Struct, frozen=True):
    """What was read of a controller; `found_s`: when."""

    found_s: float
    marks: Marks = {}
    above: OwnerReference | None = None
    whole: bool = True


class Owners:
    """Walks up from pods, and keeps what it has read. `keys`: labels and annotations to keep."""

    def __init__(self, api: Api, clock: Clock, keys: Collection[str]) -> None:
        self._api = api
        self._clock = clock
        self._keys = keys
        self._kept: dict[str, _Kept] = {}
        self._paths: dict[tuple[str, str], str] = {}

    def chain(self, pod: Pod) -> Chain:
        """The controllers of a pod. Raises OSError when one that is not known could not be read now."""
        owners: list[Owner] = []
        above, whole = pod.controller, True
        while above is not None and above.kind not in NO_JOBS and len(owners) < MAX_OWNERS:
            kept = self._look(pod.namespace, above)
            owners.append(Owner(above.kind, above.name, above.uid, kept.marks))
            above, whole = kept.above, kept.whole
        return Chain(tuple(owners), whole)

    def _look(self, namespace: str, owner: OwnerReference) -> _Kept:
        now_s = self._clock.monotonic_s()
        kept = self._kept.get(owner.uid)
        if kept is not None and now_s - kept.found_s < KEPT_SECONDS:
            return kept
        try:
            fresh = self._read(namespace, owner, now_s)
        except OSError as error:
            status = error.status if isinstance(error, ApiError) else None
            if kept is not None:  # gone, forbidden or silent: what was known of it stands
                fresh = msgspec.structs.replace(kept, found_s=now_s)
            elif status in {FORBIDDEN, NOT_FOUND}:
                fresh = _Kept(now_s, whole=status == NOT_FOUND)
            else:
                raise
        self._kept.pop(owner.uid, None)
        while len(self._kept) >= MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[owner.uid] = fresh
        return fresh

    def _read(self, namespace: str, owner: OwnerReference, now_s: float) -> _Kept:
        path = f"{self._path(namespace, owner)}/{quote(owner.name, safe='')}"
        meta = self._api.get(path, Object, {"resourceVersion": "0"}, accept=METADATA_ONLY).metadata
        if meta.uid != owner.uid:
            raise ApiError(f"{path} is another by now", NOT_FOUND)
        return _Kept(now_s, marks(meta, self._keys), controller(meta))

    def _path(self, namespace: str, owner: OwnerReference) -> str:
        """Where objects of the owner's kind are: the API says what the kind is called in paths."""
        known = self._paths.get((owner.api_version, owner.kind))
        if known is None:
            group = quote(owner.api_version)
            root = f"/apis/{group}" if "/" in group else f"/api/{group}"
            for resource in self._api.get(root, ResourceList).resources or ():
                if "/" not in resource.name:
                    place = "/namespaces/{namespace}" if resource.namespaced else ""
                    path = f"{root}{place}/{quote(resource.name, safe='')}"
                    self._paths[owner.api_version, resource.kind] = path
            known = self._paths.get((owner.api_version, owner.kind))
        if known is None:
            raise ApiError(f"{owner.api_version} has no {owner.kind}", NOT_FOUND)
        return known.replace("{namespace}", quote(namespace, safe=""))
