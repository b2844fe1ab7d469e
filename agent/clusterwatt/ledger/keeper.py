"""Keeps the books: gathers what is booked, has it written, and shows what is on disk.

The ledger lives on a thread of its own, for a disk can be full, slow or hung for ever; the loop's thread only
gathers, starts a commit when one is due, and takes note of how the last one ended. What could not be written
is kept and written with the next.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone, tzinfo
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from clusterwatt.attribution.entries import NOBODY, Batch, Entry
from clusterwatt.clock import Clock
from clusterwatt.config.model import Ledger
from clusterwatt.ledger import gathering, series
from clusterwatt.ledger.faults import InUseError, LedgerError
from clusterwatt.ledger.state import JobRows, Payload, Recovered, State, opened
from clusterwatt.ledger.store import Store
from clusterwatt.ledger.totals import Totals, known_of, totals_of
from clusterwatt.log import ChangeLog
from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import LedgerState
from clusterwatt.worker import MakeWorker, Outcome, Worker

log = logging.getLogger("clusterwatt.ledger")

RETRY_S = 5.0
PRUNE_EVERY_S = 3_600.0
HUNG_AFTER_S = 15.0
EARLY_S = 0.05  # a tick that comes a little early still commits


class _Opened(msgspec.Struct, frozen=True):
    state: State
    recovered: Recovered


class _Written(msgspec.Struct, frozen=True):
    state: State


class _Pruned(msgspec.Struct, frozen=True):
    more: bool


class _Told(msgspec.Struct, frozen=True):
    pass


_Answer = _Opened | _Written | _Pruned | _Told


class Keeper:
    """Between the books and the page. To be used from one thread; only `wait` and `stop` wait for the disk.

    `zone`: name of the time zone in which months begin, empty for the node's own. `budgets`: what an account
    may spend in a month, by account and currency. `on_ended`: called on the ledger's thread with the ids of
    jobs whose end has been committed, with some more than once.
    """

    def __init__(
        self,
        settings: Ledger,
        clock: Clock,
        *,
        zone: str = "",
        budgets: Mapping[tuple[str, str], float] | None = None,
        on_ended: Callable[[Sequence[str]], None] | None = None,
        make_worker: MakeWorker = Worker,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._zone: tzinfo | None = ZoneInfo(zone) if zone else None
        self._budgets = budgets or {}
        self._on_ended = on_ended
        self._ended: list[str] = []  # and not told yet
        self._store = Store(Path(settings.path), clock)
        self._worker = make_worker("ledger", clock)
        self._log = ChangeLog(log, clock)
        self._started_s: float | None = None  # of the outstanding call
        self._outcome: Outcome[_Answer] | None = None
        self._came_back = threading.Event()
        self._state: State | None = None
        self._recovered: Recovered | None = None
        self._in_use: InUseError | None = None
        self._errors = 0
        self._gathered = Payload()
        self._in_flight: Payload | None = None
        self._coming: dict[Entry, Totals] = {}  # gathered or in flight: their series begin at 0
        self._kinds: dict[Entry, tuple[bool, ...]] = {}  # which of an entry's amounts were known last
        self._unopened = False  # what is coming may not be on the page yet
        self._seen_s: dict[str, float] = {}
        self._not_before_s = self._next_commit_s = self._next_prune_s = clock.monotonic_s()
        self._lines: tuple[Reading, ...] | None = None
        self._lines_month = ""
        self._of_jobs: dict[str, tuple[JobRows, tuple[Reading, ...]]] = {}
        self._start_next()

    def wait(self, within_s: float) -> None:
        """Give the ledger a moment to open, so that what it recovers is there for the first tick.

        One that comes later is as good: nothing of it is shown before. Raises InUseError when another agent
        keeps it.
        """
        self._came_back.wait(within_s)
        self._settle()
        if self._in_use is not None:
            raise self._in_use

    def recovered(self) -> Recovered | None:
        """Where the books stood at the last commit; None until the ledger has said so."""
        return self._recovered

    def use(self, budgets: Mapping[tuple[str, str], float]) -> None:
        """Go on with other budgets."""
        self._budgets = budgets
        self._lines = None

    def take(self, batches: Iterable[Batch], held: Collection[str] = ()) -> None:
        """Take what was booked since the last call, and the ids of the jobs that are there now.

        To be called at every tick: a job or an amount that is new is shown at 0, or at its committed total,
        before it moves.
        """
        self._settle()
        now_s = self._clock.monotonic_s()
        self._seen_s.update(dict.fromkeys(held, now_s))
        if self._in_use is not None:
            self._log.bad("", self._in_use.state, str(self._in_use))
        for batch in batches:
            if self._in_use is None:  # else the agent that keeps the ledger books the same
                self._gather(self._of_known_kinds(batch), now_s)
        loss = gathering.bound(self._gathered)
        if loss.hours or loss.jobs:
            self._tell_loss(loss)
        self._open_series()
        self._start_next()
        self._tell_hung(now_s)

    def readings(self) -> Iterator[Reading]:
        """Committed totals; before the ledger has said what it holds, only how it fares."""
        if self._state is None:
            yield LedgerState(commit_timestamp_seconds=None, residual_joules=None, errors=float(self._errors))
            return
        month = self._month_of(self._clock.wall_s())
        if self._lines is None or month != self._lines_month:
            self._lines, self._lines_month = tuple(self._totals(self._state, month)), month
        yield from self._lines
        yield from series.of_ledger(self._state, self._errors)

    def stop(self, within_s: float) -> bool:
        """Write what has gathered and let go of the file; whether all of it was written in time."""
        end_s = self._clock.monotonic_s() + within_s
        self._finish(end_s)
        if self._started_s is None and self._state is not None:
            self._start_writing(self._state, due=True)
            self._finish(end_s)
        if self._started_s is None and self._ended:
            self._start_telling()
            self._finish(end_s)
        lost = bool(self._gathered.wall_s) or self._in_flight is not None
        if lost:
            log.warning("%s: what was measured last could not be written", self._settings.path)
        closed = threading.Event()

        def close() -> None:
            self._store.close()
            closed.set()

        self._worker.stop(close)
        closed.wait(max(0.0, end_s - self._clock.monotonic_s()))
        return not lost

    # --- What is shown ---------------------------------------------------------------------------------

    def _totals(self, state: State, month: str) -> Iterator[Reading]:
        shown = {}
        for job_id, rows in state.jobs.items():
            if job_id != NOBODY:
                known = self._of_jobs.get(job_id)  # most jobs on a busy node are over and stay as they are
                if known is None or known[0] is not rows:
                    known = rows, tuple(series.of_job(job_id, rows))
                shown[job_id] = known
                yield from known[1]
        self._of_jobs = shown
        yield from series.of_nobody(state.jobs[NOBODY])
        yield from series.of_accounts(state)
        yield from series.of_months(state, month, self._budgets)

    def _show(self, state: State) -> None:
        self._state, self._lines = state, None

    def _open_series(self) -> None:
        """Have a 0 on the page for each amount that is about to be written for the first time."""
        if self._state is not None and self._unopened:
            self._unopened = False
            self._show(opened(self._state, self._coming))

    def _forget(self, state: State, now_s: float) -> State:
        """The state without jobs that have been gone for a while."""
        gone_s = now_s - self._settings.linger_seconds
        self._seen_s = {job_id: seen_s for job_id, seen_s in self._seen_s.items() if seen_s > gone_s}
        jobs = {job_id: rows for job_id, rows in state.jobs.items() if job_id in self._seen_s or not job_id}
        return msgspec.structs.replace(state, jobs=jobs)

    # --- What is written -------------------------------------------------------------------------------

    def _of_known_kinds(self, batch: Batch) -> Batch:
        """The batch, with what it calls by names that have no column under those of the rest."""
        known, renamed = gathering.of_known_kinds(batch)
        if renamed:
            self._errors += len(renamed)
            names = ", ".join(sorted({f"{entry.component}/{entry.method}" for entry in renamed}))
            text = (
                f"{self._settings.path}: {names}: no such component or method; booked under other, estimated"
            )
            self._log.bad("kinds", names, f"{text}. A bug of the agent, please report it")
        return known

    def _gather(self, batch: Batch, now_s: float) -> None:
        gathering.add(self._gathered, batch)
        for record in batch.jobs:
            self._seen_s[record.job.job_id] = now_s
        for entry, amounts in batch.entries.items():
            if entry.job_id != NOBODY:
                self._seen_s[entry.job_id] = now_s
            kinds = known_of(amounts)
            if self._kinds.get(entry) != kinds:  # hardly ever, and the rest takes its time
                self._kinds[entry] = kinds
                known, new = self._coming.get(entry), totals_of(entry, amounts).opened()
                self._coming[entry] = new if known is None else known.plus(new)
                self._unopened = True

    def _start_next(self) -> None:
        """Start the call that is due, if none is outstanding."""
        now_s = self._clock.monotonic_s()
        if self._started_s is not None or now_s < self._not_before_s:
            return
        state = self._state
        if state is None:
            month = self._month_of(self._clock.wall_s())
            self._start(lambda: _Opened(*self._store.open(month)))
            return
        # The rare comes first: a commit may be due at every tick.
        if self._ended:
            self._start_telling()
        elif now_s >= self._next_prune_s:
            live = frozenset(state.jobs)
            days, most = self._settings.retention_days, self._settings.max_bytes
            self._next_prune_s = now_s + PRUNE_EVERY_S
            self._start(lambda: _Pruned(self._store.prune(days, most, live)))
        else:
            self._start_writing(state, due=now_s >= self._next_commit_s - EARLY_S)

    def _start_writing(self, state: State, *, due: bool) -> None:
        """Ask for the jobs that are wanted, and write what has gathered when that is due."""
        wanted = self._seen_s.keys() - state.jobs.keys()
        payload = None
        if due and self._gathered.wall_s:
            payload = self._in_flight = self._gathered
            self._gathered = Payload()
            self._next_commit_s = self._clock.monotonic_s() + self._settings.commit_seconds
        if payload is not None or wanted:
            self._start(lambda: _Written(self._store.commit(state, payload, wanted, self._month_of)))

    def _start_telling(self) -> None:
        """Say which jobs' ends are on disk."""
        job_ids, self._ended = tuple(self._ended), []
        self._start(partial(self._tell_ended, job_ids))

    def _tell_ended(self, job_ids: Sequence[str]) -> _Told:
        if self._on_ended is not None:
            self._on_ended(job_ids)
        return _Told()

    def _start(self, call: Callable[[], _Answer]) -> None:
        self._started_s = self._clock.monotonic_s()
        self._came_back.clear()

        def done(outcome: Outcome[_Answer]) -> None:  # on the ledger's thread
            self._outcome = outcome
            self._came_back.set()

        self._worker.start(call, done)

    def _finish(self, end_s: float) -> None:
        """Wait for the outstanding call."""
        if self._started_s is not None:
            self._came_back.wait(max(0.0, end_s - self._clock.monotonic_s()))
            self._settle()

    def _settle(self) -> None:
        """Take note of how the last call ended."""
        outcome, self._outcome = self._outcome, None
        if outcome is None:
            return
        self._started_s = None
        now_s = self._clock.monotonic_s()
        answer = outcome.result
        if answer is None:
            self._take_failure(outcome.error, now_s)
            return
        self._log.good("", f"{self._settings.path}: the ledger is written again")
        if isinstance(answer, _Opened):
            self._in_use = None
            self._recovered = answer.recovered
            self._seen_s.update((record.job.job_id, now_s) for record in answer.recovered.jobs)
            self._unopened = True
            self._show(answer.state)
        elif isinstance(answer, _Written):
            if self._in_flight is not None:
                jobs = self._in_flight.jobs.values() if self._on_ended is not None else ()
                self._ended += [record.job.job_id for record in jobs if record.ended_s is not None]
                self._in_flight = None
                self._log.good("bound", f"{self._settings.path}: nothing has to be put together any more")
                coming = {entry for entry, _ in gathering.entries(self._gathered)}
                self._coming = {entry: row for entry, row in self._coming.items() if entry in coming}
                self._kinds = {entry: kinds for entry, kinds in self._kinds.items() if entry in coming}
            self._unopened = True
            self._show(self._forget(answer.state, now_s))
        elif isinstance(answer, _Pruned) and answer.more:
            self._next_prune_s = now_s

    def _take_failure(self, error: Exception | None, now_s: float) -> None:
        self._errors += 1
        if self._in_flight is not None:
            self._gathered = gathering.joined(self._in_flight, self._gathered)
            self._in_flight = None
        self._not_before_s = now_s + (max(RETRY_S, self._settings.commit_seconds) if self._state else RETRY_S)
        if isinstance(error, InUseError):  # said at the next tick, or by who is told in `wait`
            self._in_use = error
            self._gathered, self._coming, self._kinds = Payload(), {}, {}
        elif isinstance(error, LedgerError):
            self._log.bad("", error.state, str(error))
        else:
            log.error("ledger: a bug of the agent, please report it", exc_info=error)

    # --- What is said ----------------------------------------------------------------------------------

    def _tell_loss(self, loss: gathering.Loss) -> None:
        if loss.jobs:
            text = f"amounts of {loss.jobs} jobs were put together with what nobody is charged with"
        else:
            text = f"{loss.hours} hours were put together with the one after them"
        self._log.bad(
            "bound", "jobs" if loss.jobs else "hours", f"{self._settings.path}: too much waits: {text}"
        )

    def _tell_hung(self, now_s: float) -> None:
        if self._started_s is not None and now_s - self._started_s > HUNG_AFTER_S:
            folder = Path(self._settings.path).parent
            self._log.bad(
                "", "hung", f"{self._settings.path} does not answer; look at the disk below {folder}"
            )

    def _month_of(self, time_s: float) -> str:
        """The calendar month of a moment, as 2026-11."""
        return datetime.fromtimestamp(time_s, timezone.utc).astimezone(self._zone).strftime("%Y-%m")
