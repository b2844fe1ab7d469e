"""Which jobs run on the node, and which ended a little while ago: their names stay until all saw them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from clusterwatt.attribution.entries import JobRecord
from clusterwatt.attribution.holders import user_of
from clusterwatt.catalog import CORE, FULL, Table
from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import Job, JobExempt, JobInfo, JobPod, JobTimes

INFO = Table(
    JobInfo,
    labels=(
        "job_id",
        "scheduler",
        "name",
        "user",
        "account",
        "partition",
        "queue",
        "array_job",
        "array_task",
        "k8s_namespace",
        "k8s_owner",
        "k8s_owner_kind",
    ),
)
POD = Table(JobPod, labels=("job_id", "k8s_namespace", "k8s_pod", "k8s_container"))
TIMES = Table(JobTimes, labels=("job_id",))
EXEMPT = Table(JobExempt, labels=("job_id",))
METRICS = (
    INFO.info("job_info", "The job's identity, the same on every node of it.", CORE),
    POD.info("job_pod_info", "Containers of the job's pods on this node.", FULL),
    TIMES.gauge(
        "job_start_timestamp_seconds",
        "When the job's oldest member on this node started; where nobody tells, when it was first seen.",
        "start_timestamp_seconds",
        CORE,
    ),
    TIMES.gauge(
        "job_end_timestamp_seconds",
        "When the job was over on this node; there while its totals are still shown.",
        "end_timestamp_seconds",
        CORE,
    ),
    EXEMPT.gauge("job_exempt", "1: rules about waste and training leave the job out.", "exempt", CORE),
)

MOST_ENDED = 1_000  # job storms: names of more are not kept for those who look


class Entrant(msgspec.Struct):
    """A job on the roster. `record` has Unix times, `ended_s` is monotonic.

    `recovered`: it ran when the last agent saw it, and has not been seen since.
    """

    record: JobRecord
    ended_s: float | None = None
    recovered: bool = False


class Roster:
    """Keeps who runs, and who ended within `linger_s`."""

    def __init__(self, linger_s: float) -> None:
        self.linger_s = linger_s
        self._jobs: dict[str, Entrant] = {}
        self._untold: dict[str, JobRecord] = {}  # ended since the records were last taken

    def recover(self, records: Iterable[JobRecord]) -> None:
        """Take the jobs whose end the last agent has not seen."""
        self._jobs.update((record.job.job_id, Entrant(record, recovered=True)) for record in records)

    def take(
        self, running: Mapping[str, Job], *, wall_s: float, now_s: float, all_answered: bool = True
    ) -> None:
        """Take the jobs that run now. One that is there again after it ended goes on.

        One that ended while no agent ran ended when it was last seen; that it did is known when all sources
        have answered.
        """
        for job_id, job in running.items():
            known = self._jobs.get(job_id)
            first_s = wall_s if known is None else known.record.first_seen_s
            self._jobs[job_id] = Entrant(JobRecord(job, first_s, max(first_s, wall_s)))
            self._untold.pop(job_id, None)
        for job_id, entrant in self._jobs.items():
            if job_id not in running and entrant.ended_s is None:
                if entrant.recovered and not all_answered:
                    continue
                last_s = entrant.record.last_seen_s
                end_s = last_s if entrant.recovered else max(wall_s, last_s)
                entrant.record = msgspec.structs.replace(entrant.record, ended_s=end_s)
                entrant.ended_s = now_s
                self._untold[job_id] = entrant.record
        self._forget(now_s)

    def readings(self, user_label: str = "name") -> Iterator[Reading]:
        """Names and times of the jobs that run and linger."""
        for job_id, entrant in self._jobs.items():
            job = entrant.record.job
            yield JobInfo(
                job_id=job_id,
                scheduler=job.scheduler,
                name=job.name,
                user=user_of(job, user_label),
                account=job.account,
                partition=job.partition,
                queue=job.queue,
                array_job=job.array_job,
                array_task=job.array_task,
                k8s_namespace=job.k8s_namespace,
                k8s_owner=job.k8s_owner,
                k8s_owner_kind=job.k8s_owner_kind,
            )
            yield JobTimes(
                job_id=job_id,
                # A kubelet tells of no start; the ledger keeps when the job was first seen.
                start_timestamp_seconds=entrant.record.first_seen_s
                if job.started_s is None
                else job.started_s,
                end_timestamp_seconds=entrant.record.ended_s,
            )
            if job.exempt:
                yield JobExempt(job_id=job_id)

    def take_records(self) -> tuple[JobRecord, ...]:
        """Every job that runs, and those that have ended since the last call."""
        running = tuple(entrant.record for entrant in self._jobs.values() if entrant.ended_s is None)
        ended = tuple(self._untold.values())
        self._untold.clear()
        return running + ended

    def _forget(self, now_s: float) -> None:
        ended = [(e.ended_s, job_id) for job_id, e in self._jobs.items() if e.ended_s is not None]
        surplus = {job_id for _, job_id in sorted(ended)[: max(0, len(ended) - MOST_ENDED)]}
        for ended_s, job_id in ended:
            if now_s - ended_s > self.linger_s or job_id in surplus:
                del self._jobs[job_id]
