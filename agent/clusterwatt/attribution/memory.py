"""Memory of GPUs by job: the driver's lists of processes, and to whom these belong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from clusterwatt.attribution.entries import NOBODY
from clusterwatt.attribution.processes import job_named
from clusterwatt.catalog import STANDARD, Table
from clusterwatt.readings.gpu import GpuProcess
from clusterwatt.readings.work import GpuJobMemory, JobMember, ProcessOwner

MEMORY = Table(GpuJobMemory, labels=("gpu", "uuid", "job_id"))
METRICS = (
    MEMORY.gauge(
        "gpu_job_memory_used_bytes",
        "Device memory that the job's processes hold; job_id is empty for processes of nobody known.",
        "used_bytes",
        STANDARD,
    ),
)


def memory_by_job(
    processes: Iterable[GpuProcess], owners: Iterable[ProcessOwner], members: Iterable[JobMember]
) -> Iterator[GpuJobMemory]:
    """What each job holds on each GPU or MIG instance, of the processes whose memory is known."""
    owner_of = {owner.pid: owner.owner for owner in owners}
    job_of = {member.member: member.job_id for member in members}
    used: defaultdict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    for process in processes:
        if process.used_bytes is not None:
            job_id = _job_id(owner_of.get(process.pid), job_of)
            # A process that computes and draws is in two lists, each time with all of its memory.
            on_gpu = used[process.gpu, process.uuid, job_id]
            on_gpu[process.pid] = max(process.used_bytes, on_gpu.get(process.pid, 0.0))
    for (gpu, uuid, job_id), by_process in used.items():
        yield GpuJobMemory(gpu=gpu, uuid=uuid, job_id=job_id, used_bytes=sum(by_process.values()))


def _job_id(owner: str | None, job_of: Mapping[str, str]) -> str:
    return NOBODY if owner is None else job_named(owner, job_of) or NOBODY
