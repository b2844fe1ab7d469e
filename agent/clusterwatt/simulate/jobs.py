"""Who holds the simulated GPUs: what Slurm, Kubernetes and /proc would say of a node with this work on it.

A training job of Slurm is on all GPUs but two, the notebook of a user who has gone home holds one and does
nothing, one is free. What is said is derived from the tenants that the simulated driver has, and from the
wall time: another process says the same. Jobs are a week long, so that they also end.
"""

from __future__ import annotations

import hashlib
import math
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from clusterwatt.clock import Clock
from clusterwatt.config.model import Simulate
from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import Claim, Job, JobHostUse, JobMember, JobPod, ProcessOwner, Scheduler
from clusterwatt.simulate.gpu import simulated_uuid
from clusterwatt.simulate.partition import usual_tenants
from clusterwatt.simulate.queue import QUEUES, Queue
from clusterwatt.simulate.work import NOTHING, Tenant, TrainingNode, Work

JOB_SECONDS = 7 * 86_400.0
GIB = float(1 << 30)


class Role(NamedTuple):
    """A kind of job. `cpus`, `memory_bytes`: what it uses of the host for each device that it holds.

    They are small: what jobs use is taken for a part of what the machine uses that this runs on.
    """

    name: str
    kind: str
    account: str
    cpus: float
    memory_bytes: float
    user: str = ""
    uid: str = ""
    k8s_namespace: str = ""
    k8s_owner_kind: str = ""
    pod: str = ""
    container: str = ""


TRAINING = Role(
    name="pretrain-7b",
    kind="batch",
    user="ada",
    uid="1001",
    account="language",
    cpus=0.1,
    memory_bytes=0.25 * GIB,
)
NOTEBOOK = Role(
    name="grace-notebook",
    kind="interactive",
    user="grace",
    account="research",
    cpus=0.002,
    memory_bytes=0.1 * GIB,
    k8s_namespace="research",
    k8s_owner_kind="Notebook",
    pod="grace-notebook-0",
    container="notebook",
)
SERVICES = tuple(
    Role(
        name=name,
        kind="service",
        account="serving",
        cpus=0.02,
        memory_bytes=0.1 * GIB,
        k8s_namespace="serving",
        k8s_owner_kind="Deployment",
        pod=f"{name}-5f6d8c9b7-x2k9q",
        container="server",
    )
    for name in ("chat", "search")
)


class Lease(NamedTuple):
    """What a job holds of one device, and the processes that it has there."""

    role: Role
    device: str
    pids: tuple[int, ...]


class SimulatedJobs:
    """The jobs on a simulated node, in place of everything that would look for real ones.

    `work` is what the simulated driver has; `mig`: the profiles of the boards that are cut, each with its
    usual tenants.
    """

    name = "simulated_jobs"

    def __init__(
        self,
        settings: Simulate,
        clock: Clock,
        *,
        work: Work | None = None,
        mig: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        self._seed = settings.seed
        self._clock = clock
        self._queues = [Queue(scheduler, settings.seed, settings.gpus) for scheduler in QUEUES]
        work = work or TrainingNode(settings.gpus, settings.seed)
        self._leases: defaultdict[Role, list[Lease]] = defaultdict(list)
        for lease in leases(work, settings.gpus, settings.seed, mig or {}):
            self._leases[lease.role].append(lease)

    def collect(self) -> Iterator[Reading]:
        """The jobs of this moment, what they hold, and what they have used."""
        wall_s = self._clock.wall_s()
        number = math.floor(wall_s / JOB_SECONDS)
        started_s = number * JOB_SECONDS
        for scheduler in dict.fromkeys(_scheduler(role) for role in self._leases):
            yield Scheduler(scheduler=scheduler)
        for queue in self._queues:
            yield from queue.readings(wall_s)
        for role, held in self._leases.items():
            job_id, owner = self._names(role, number)
            yield Job(
                job_id=job_id,
                scheduler=_scheduler(role),
                kind=role.kind,
                name=role.name,
                user=role.user,
                uid=role.uid,
                account=role.account,
                partition="" if role.pod else "gpu",
                k8s_namespace=role.k8s_namespace,
                k8s_owner=role.name if role.pod else "",
                k8s_owner_kind=role.k8s_owner_kind,
                started_s=started_s,
            )
            if role.pod:
                yield JobMember(member=owner, job_id=job_id)
                yield JobPod(
                    job_id=job_id,
                    k8s_namespace=role.k8s_namespace,
                    k8s_pod=role.pod,
                    k8s_container=role.container,
                )
            for lease in held:
                member = owner if role.pod else ""
                yield Claim(job_id=job_id, device=lease.device, source=_scheduler(role), member=member)
                yield from (ProcessOwner(pid=pid, owner=owner) for pid in lease.pids)
            yield JobHostUse(
                owner=owner,
                cpu_seconds=role.cpus * len(held) * (wall_s - started_s),
                memory_bytes=role.memory_bytes * len(held),
            )

    def _names(self, role: Role, number: int) -> tuple[str, str]:
        """The job's id, the same on each node of this seed, and the name that its processes show."""
        if not role.pod:
            job_id = f"slurm/{number * 1000 + self._seed % 1000}"
            return job_id, job_id
        return (
            f"k8s/{_uid(self._seed, role.name, number)}",
            f"pod/{_uid(self._seed, role.pod, number)}",
        )


def leases(work: Work, gpus: int, seed: int, mig: Mapping[int, Sequence[str]]) -> Iterator[Lease]:
    """Who holds what, board by board."""
    for board in range(gpus):
        tenant = work.tenant(board)
        if board in mig:
            tenants = usual_tenants(tenant)[: len(mig[board])]
            for place, instance in enumerate(tenants):
                yield from _leases(instance, f"index:{board}:{place}", f"index:{board}:{place}")
        else:
            yield from _leases(tenant, f"minor:{board}", simulated_uuid(seed, board))


def _leases(tenant: Tenant, in_slurm: str, in_kubernetes: str) -> Iterator[Lease]:
    """How a device is held, under the names that each scheduler has for it."""
    pids = tuple(process.pid for process in tenant.processes)
    if len(pids) > 1:
        for place, (role, pid) in enumerate(zip(SERVICES, pids, strict=True)):
            yield Lease(role, f"{in_kubernetes}::{place}", (pid,))
    elif pids and tenant.signals is NOTHING:
        yield Lease(NOTEBOOK, in_kubernetes, pids)
    elif pids:
        yield Lease(TRAINING, in_slurm, pids)


def _scheduler(role: Role) -> str:
    return "kubernetes" if role.pod else "slurm"


def _uid(seed: int, name: str, number: int) -> str:
    digest = hashlib.sha256(f"clusterwatt simulated job {seed}/{name}/{number}".encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))
