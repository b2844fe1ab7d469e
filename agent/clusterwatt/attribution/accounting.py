"""Attribution as the tick knows it: holders, roster and books, each fed with what the one before it made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from clusterwatt.attribution import holders, memory, roster, states
from clusterwatt.attribution.books import Books
from clusterwatt.attribution.entries import Baseline, Batch, JobRecord
from clusterwatt.attribution.holders import Holders, Holding
from clusterwatt.attribution.memory import memory_by_job
from clusterwatt.attribution.roster import Roster
from clusterwatt.attribution.words import Parts
from clusterwatt.config.model import Config
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuProcess
from clusterwatt.readings.work import JobMember, ProcessOwner

METRICS = (*holders.METRICS, *states.METRICS, *roster.METRICS, *memory.METRICS)


class Accounting:
    """Who holds what, and what it costs, since the agent started."""

    def __init__(self, config: Config, boot_id: str) -> None:
        self._user_label = config.workloads.user_label
        self._holders = Holders()
        self._roster = Roster(config.ledger.linger_seconds)
        self._books = Books(config.meters, boot_id)

    def use(self, config: Config) -> None:
        """Go on with other settings; nothing that is booked changes."""
        self._user_label = config.workloads.user_label
        self._roster.linger_s = config.ledger.linger_seconds
        self._books.settings = config.meters

    @property
    def held_uuids(self) -> frozenset[str] | None:
        """UUIDs of the devices that jobs hold; None while no source has answered: any may be held."""
        return self._holders.held_uuids

    @property
    def holding(self) -> Holding:
        """Who holds what now, for what else asks for the jobs of a device or a process."""
        return self._holders.holding

    def recover(
        self,
        baselines: Mapping[str, Baseline],
        *,
        boot_id: str,
        wall_s: float,
        jobs: Iterable[JobRecord] = (),
    ) -> None:
        """Go on from the ledger: where its books stand, the boot they were written in, and when.

        `jobs`: those whose end it does not know. Given once, before the first `take`.
        """
        self._roster.recover(jobs)
        self._books.recover(baselines, boot_id=boot_id, wall_s=wall_s)

    def take(
        self,
        parts: Parts,
        sources: Mapping[str, bool],
        *,
        wall_s: float,
        now_s: float,
        every_s: float,
    ) -> Iterator[Reading]:
        """Take a tick's readings, those of the meters among them; yield what attribution makes of it.

        `sources`: those of slurm, kubernetes, container, process that are switched on, or a simulation in
        their place, and whether the newest pass of each is good and fresh. `every_s`: how often GPUs are
        read. Readings that are the same as in the last call book nothing. A `Failure` for each device of a
        source that is not known.
        """
        yield from self._holders.take(parts, sources, now_s=now_s, user_label=self._user_label)
        holding = self._holders.holding
        self._roster.take(holding.jobs, wall_s=wall_s, now_s=now_s, all_answered=self._holders.all_answered)
        self._books.take(parts, holding, wall_s=wall_s, now_s=now_s, every_s=every_s)
        yield from memory_by_job(
            parts.get(GpuProcess, ()), parts.get(ProcessOwner, ()), parts.get(JobMember, ())
        )
        yield from self._roster.readings(self._user_label)
        yield from self._books.readings()

    def take_batches(self, wall_s: float) -> list[Batch]:
        """What has gathered since the last call, a batch for each full hour; begins anew."""
        return self._books.take_batches(wall_s, self._roster.take_records())
