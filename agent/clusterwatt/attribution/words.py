"""The last word of each source of allocation: one that is silent still stands by what it said.

A job is over when its source says so in a good pass, not when a kubelet restarts or a read hangs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import (
    Claim,
    Job,
    JobMember,
    ProcessOwner,
    Scheduler,
    SlurmdPod,
)

Parts = Mapping[type[Reading], tuple[Any, ...]]  # readings of a tick, by type

SLURM, KUBERNETES, CONTAINER, PROCESS = SOURCES = ("slurm", "kubernetes", "container", "process")
OF_JOB = {"slurm": SLURM, "k8s": KUBERNETES, "container": CONTAINER}


def source_of(job_id: str) -> str:
    """The source that tells of a job: units and users are those of processes."""
    return OF_JOB.get(job_id.partition("/")[0], PROCESS)


class Word(msgspec.Struct, frozen=True):
    """What one source says."""

    rules: bool = False  # as a scheduler, over the node's GPUs
    jobs: tuple[Job, ...] = ()
    members: tuple[JobMember, ...] = ()
    claims: tuple[Claim, ...] = ()
    slurmd_pods: tuple[SlurmdPod, ...] = ()
    owners: tuple[ProcessOwner, ...] = ()


NOTHING = Word()


class Words:
    """Keeps the last word of each source."""

    def __init__(self) -> None:
        self._words: dict[str, Word] = {}
        self._answered: set[str] = set()
        self._expected: frozenset[str] = frozenset()

    def take(self, parts: Parts, sources: Mapping[str, bool]) -> None:
        """Take what was said. `sources`: those that are switched on, and whether their newest pass is good.

        One that is none of `SOURCES`, as a simulation, speaks for all that are not in `sources`.
        """
        said = _by_source(parts)
        self._expected = frozenset(sources)
        self._answered &= self._expected
        self._answered |= {name for name, good in sources.items() if good}
        others_good = all(good for name, good in sources.items() if name not in SOURCES)
        for name in SOURCES:
            if sources.get(name, others_good):
                self._words[name] = said.get(name, NOTHING)

    @property
    def any_answered(self) -> bool:
        """Whether any source that is switched on has ever said something."""
        return bool(self._answered & self._expected) or any(word != NOTHING for word in self._words.values())

    @property
    def all_answered(self) -> bool:
        """Whether each source that is switched on has answered at least once."""
        return self._expected <= self._answered

    def of(self, source: str) -> Word:
        """The last word of a source."""
        return self._words.get(source, NOTHING)

    @property
    def all(self) -> tuple[Word, ...]:
        """The last words of all sources."""
        return tuple(self._words.values())


def _by_source(parts: Parts) -> dict[str, Word]:
    """What is said in this tick, parted by who says it."""
    jobs: defaultdict[str, list[Job]] = defaultdict(list)
    members: defaultdict[str, list[JobMember]] = defaultdict(list)
    claims: defaultdict[str, list[Claim]] = defaultdict(list)
    for job in parts.get(Job, ()):
        jobs[source_of(job.job_id)].append(job)
    for member in parts.get(JobMember, ()):
        members[source_of(member.job_id)].append(member)
    for claim in parts.get(Claim, ()):
        claims[claim.source].append(claim)
    rulers = {scheduler.scheduler for scheduler in parts.get(Scheduler, ())}
    return {
        name: Word(
            rules=name in rulers,
            jobs=tuple(jobs[name]),
            members=tuple(members[name]),
            claims=tuple(claims[name]),
            slurmd_pods=parts.get(SlurmdPod, ()) if name == SLURM else (),
            owners=parts.get(ProcessOwner, ()) if name == PROCESS else (),
        )
        for name in SOURCES
    }
