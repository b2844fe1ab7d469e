"""A pod of this node, reduced to what is of use; of its labels and annotations only those that are asked for.

The kubelet knows a static pod by a hash of its manifest, and so does its cgroup; the API's copy of it, the
mirror pod, has another uid and names the hash in an annotation (k8s.io/kubernetes/pkg/kubelet/types).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import msgspec

from clusterwatt.workloads.kubernetes import hami, objects
from clusterwatt.workloads.kubernetes.objects import OwnerReference

CONFIG_HASH = "kubernetes.io/config.hash"
OVER = frozenset({"Succeeded", "Failed"})
MAX_MARK = 253

Marks = Mapping[str, str]
PodName = tuple[str, str]  # namespace and name


class Pod(msgspec.Struct, frozen=True):
    """A pod. `uid`: the one that its cgroup shows; `marks`: labels and annotations; `over`: it has ended.

    `hami`: UUIDs of the GPUs that HAMi has given to its containers. `host`: its host name where one is set.
    """

    namespace: str
    name: str
    uid: str
    marks: Marks = {}
    controller: OwnerReference | None = None
    started_s: float | None = None
    over: bool = False
    hami: hami.Given = ()
    host: str = ""


def from_api(pod: objects.Pod, keys: Collection[str]) -> Pod:
    """A pod as the API has it; of labels and annotations those in `keys` are kept."""
    meta = pod.metadata
    return Pod(
        namespace=meta.namespace,
        name=meta.name,
        uid=((meta.annotations or {}).get(CONFIG_HASH) or meta.uid).lower(),
        marks=marks(meta, keys),
        controller=controller(meta),
        started_s=_unix_time(pod.status.start_time),
        over=pod.status.phase in OVER,
        hami=hami.given((meta.annotations or {}).get(hami.ANNOTATION, "")),
        host=pod.spec.hostname or "",
    )


def marks(meta: objects.Meta, keys: Collection[str]) -> Marks:
    """Labels and annotations that are asked for. The annotation goes first: labels cannot hold every text."""
    together = {**(meta.labels or {}), **(meta.annotations or {})}
    return {key: together[key][:MAX_MARK] for key in keys if key in together}


def controller(meta: objects.Meta) -> OwnerReference | None:
    """The one owner that manages the object."""
    return next((owner for owner in meta.owner_references or () if owner.controller and owner.uid), None)


def logged(folders: Iterable[str]) -> dict[PodName, set[str]]:
    """Uids by name, from the kubelet's folders of logs, `<namespace>_<name>_<uid>`; names hold no `_`."""
    uids: dict[PodName, set[str]] = {}
    for folder in folders:
        parts = folder.split("_")
        if len(parts) == 3 and all(parts):
            uids.setdefault((parts[0], parts[1]), set()).add(parts[2].lower())
    return uids


def _unix_time(text: str | None) -> float | None:
    try:
        # Python 3.10 does not know the Z of RFC 3339.
        return datetime.fromisoformat((text or "").replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None
