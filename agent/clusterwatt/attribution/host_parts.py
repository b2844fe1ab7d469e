"""Joules of CPU, memory and the rest of the node, parted among jobs. All of it is an estimate, and says so.

CPU: by the CPU seconds of the jobs' cgroups over all that the node's CPUs were busy. dram: by the memory of
the cgroups over all that is used. other (fans, NICs, disks, losses): by the share of the node's GPUs that is
held. What no job used is nobody's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from clusterwatt.attribution.entries import NOBODY
from clusterwatt.attribution.holders import Holding
from clusterwatt.attribution.processes import job_named
from clusterwatt.attribution.words import Parts
from clusterwatt.readings.host import CpuTime, Memory, NodeEnergy
from clusterwatt.readings.work import JobHostUse

CPU, DRAM, OTHER = PARTS = ("cpu", "dram", "other")
RESTING = ("idle", "iowait", "steal")  # modes in which no CPU works for this machine
STRETCH_S = 10.0  # sources tell of cgroups each 2 to 10 s: over less time a job seems to come and go


class HostBooking(msgspec.Struct, frozen=True):
    """Joules of a component that fall to a job, or to nobody."""

    job_id: str
    component: str
    joules: float


class Use:
    """CPU seconds of one cgroup: how fast they run, by the times of its own readings."""

    def __init__(self) -> None:
        self._newest: JobHostUse | None = None
        self._then: tuple[float, float] | None = None  # seconds, time
        self._now: tuple[float, float] | None = None
        self._rate = 0.0

    def take(self, use: JobHostUse, now_s: float) -> None:
        """Take what the source says; the same reading again is no news."""
        if use is self._newest or use.cpu_seconds is None:
            return
        self._newest, self._now = use, (use.cpu_seconds, now_s)
        self._then = self._then or self._now

    def rate(self) -> float:
        """CPUs in use since it was asked last; as before while it has not been read again."""
        if self._then is not None and self._now is not None and self._now[1] > self._then[1]:
            self._rate = max(0.0, self._now[0] - self._then[0]) / (self._now[1] - self._then[1])
            self._then = self._now
        return self._rate


class HostParts:
    """Books the components of the node, each stretch of time as one."""

    def __init__(self) -> None:
        self.measured_joules = 0.0
        self._totals: dict[tuple[str, str], float] = {}
        self._pending = dict.fromkeys(PARTS, 0.0)
        self._uses: dict[str, Use] = {}
        self._busy: tuple[float, float] | None = None
        self._since_s: float | None = None

    def take(self, parts: Parts, holding: Holding, now_s: float) -> list[HostBooking]:
        """What is booked now: nothing, or all of the stretch that ends."""
        self.measured_joules = 0.0
        self._gather(parts.get(NodeEnergy, ()))
        # The cgroup of a pod in which slurmd runs holds those of its jobs, which would count twice.
        uses = tuple(use for use in parts.get(JobHostUse, ()) if use.owner not in holding.slurmd_pods)
        for use in uses:
            self._uses.setdefault(use.owner, Use()).take(use, now_s)
        if self._since_s is None:
            self._since_s, self._busy = now_s, _busy(parts, now_s)
        if now_s - self._since_s < STRETCH_S or not holding.settled:
            return []
        self._since_s = now_s
        shares = {
            CPU: self._cpu_shares(parts, uses, holding, now_s),
            DRAM: _memory_shares(parts, uses, holding),
            OTHER: _gpu_shares(holding),
        }
        bookings: list[HostBooking] = []
        for component, joules in self._pending.items():
            if joules > 0:
                self.measured_joules += joules
                bookings += _parted(component, joules, shares[component])
        self._pending = dict.fromkeys(PARTS, 0.0)
        return bookings

    def _gather(self, energies: Iterable[NodeEnergy]) -> None:
        for energy in energies:
            if energy.component in PARTS:
                key = (energy.component, energy.method)
                booked = self._totals.get(key, 0.0)
                self._totals[key] = max(booked, energy.energy_joules)
                self._pending[energy.component] += self._totals[key] - booked

    def _cpu_shares(
        self, parts: Parts, uses: Iterable[JobHostUse], holding: Holding, now_s: float
    ) -> dict[str, float]:
        busy, then = _busy(parts, now_s), self._busy
        self._busy = busy
        rates: defaultdict[str, float] = defaultdict(float)
        told = {use.owner for use in uses}
        for owner in list(self._uses):
            if owner not in told:
                del self._uses[owner]
                continue
            rate, job_id = self._uses[owner].rate(), job_named(owner, holding.job_of)
            if job_id in holding.jobs and job_id is not None:
                rates[job_id] += rate
        if busy is None or then is None or busy[1] <= then[1]:
            return {}
        return _over(rates, (busy[0] - then[0]) / (busy[1] - then[1]))


def _busy(parts: Parts, now_s: float) -> tuple[float, float] | None:
    """Seconds that the node's CPUs have worked, and now; None where they are not told."""
    times: tuple[CpuTime, ...] = parts.get(CpuTime, ())
    return (sum(time.cpu_seconds for time in times if time.mode not in RESTING), now_s) if times else None


def _memory_shares(parts: Parts, uses: Iterable[JobHostUse], holding: Holding) -> dict[str, float]:
    memory: Memory | None = next(iter(parts.get(Memory, ())), None)
    if memory is None or memory.total_bytes is None or memory.available_bytes is None:
        return {}
    held: defaultdict[str, float] = defaultdict(float)
    for use in uses:
        job_id = job_named(use.owner, holding.job_of)
        if job_id is not None and job_id in holding.jobs:
            held[job_id] += use.memory_bytes or 0.0
    return _over(held, memory.total_bytes - memory.available_bytes)


def _gpu_shares(holding: Holding) -> dict[str, float]:
    held: defaultdict[str, float] = defaultdict(float)
    units = holding.devices.units
    for uuid, holders in holding.held.items():
        for each in holders:
            held[each.job_id] += each.share * units[uuid].part
    return _over(held, float(len(holding.devices.boards)))


def _over(used: Mapping[str, float], whole: float) -> dict[str, float]:
    """Shares of a whole; where the parts are more than it, by readings of different times, of their sum."""
    whole = max(whole, sum(used.values()))
    return {job_id: value / whole for job_id, value in used.items() if value > 0}


def _parted(component: str, joules: float, shares: Mapping[str, float]) -> Iterator[HostBooking]:
    for job_id, share in shares.items():
        yield HostBooking(job_id, component, joules * share)
    yield HostBooking(NOBODY, component, joules * max(0.0, 1.0 - sum(shares.values())))
