"""A node whose readings tests move by hand, and what attribution books of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from clusterwatt.attribution.accounting import Accounting
from clusterwatt.attribution.entries import Amounts, Batch, Entry
from clusterwatt.config.model import Config
from clusterwatt.meters.energy import GpuMeter
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.gpu import GpuInfo, GpuIntegrals
from clusterwatt.readings.gpu_measured import GpuActive, GpuActivity, GpuEnergy, GpuUp
from clusterwatt.readings.work import Claim, Job, JobMember, Scheduler

A, B = "GPU-aaaaaaaa-0000-0000-0000-00000000000a", "GPU-bbbbbbbb-0000-0000-0000-00000000000b"
NAME = "NVIDIA A100-SXM4-80GB"
HOUR = 1_699_999_200.0  # a full hour


def gpu(
    uuid: str,
    index: str = "0",
    *,
    minor: str | None = None,
    pci: str = "",
    parent: str = "",
    profile: str = "",
    instance: str = "",
    name: str = NAME,
) -> GpuInfo:
    return GpuInfo(
        gpu=index,
        uuid=uuid,
        name=name,
        architecture="ampere",
        pci_bus_id=pci,
        minor=index if minor is None else minor,
        serial="",
        vbios="",
        parent_uuid=parent,
        mig_profile=profile,
        simulated="true",
        gpu_instance=instance,
    )


def mig(board: str, number: int, profile: str) -> GpuInfo:
    return gpu(
        f"MIG-{number:08x}-{board[4:]}", f"0:{number}", parent=board, profile=profile, instance=str(number)
    )


def job(job_id: str, account: str = "", **more: Any) -> Job:
    return Job(job_id=job_id, scheduler=job_id.partition("/")[0], kind="batch", account=account, **more)


def held_by(job_id: str, device: str, *, source: str = "slurm", member: str = "") -> Claim:
    return Claim(job_id=job_id, device=device, source=source, member=member)


def by_type(readings: Iterable[Reading]) -> dict[type[Reading], tuple[Any, ...]]:
    parts: defaultdict[type[Reading], list[Reading]] = defaultdict(list)
    for reading in readings:
        parts[type(reading)].append(reading)
    return {kind: tuple(found) for kind, found in parts.items()}


class Node:
    """GPUs that draw `watts`, are busy by `activity`, and what a scheduler says of them."""

    def __init__(self, *infos: GpuInfo, config: Config | None = None, every_s: float = 1.0) -> None:
        self.config = config or Config()
        self.accounting = Accounting(self.config, "boot-1")
        self.infos = list(infos or (gpu(A),))
        self.every_s = every_s
        self.now_s, self.wall_s = 1_000.0, HOUR + 100.0
        self.watts: dict[str, float] = {info.uuid: 400.0 for info in self.infos if not info.parent_uuid}
        self.activity: dict[str, float | None] = {info.uuid: 1.0 for info in self.infos}
        self.tensor: dict[str, float | None] = {}
        self.counter: dict[str, float] = dict.fromkeys(self.watts, 5_000.0)  # the driver's
        self.offers_counter = self.offers_power = True
        self.ledger_told = True  # while it is False the meters count, and nothing is booked
        self.integral: dict[str, float] = dict.fromkeys(self.watts, 0.0)  # the driver host's
        self.since_s = self.now_s
        self.meter = GpuMeter()
        self.active: defaultdict[str, float] = defaultdict(float)
        self.tensor_active: defaultdict[str, float] = defaultdict(float)
        self.silent: set[str] = set()
        self.says: list[Reading] = [Scheduler("slurm")]
        self.more: list[Reading] = []
        self.sources: Mapping[str, bool] = {"slurm": True}
        self.readings: dict[type[Reading], tuple[Any, ...]] = {}
        self.batches: list[Batch] = []
        self.energies: list[GpuEnergy] = []

    def jobs(self, *claims: Claim, members: Iterable[JobMember] = ()) -> None:
        """The scheduler's word from now on."""
        ids = dict.fromkeys(claim.job_id for claim in claims)
        self.says = [Scheduler("slurm"), *(job(each, f"acct-{each}") for each in ids), *claims, *members]

    def tick(self, seconds: float | None = None, *, wall: float | None = None) -> Node:
        """Time passes, every GPU that is not silent is read, and the books are written."""
        seconds = self.every_s if seconds is None else seconds
        self.now_s += seconds
        self.wall_s += seconds if wall is None else wall
        for uuid, watts in self.watts.items():
            self.counter[uuid] += watts * seconds
            self.integral[uuid] += watts * seconds if uuid not in self.silent and self.offers_power else 0.0
        for uuid, ratio in self.activity.items():
            self.active[uuid] += (ratio or 0.0) * seconds
        for uuid, ratio in self.tensor.items():
            self.tensor_active[uuid] += (ratio or 0.0) * seconds
        return self.again()

    def ticks(self, count: int) -> Node:
        for _ in range(count):
            self.tick()
        return self

    def again(self) -> Node:
        """The books are written with what the GPUs say now."""
        said = [*self.said(), *self.says, *self.more]
        integrals = [each for each in said if isinstance(each, GpuIntegrals)]
        measured = [each for each in self.meter.measure(integrals, ()) if not isinstance(each, Failure)]
        parts = by_type((*said, *measured))
        self.energies = [each for each in measured if isinstance(each, GpuEnergy)]
        if not self.ledger_told:
            return self
        made = self.accounting.take(
            parts, self.sources, wall_s=self.wall_s, now_s=self.now_s, every_s=self.every_s
        )
        self.readings = by_type(made)
        return self

    def said(self) -> Iterator[Reading]:
        for info in self.infos:
            uuid = info.uuid
            yield GpuUp(gpu=info.gpu, uuid=uuid, up=float(uuid not in self.silent))
            if uuid in self.silent or info.parent_uuid in self.silent:
                continue
            yield info
            if uuid in self.counter:
                yield GpuIntegrals(
                    info.gpu,
                    uuid,
                    self.since_s,
                    self.now_s,
                    power_integral_joules=self.integral[uuid],
                    energy_counter_joules=self.counter[uuid] if self.offers_counter else None,
                )
            if self.activity.get(uuid) is not None:
                yield GpuActivity(info.gpu, uuid, self.active[uuid])
            if self.tensor.get(uuid) is not None:
                yield GpuActive(info.gpu, uuid, tensor_active_seconds=self.tensor_active[uuid])

    def restart(self, *, away_s: float, wall: float | None = None, boot_id: str = "boot-1") -> Node:
        """The agent ends after a commit, and another goes on from the ledger `away_s` later."""
        self.take()
        committed = {uuid: each for batch in self.batches for uuid, each in batch.baselines.items()}
        last = self.batches[-1]
        self.now_s += away_s
        self.wall_s += away_s if wall is None else wall
        for uuid, watts in self.watts.items():
            self.counter[uuid] += watts * away_s
        self.since_s, self.integral = self.now_s, dict.fromkeys(self.watts, 0.0)
        self.meter = GpuMeter()
        self.accounting = Accounting(self.config, boot_id)
        self.accounting.recover(committed, boot_id=last.boot_id, wall_s=last.wall_s)
        return self

    def take(self) -> dict[Entry, Amounts]:
        """Entries of all batches so far."""
        self.batches += self.accounting.take_batches(self.wall_s)
        entries: dict[Entry, Amounts] = {}
        for batch in self.batches:
            for entry, amounts in batch.entries.items():
                entries.setdefault(entry, Amounts()).add(amounts)
        return entries

    def joules(self) -> dict[str, float]:
        """Joules by job so far; nobody's under an empty name."""
        return self.sums("joules")

    def sums(self, field: str) -> dict[str, float]:
        """What was booked so far, by job."""
        sums: defaultdict[str, float] = defaultdict(float)
        for entry, amounts in self.take().items():
            value = getattr(amounts, field)
            if value:
                sums[entry.job_id] += value
        return dict(sums)
