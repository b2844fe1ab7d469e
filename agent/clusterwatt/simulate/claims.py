"""What the scheduler of a simulated node says of the jobs there, and what their cgroups have used."""

from __future__ import annotations

from collections.abc import Iterator

from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import (
    Claim,
    Job,
    JobHostUse,
    JobMember,
    JobNodes,
    JobPod,
    ProcessOwner,
    Scheduler,
)
from clusterwatt.simulate.acts import GIB
from clusterwatt.simulate.cluster import Cluster, JobRun, Lane, pid, scheduler_of, uid
from clusterwatt.simulate.gpu import simulated_uuid
from clusterwatt.simulate.troubles import Troubles
from clusterwatt.simulate.work import Signal

MEMORY_OF_GPU = 90.0 * GIB  # of the host, for each GPU that a job holds


class NodeClaims:
    """The claims of one node. `library_seed`: that of its simulated driver, from which its UUIDs follow."""

    def __init__(self, cluster: Cluster, node: int, library_seed: int, troubles: Troubles) -> None:
        self._node = node
        self._seed = library_seed
        self._troubles = troubles
        self.scheduler = scheduler_of(node)
        self._cpus: list[tuple[Lane, tuple[int, ...], Signal]] = [
            (lane, boards, lane.rate("cpus"))
            for lane in cluster.on(node)
            for place, boards in lane.places
            if place == node
        ]

    def readings(self, time_s: float) -> Iterator[Reading]:
        """The jobs of this moment, what they hold, and what they have used."""
        yield Scheduler(scheduler=self.scheduler)
        if self._troubles.now("unnamed_gpu", time_s) is not None:
            job_id = "slurm/1"
            yield Job(job_id=job_id, scheduler=self.scheduler, kind="batch", name="unnamed")
            yield Claim(job_id=job_id, device="minor:99", source=self.scheduler)
        for lane, boards, cpus in self._cpus:
            job = lane.job(time_s)
            if job is None:
                continue
            owner = self._owner(job)
            yield self._job(job)
            yield JobNodes(job.job_id, len(lane.places))
            if lane.kind.controller:
                yield JobMember(member=owner, job_id=job.job_id)
                yield JobPod(
                    job_id=job.job_id,
                    k8s_namespace=lane.kind.account,
                    k8s_pod=f"{lane.kind.name}-{self._rank(lane)}",
                    k8s_container="main",
                )
            for board in boards:
                device = simulated_uuid(self._seed, board) if lane.kind.controller else f"minor:{board}"
                member = owner if lane.kind.controller else ""
                yield Claim(job_id=job.job_id, device=device, source=self.scheduler, member=member)
                yield ProcessOwner(pid=pid(job, board), owner=owner)
            yield JobHostUse(
                owner=owner,
                cpu_seconds=len(boards) * (cpus.integral(time_s) - cpus.integral(job.start_s)),
                memory_bytes=len(boards) * MEMORY_OF_GPU * lane.kind.memory,
            )

    def _job(self, job: JobRun) -> Reading:
        kind = job.kind
        pods = bool(kind.controller)
        return Job(
            job_id=job.job_id,
            scheduler=kind.scheduler,
            kind=kind.kind,
            name=job.name,
            user=kind.user,
            uid=str(1001 + sum(kind.user.encode()) % 500) if kind.user and not pods else "",
            account=kind.account,
            partition="" if pods else "gpu",
            queue="batch" if pods and kind.kind == "batch" else "",
            array_job=str(job.number // 8 * 8) if kind.array else "",
            array_task=str(job.number % 8) if kind.array else "",
            k8s_namespace=kind.account if pods else "",
            k8s_owner=kind.name if pods else "",
            k8s_owner_kind=kind.controller,
            started_s=job.start_s,
            exempt=kind.exempt,
        )

    def _owner(self, job: JobRun) -> str:
        if not job.kind.controller:
            return job.job_id
        return f"pod/{uid(job.job_id, self._node)}"

    def _rank(self, lane: Lane) -> int:
        return [node for node, _ in lane.places].index(self._node)
