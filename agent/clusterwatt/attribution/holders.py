"""Who holds which share of which GPU, by the word of one source for each GPU.

Slurm's word stands before Kubernetes' (in a pod that runs slurmd, Slurm decides), a scheduler's before that
of containers, and these before the list of processes on the GPU. On a node that a scheduler rules, what it
gives to no job is free, whatever runs there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import msgspec

from clusterwatt.attribution.devices import Devices, Known, Unit
from clusterwatt.attribution.entries import Held
from clusterwatt.attribution.processes import Process, Processes
from clusterwatt.attribution.words import CONTAINER, KUBERNETES, PROCESS, SLURM, Parts, Words, source_of
from clusterwatt.catalog import CORE, Table
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.gpu import GpuInfo
from clusterwatt.readings.gpu_measured import GpuUp
from clusterwatt.readings.work import Claim, GpuAllocated, Job, SchedulerGpus

ALLOCATED = Table(GpuAllocated, labels=("gpu", "uuid", "job_id", "user", "account", "kind", "source"))
SCHEDULER_GPUS = Table(SchedulerGpus, labels=("scheduler",))
METRICS = (
    ALLOCATED.gauge(
        "gpu_allocated",
        "Share of the GPU that the job holds: 1, or 1/n of n sharers, times the slices of a MIG instance.",
        "share",
        CORE,
    ),
    SCHEDULER_GPUS.gauge(
        "scheduler_gpus_allocated", "Devices that the scheduler has given to jobs on this node.", "gpus", CORE
    ),
)

SETTLE_WITHIN_S = 30.0  # a source that has said nothing by then is not waited for

Sharer = tuple[str, str]  # job id and member: two pods of one job are two sharers


class Holding(msgspec.Struct, frozen=True):
    """Who holds what now.

    `held`: by UUID of GPU or MIG instance; shares of one sum to at most one. `weights`: time on the SMs of
    the processes of each job, by UUID, where jobs share. `jobs`: those that run, also without a GPU.
    `job_of`: job by the name of its members. `slurmd_pods`: members in which slurmd runs. `settled`: every
    source was heard, so that "free" is a fact.
    """

    devices: Devices
    held: Mapping[str, tuple[Held, ...]] = {}
    weights: Mapping[str, Mapping[str, float]] = {}
    jobs: Mapping[str, Job] = {}
    job_of: Mapping[str, str] = {}
    slurmd_pods: frozenset[str] = frozenset()
    settled: bool = False


class Holders:
    """Makes of the words of all sources who holds what."""

    def __init__(self) -> None:
        self.holding = Holding(Devices(()))
        self._known = Known()
        self._words = Words()
        self._processes = Processes()
        self._first_s: float | None = None
        self._told: set[str] = set()

    @property
    def held_uuids(self) -> frozenset[str] | None:
        """UUIDs of the devices that jobs hold, and of boards of which they hold a part.

        None while no source has answered: then any may be held.
        """
        if not self._words.any_answered:
            return None
        held = self.holding.held
        boards = self.holding.devices.boards.values()
        return frozenset(held) | {b.uuid for b in boards if any(unit.uuid in held for unit in b.units)}

    @property
    def all_answered(self) -> bool:
        """Whether each source that is switched on has answered at least once."""
        return self._words.all_answered

    def take(
        self, parts: Parts, sources: Mapping[str, bool], *, now_s: float, user_label: str = "name"
    ) -> Iterator[Reading]:
        """Take what was said in this tick; yield shares, and a `Failure` for each device that is not known.

        `sources`: those of slurm, kubernetes, container, process that are switched on, and whether the newest
        pass of each is good.
        """
        self._first_s = now_s if self._first_s is None else self._first_s
        self._words.take(parts, sources)
        devices = self._known.take(parts.get(GpuInfo, ()), {up.uuid for up in parts.get(GpuUp, ())})
        job_of = {member.member: member.job_id for word in self._words.all for member in word.members}
        self._processes.take(parts, self._words.of(PROCESS).owners, job_of, devices, now_s)
        processes = self._processes.on
        claimed, unknown = self._claimed(devices)
        chosen = self._chosen(devices, claimed, processes)
        jobs = self._jobs(chosen)
        held = {uuid: _shares(sharers, jobs) for uuid, (_, sharers) in chosen.items()}
        self.holding = Holding(
            devices=devices,
            held=held,
            weights={
                uuid: _weights(processes[uuid])
                for uuid, holders in held.items()
                if len(holders) > 1 and uuid in processes
            },
            jobs=jobs,
            job_of=job_of,
            slurmd_pods=self._slurmd_pods(),
            settled=self._words.all_answered or now_s - self._first_s >= SETTLE_WITHIN_S,
        )
        yield from self._failures(unknown if devices.boards else {})
        for uuid, (source, _) in chosen.items():
            for each in held[uuid]:
                yield _allocated(devices.units[uuid], each, jobs[each.job_id], source, user_label)
        for scheduler in (SLURM, KUBERNETES):
            if self._words.of(scheduler).rules:
                given = sum(1 for source, _ in chosen.values() if source == scheduler)
                # Handed out all the same, though no GPU goes by that name: the two counts tell of the gap.
                unnamed = {claim.device for claim in unknown.values() if claim.source == scheduler}
                yield SchedulerGpus(scheduler=scheduler, gpus=float(given + len(unnamed)))

    def _claimed(self, devices: Devices) -> tuple[dict[str, dict[str, set[Sharer]]], dict[str, Claim]]:
        """Sharers by unit and source; and claims on a device that is not known, or not told apart."""
        slurmd = self._slurmd_pods()
        claimed: dict[str, dict[str, set[Sharer]]] = {}
        unknown: dict[str, Claim] = {}
        for claim in (claim for word in self._words.all for claim in word.claims):
            if claim.source == KUBERNETES and _pod(claim.member) in slurmd:
                continue
            uuid = devices.resolve(claim.device)
            if uuid is None:
                unknown[f"{claim.job_id}/{claim.device}"] = claim
                continue
            for unit in devices.held_by(uuid):
                sharers = claimed.setdefault(unit.uuid, {}).setdefault(claim.source, set())
                sharers.add((claim.job_id, claim.member))
        return claimed, unknown

    def _slurmd_pods(self) -> frozenset[str]:
        return frozenset(f"pod/{pod.pod_uid}" for pod in self._words.of(SLURM).slurmd_pods)

    def _chosen(
        self,
        devices: Devices,
        claimed: Mapping[str, Mapping[str, set[Sharer]]],
        processes: Mapping[str, Mapping[int, Process]],
    ) -> dict[str, tuple[str, frozenset[Sharer]]]:
        """The source whose word counts for each unit, and the sharers that it names."""
        sources = (SLURM, KUBERNETES) if self._ruled else (SLURM, KUBERNETES, CONTAINER)
        chosen = {}
        for uuid in devices.units:
            by_source = claimed.get(uuid, {})
            source = next((source for source in sources if by_source.get(source)), None)
            if source is not None:
                chosen[uuid] = (source, frozenset(by_source[source]))
            elif not self._ruled:
                computing = {(process.job_id, "") for process in processes.get(uuid, {}).values()}
                if computing:
                    chosen[uuid] = (PROCESS, frozenset(computing))
        return chosen

    @property
    def _ruled(self) -> bool:
        return any(word.rules for word in self._words.all)

    def _jobs(self, chosen: Mapping[str, tuple[str, frozenset[Sharer]]]) -> dict[str, Job]:
        """Jobs that run: those of schedulers and containers, and whoever else holds a GPU."""
        told = {job.job_id: job for word in self._words.all for job in word.jobs}
        counted = (SLURM, KUBERNETES) if self._ruled else (SLURM, KUBERNETES, CONTAINER)
        jobs = {job_id: job for job_id, job in told.items() if source_of(job_id) in counted}
        for _, sharers in chosen.values():
            for job_id, _ in sharers:
                if job_id not in jobs:
                    jobs[job_id] = told.get(job_id) or _bare(job_id)
        return jobs

    def _failures(self, unknown: Mapping[str, Claim]) -> Iterator[Failure]:
        for item, claim in unknown.items():
            yield Failure(
                item=item,
                reason="unknown_device",
                detail=f"{claim.source} says that {claim.job_id} holds {claim.device}, and no GPU, or more "
                "than one, goes by that name; nobody is charged for it",
                ongoing=item in self._told,
            )
        self._told = set(unknown)


def user_of(job: Job, user_label: str) -> str:
    """The user of a job as it is exported. user_label: name, uid, none."""
    if user_label == "none":
        return ""
    return job.uid if user_label == "uid" else job.user


def _pod(member: str) -> str:
    """A pod's name as a member, without that of a container in it."""
    return "/".join(member.split("/")[:2])


