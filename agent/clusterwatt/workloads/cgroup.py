"""To whom a cgroup belongs, by its path: the lines of /proc/PID/cgroup (cgroups(7)).

Paths as Slurm (cgroup.conf(5), plugins for cgroup v1 and v2), the kubelet (drivers `systemd` and `cgroupfs`),
containerd, CRI-O, Docker, Podman and systemd make them. The kernel shows a path relative to the reader's
cgroup namespace, as `/../..` and what follows, so nothing is looked for at the start of a path alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

UUID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
STEP = r"(?:/step_(?P<step>[^/]+))?(?:/(?:user|slurm))?(?:/task_(?P<task>[^/]+))?"
# Several slurmd on one host put their node's name before the scope (v2) or behind `slurm` (v1).
SLURM_V2 = re.compile(
    r"/(?:[^/]+_)?slurmstepd\.scope/(?:job_(?P<job>[0-9]+)|(?P<sluid>s[0-9A-Z]{13}))(?=/|$)" + STEP
)
SLURM_V1 = re.compile(r"/slurm(?:_[^/]+)?/uid_(?P<uid>[0-9]+)/job_(?P<job>[0-9]+)(?=/|$)" + STEP)
# A static pod has the 32 digits of a hash. The guaranteed class of service has no part in the path.
POD = re.compile(rf"(?<![0-9a-z])pod(?P<uid>{UUID}|[0-9a-f]{{32}})(?=[./:]|$)")
CONTAINER = re.compile(
    r"(?:(?:docker|cri-containerd|crio|libpod-payload|libpod|containerd|nerdctl)[-:/]|(?<=/))"
    r"(?P<id>[0-9a-f]{64})(?=\.scope|/|$)"
)
USER = re.compile(r"/user-(?P<uid>[0-9]+)\.slice(?=/|$)")
# Below slices of any name; behind `..` the slices may lie above what the reader is shown.
UNIT = re.compile(
    r"^(?:(?:/\.\.)+/|/(?=[^/]+\.slice/))(?:(?!user[.-])[^/]+\.slice/)*(?!user@)(?P<unit>[^/]+\.service)(?=/|$)"
)
SPECIAL_STEPS = {"4294967290": "interactive", "4294967291": "batch", "4294967292": "extern"}
DELETED = " (deleted)"
MAX_PATH = 4096
MAX_LINES = 64


class Owner(msgspec.Struct, frozen=True):
    """Whose a cgroup is. What does not apply is empty; `name` never is.

    `job`: Slurm's raw job id; since 26.05 there may be a `sluid` in its place. `step`: batch, interactive,
    extern or a number. `uid`: of the user whose job (cgroup v1) or session it is. A Slurm job in a pod names
    the pod too.
    """

    job: str = ""
    sluid: str = ""
    step: str = ""
    pod_uid: str = ""
    container_id: str = ""
    unit: str = ""
    uid: str = ""

    @property
    def name(self) -> str:
        """Its name in readings, such as `slurm/211`, `pod/<uid>`, `container/<id12>`, `unit/a.service`."""
        if self.job:
            return f"slurm/{self.job}"
        if self.sluid:
            return f"sluid/{self.sluid}"
        if self.pod_uid:
            return f"pod/{self.pod_uid}"
        if self.container_id:
            return f"container/{self.container_id[:12]}"
        return f"unit/{self.unit}" if self.unit else f"user/{self.uid}"

    @property
    def kind(self) -> str:
        """slurm, pod, container, unit or user."""
        name = self.name
        return "slurm" if self.job or self.sluid else name[: name.index("/")]


def owner_of_lines(text: str) -> Owner | None:
    """Whose a process is, by all lines of its /proc/PID/cgroup; None when no line tells.

    Its place may differ between hierarchies: Slurm on cgroup v1 may name the job in that of the freezer only.
    """
    lines = text.split("\n")[:MAX_LINES]
    return most_specific(owner_of(line.split(":", 2)[-1]) for line in lines if line.count(":") >= 2)


def most_specific(owners: Iterable[Owner | None]) -> Owner | None:
    """The one of highest precedence, Slurm > pod > container > unit > user; with the pod that any names."""
    found = [owner for owner in owners if owner is not None]
    if not found:
        return None
    best = max(found, key=_rank)
    if (best.job or best.sluid) and not best.pod_uid:
        pod = next((owner for owner in found if owner.pod_uid), None)
        if pod is not None:
            return msgspec.structs.replace(best, pod_uid=pod.pod_uid, container_id=pod.container_id)
    return best


@lru_cache(maxsize=4096)
def owner_of(path: str) -> Owner | None:
    """Whose a cgroup is, by its path; None when the path does not tell.

    Of several matches the last, innermost one counts: a pod of a cluster that runs in a container is a pod.
    """
    path = path[:MAX_PATH].removesuffix(DELETED)
    pod = _last(POD, path)
    # The monitors of containers (`crio-conmon-`, `libpod-conmon-`) do not match: they are not the workload.
    containers = list(CONTAINER.finditer(path, pod.end() if pod else 0))
    # Below a pod it is the kubelet's container that counts, not one that was started inside it.
    container = containers[0 if pod else -1]["id"] if containers else ""
    pod_uid = pod["uid"].replace("_", "-") if pod else ""
    slurm = _last(SLURM_V2, path) or _last(SLURM_V1, path)
    if slurm is not None:
        named = slurm.groupdict()
        step = named["step"] or ""
        return Owner(
            job=named["job"] or "",
            sluid=named.get("sluid") or "",
            step=SPECIAL_STEPS.get(step, step),
            pod_uid=pod_uid,
            container_id=container,
            uid=named.get("uid") or "",
        )
    if pod_uid or container:
        return Owner(pod_uid=pod_uid, container_id=container)
    unit, user = UNIT.match(path), _last(USER, path)
    if unit is not None:
        return Owner(unit=unit["unit"])
    return Owner(uid=user["uid"]) if user is not None else None


def _last(pattern: re.Pattern[str], path: str) -> re.Match[str] | None:
    match = None
    for match in pattern.finditer(path):  # noqa: B007 - the last one is wanted
        pass
    return match


def _rank(owner: Owner) -> tuple[int, int]:
    kinds = ("user", "unit", "container", "pod", "slurm")
    return kinds.index(owner.kind), len(owner.step) > 0
