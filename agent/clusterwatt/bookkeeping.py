"""Bookkeeping in a tick: who holds which GPU, what is booked for it, and what the ledger has committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterwatt.attribution.accounting import Accounting
from clusterwatt.attribution.runs import Runs
from clusterwatt.attribution.xid_jobs import XidJobs
from clusterwatt.clock import Clock
from clusterwatt.config.model import Config
from clusterwatt.learnt import Learnt
from clusterwatt.ledger.keeper import Keeper
from clusterwatt.readings.base import ByType, Reading
from clusterwatt.readings.gpu_measured import HardwareEvent
from clusterwatt.readings.work import AccountMonth
from clusterwatt.source import Account

RECOVER_WITHIN_S = 10.0


class Bookkeeping:
    """Holds attribution and its books. `keeper`: writes them; None: nothing lasts, and no job has totals."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        boot_id: str,
        keeper: Keeper | None,
        learnt: Learnt | None = None,
    ) -> None:
        self._accounting = Accounting(config, boot_id)
        self._keeper = keeper
        self._clock = clock
        self._account = Account("attribution", clock)
        self._xid_jobs = XidJobs(clock, learnt or Learnt(None, clock))
        self._runs = Runs(config.training, clock)
        self._began = False
        self._begin_at_the_latest_s = clock.monotonic_s() + RECOVER_WITHIN_S
        self.other_ratio = config.meters.other_ratio  # the rest of the node as a share of its parts
        self._budgets: dict[tuple[str, str], float] = {}

    @property
    def held_uuids(self) -> frozenset[str] | None:
        """UUIDs of the GPUs that jobs hold; None while no source has answered: any may be held."""
        return self._accounting.held_uuids

    @property
    def signals(self) -> Mapping[str, str]:
        """The activity signal that an earlier agent has chosen for a GPU, by UUID.

        None that the ledger tells when books have begun: two signals in one bill could not be compared.
        """
        recovered = None if self._keeper is None or self._began else self._keeper.recovered()
        baselines = {} if recovered is None else recovered.baselines
        return {uuid: baseline.signal for uuid, baseline in baselines.items() if baseline.signal}

    def use(self, config: Config) -> None:
        """Go on with other settings; nothing that is booked changes."""
        self._accounting.use(config)
        self.other_ratio = config.meters.other_ratio
        self._runs.use(config.training)

    @property
    def job_of(self) -> Mapping[str, str]:
        """Job by the name of its members on this node."""
        return self._accounting.holding.job_of

    def take(
        self,
        parts: ByType,
        sources: Mapping[str, bool],
        events: Iterable[HardwareEvent],
        *,
        now_s: float,
        every_s: float,
    ) -> list[Reading]:
        """Take a tick's readings, those of the meters among them, and say what the books make of them.

        `sources`: the sources of allocation that are switched on, and whether each has answered lately.
        `every_s`: how often GPUs are read.
        """
        wall_s = self._clock.wall_s()
        if not self._begins(now_s):
            return [] if self._keeper is None else self._what_is_kept(self._keeper)
        made = self._account.without_failures(
            self._accounting.take(parts, sources, wall_s=wall_s, now_s=now_s, every_s=every_s)
        )
        holding = self._accounting.holding
        made.extend(self._xid_jobs.take(events, holding, now_s=now_s))
        batches = self._accounting.take_batches(wall_s)
        if self._keeper is not None:
            self._use_budgets(self._keeper, parts.get(AccountMonth, ()))
            self._keeper.take(batches, holding.jobs)
            made.extend(self._keeper.readings())
        made.extend(list(self._runs.take(parts, made, holding.job_of, wall_s=wall_s, now_s=now_s)))
        made.extend(self._account.readings())
        return made

    def stop(self, within_s: float) -> None:
        """Have what has gathered written."""
        if self._keeper is not None:
            self._keeper.stop(within_s)

    def _use_budgets(self, keeper: Keeper, stated: Iterable[AccountMonth]) -> None:
        """Hand on what the price book lets accounts spend, when that changes."""
        budgets = {(one.account, one.currency): one.budget for one in stated if one.budget is not None}
        if budgets != self._budgets:
            self._budgets = budgets
            keeper.use(budgets)

    def _what_is_kept(self, keeper: Keeper) -> list[Reading]:
        keeper.take(())
        return list(keeper.readings())

    def _begins(self, now_s: float) -> bool:
        """Before anything is booked: go on from where the last agent's books ended, once the ledger has told.

        One that cannot be opened is not waited for: what was used while no agent ran stays unbooked then.
        """
        if self._began:
            return True
        recovered = None if self._keeper is None else self._keeper.recovered()
        if recovered is None and self._keeper is not None and now_s < self._begin_at_the_latest_s:
            return False
        self._began = True
        if recovered is not None and recovered.committed_s is not None:
            self._accounting.recover(
                recovered.baselines,
                boot_id=recovered.boot_id,
                wall_s=recovered.committed_s,
                jobs=recovered.jobs,
            )
        return True