def _shares(sharers: frozenset[Sharer], jobs: Mapping[str, Job]) -> tuple[Held, ...]:
    """Each of n sharers holds one nth; what those of one job hold is added."""
    members = Counter(job_id for job_id, _ in sharers)
    return tuple(
        Held(job_id, jobs[job_id].account, members[job_id] / len(sharers)) for job_id in sorted(members)
    )


def _weights(processes: Mapping[int, Process]) -> dict[str, float]:
    weights: defaultdict[str, float] = defaultdict(float)
    for process in processes.values():
        weights[process.job_id] += process.sm_ratio
    return weights


def _allocated(unit: Unit, held: Held, job: Job, source: str, user_label: str) -> GpuAllocated:
    return GpuAllocated(
        gpu=unit.gpu,
        uuid=unit.uuid,
        job_id=job.job_id,
        user=user_of(job, user_label),
        account=job.account,
        kind=job.kind,
        source=source,
        share=held.share * unit.part,
    )


def _bare(job_id: str) -> Job:
    """A job of which only the name is known."""
    source = source_of(job_id)
    kinds = {SLURM: "batch", KUBERNETES: "batch"}
    kind = "interactive" if job_id.startswith("user/") else kinds.get(source, "service")
    return Job(job_id=job_id, scheduler=source, kind=kind)
