"""Whose the processes on each GPU are, by the driver's lists and the cgroups of the processes.

Two things must not look like the end of a job: a driver that gives nothing for a while, and a process whose
cgroup has not been looked up again yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from clusterwatt.attribution.devices import Devices
from clusterwatt.attribution.words import Parts
from clusterwatt.readings.gpu import GpuIntegrals, GpuProcess
from clusterwatt.readings.work import ProcessOwner

COMPUTING = ("compute", "mps")  # a desktop on the GPU is no job
LOOKED_UP_WITHIN_S = 15.0


class Process(NamedTuple):
    """A process on a GPU whose job is known; `owned_s`: when that was last said, monotonic."""

    job_id: str
    sm_ratio: float
    owned_s: float


class Processes:
    """Keeps who computes on each device, by UUID and pid."""

    def __init__(self) -> None:
        self.on: Mapping[str, Mapping[int, Process]] = {}

    def take(
        self,
        parts: Parts,
        owners: Iterable[ProcessOwner],
        job_of: Mapping[str, str],
        devices: Devices,
        now_s: float,
    ) -> None:
        """Take the lists of this tick; one whose owner nobody knows is nobody's."""
        owner_of = {owner.pid: owner.owner for owner in owners}
        found: defaultdict[str, dict[int, Process]] = defaultdict(dict)
        for process in parts.get(GpuProcess, ()):
            if process.type not in COMPUTING:
                continue
            ratio, before = process.sm_ratio or 0.0, self.on.get(process.uuid, {}).get(process.pid)
            owner = owner_of.get(process.pid)
            job_id = None if owner is None else job_named(owner, job_of)
            if job_id is not None:
                found[process.uuid][process.pid] = Process(job_id, ratio, now_s)
            elif owner is None and before is not None and now_s - before.owned_s <= LOOKED_UP_WITHIN_S:
                found[process.uuid][process.pid] = before._replace(sm_ratio=ratio)
        answering = {integrals.uuid for integrals in parts.get(GpuIntegrals, ())}
        for uuid in devices.units:
            if uuid not in answering:
                lasting = self.on.get(uuid, {})
                found[uuid] = {pid: each._replace(owned_s=now_s) for pid, each in lasting.items()}
        self.on = found


def job_named(owner: str, job_of: Mapping[str, str]) -> str | None:
    """The job that an owner of a process or cgroup belongs to; None where that is not known.

    An owner is a job's id, or a member. Without Kubernetes' word a pod is its own job; a job of Slurm is
    known by its number only.
    """
    if owner in job_of:
        return job_of[owner]
    kind, _, rest = owner.partition("/")
    if kind == "sluid":
        return None
    return f"k8s/{rest}" if kind == "pod" else owner
