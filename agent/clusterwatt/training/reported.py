"""Runs that report of themselves, beside those whose files are followed, and as one with these.

Reports come in on the thread of the event loop and wait in a mailbox until the collector's next pass. One for
a run whose files are followed, and whose owner is the same, goes to that run: a process may write TensorBoard
files and report its phases. Any other is for a run of its own, told from one of the same name by its owner;
while nobody knows whose the files are, a report cannot claim them, and joins them once its owner is theirs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from clusterwatt.catalog import CORE, Table
from clusterwatt.clock import Clock
from clusterwatt.config.model import Training as Settings
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.training import TrainingModel, TrainingPhase, TrainingPhaseStart
from clusterwatt.training.quantities import NONFINITE
from clusterwatt.training.report import PHASES, Report
from clusterwatt.training.state import AHEAD_S, RunState
from clusterwatt.training.tags import Tags

MAX_OF_OWNER = 32  # runs: a process that makes up names must not take the room of others
MAX_UNKNOWN = 64  # runs of all that say themselves whose they are: they can make up owners as well
MAX_WAITING = 8_192  # scalars and reports in the mailbox: a few MiB

BY_RUN = ("run", "job_id")
PHASE = Table(TrainingPhase, labels=(*BY_RUN, "phase"))
PHASE_START = Table(TrainingPhaseStart, labels=BY_RUN)
METRICS = (
    PHASE.gauge("training_phase", "1 for the phase that the run is in, 0 for all others.", "current", CORE),
    PHASE_START.gauge(
        "training_phase_start_timestamp_seconds",
        "When the current phase began, by the run's own clock.",
        "start_timestamp_seconds",
        CORE,
    ),
)


class Mailbox:
    """Reports that wait for the collector. Any thread may put some in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: list[_Received] = []
        self._weight = 0

    def report(self, report: Report, owner: str, *, known: bool = True) -> bool:
        """Put a report in; False when it is full, because nobody has taken any out.

        `known`: the kernel has said whose it is; else the sender has.
        """
        weight = 1 + len(report.scalars) + len(report.nonfinite)
        with self._lock:
            if self._weight + weight > MAX_WAITING:
                return False
            self._weight += weight
            self._reports.append(_Received(report, owner, known))
        return True

    def take(self) -> list[_Received]:
        """Everything in it, in the order in which it came."""
        with self._lock:
            reports, self._reports, self._weight = self._reports, [], 0
        return reports


class _Received(NamedTuple):
    report: Report
    owner: str
    known: bool


class ReportedRuns:
    """What runs have reported. Belongs to the collector's thread."""

    def __init__(self, mailbox: Mailbox, settings: Settings, clock: Clock) -> None:
        self._mailbox = mailbox
        self._settings = settings
        self._clock = clock
        self._tags = Tags(settings)
        self._runs: dict[tuple[str, str], _Reported] = {}

    def take(self, followed: Mapping[str, RunState]) -> Iterator[Failure]:
        """Take in what has come; `followed`: the runs whose files are followed, by name."""
        self._join(followed)
        for reported in self._runs.values():
            reported.date_back(self._clock.wall_s())
        left_out = False
        for report, owner, known in self._mailbox.take():
            state = followed.get(report.run)
            if state is not None and state.owner != owner:
                state = None
            key = (report.run, owner)
            run = self._runs.get(key)
            if run is not None and run.followed and state is None:  # it was theirs until somebody's name came
                run = None
            if run is None and not self._make_room(owner, known=known):
                left_out = True
                continue
            run = self._runs[key] = run or _Reported(_new(report.run, owner))
            run.known = run.known or known
            run.take(report, self._tags, state)
        self._forget(followed)
        if left_out:
            limit = f"training.max_runs ({self._settings.max_runs}): further runs are left out"
            yield Failure("reports", "too_many", limit)

    def readings(self, followed: Mapping[str, RunState]) -> Iterator[Reading]:
        """What runs have reported; of those that are followed, what their files do not tell."""
        for run in self._runs.values():
            if followed.get(run.state.run) is not run.state:
                yield from run.state.readings()
            yield from run.readings()

    def _join(self, followed: Mapping[str, RunState]) -> None:
        """Have runs that were alone until their files, or the owner of these, were found go on as one."""
        for (name, owner), run in self._runs.items():
            state = followed.get(name)
            if state is not None and state.owner == owner:
                run.state, run.followed = state, True

    def _make_room(self, owner: str, *, known: bool) -> bool:
        """Whether there is room for one more run of an owner; one who has many gives up the most silent.

        So do all together who say themselves whose they are.
        """
        alone = {key: run for key, run in self._runs.items() if not run.followed}
        own = [key for key in alone if key[1] == owner]
        unknown = [] if known else [key for key, run in alone.items() if not run.known]
        if len(own) >= MAX_OF_OWNER:
            del self._runs[min(own, key=lambda key: alone[key].last_s)]
        elif len(unknown) >= min(MAX_UNKNOWN, max(1, self._settings.max_runs // 4)):
            del self._runs[min(unknown, key=lambda key: alone[key].last_s)]
        return len(self._runs) < self._settings.max_runs

    def _forget(self, followed: Mapping[str, RunState]) -> None:
        now_s = self._clock.wall_s()
        for key, run in list(self._runs.items()):
            silent = now_s - run.last_s > self._settings.live_seconds
            theirs = followed.get(run.state.run) is run.state and run.state.owner == key[1]
            let_go = run.followed and not theirs
            if silent or let_go:
                del self._runs[key]


class _Reported:
    """What one run has reported, beyond what its state holds."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.followed = False
        self.known = False  # the kernel has said whose it is
        self.last_s = -math.inf
        self._phase = ""
        self._phase_began_s = -math.inf
        self._flops_per_token: float | None = None
        self._gpus: float | None = None
        self._precision = ""

    def date_back(self, now_s: float) -> None:
        """As a run's state does it."""
        self.state.date_back(now_s)
        if self._phase_began_s > now_s + AHEAD_S:
            self._phase_began_s = now_s

    def take(self, report: Report, tags: Tags, followed: RunState | None) -> None:
        """Take in a report; `followed`: the run, where its files are followed."""
        assert report.time_s is not None
        self.followed = followed is not None
        self.state = followed or self.state
        wall_s, state = report.time_s, self.state
        self.last_s = max(self.last_s, wall_s)
        state.framework = report.framework or state.framework
        state.seen(report.step, wall_s, counts_iterations=True)
        if report.tokens is not None:
            state.take("tokens_total", report.tokens, report.step, wall_s)
        for tag, times in report.nonfinite.items():
            self._scalar(tags, tag, math.nan, report, times)
        for tag, value in report.scalars.items():
            self._scalar(tags, tag, value, report)
        if report.phase is not None:
            self._enter(report.phase, wall_s if report.phase_time_s is None else report.phase_time_s)
        flops, gpus = report.flops_per_token, report.gpus
        self._flops_per_token = self._flops_per_token if flops is None else flops
        self._gpus = self._gpus if gpus is None else gpus
        self._precision = report.precision or self._precision

    def readings(self) -> Iterator[Reading]:
        """Phase and model."""
        run, job_id = self.state.run, self.state.owner
        if self._phase:
            for phase in PHASES:
                yield TrainingPhase(run, job_id, phase, float(phase == self._phase))
            yield TrainingPhaseStart(run, job_id, self._phase_began_s)
        if self._flops_per_token is not None or self._gpus is not None or self._precision:
            yield TrainingModel(run, job_id, self._flops_per_token, self._precision, self._gpus)

    def _scalar(self, tags: Tags, tag: str, value: float, report: Report, times: int = 1) -> None:
        assert report.time_s is not None
        meaning = tags.meaning(tag)
        state, step, wall_s = self.state, report.step, report.time_s
        if meaning is not None:
            if meaning.inverse:
                value = 1.0 / value if value else math.inf
            for _ in range(times if meaning.quantity in NONFINITE else 1):
                state.take(meaning.quantity, value, step, wall_s)
        if tags.exported(tag):
            state.take_scalar(tag, value, step, wall_s)

    def _enter(self, phase: str, began_s: float) -> None:
        """Enter a phase; one that began before the current one is news of the past."""
        if phase == self._phase or began_s < self._phase_began_s:
            return
        if self._phase == "checkpoint":  # it ends, so that the checkpoint is there
            self.state.last_checkpoint_s = max(began_s, self.state.last_checkpoint_s or began_s)
        self._phase, self._phase_began_s = phase, began_s


def _new(run: str, owner: str) -> RunState:
    state = RunState(run)
    state.owner = owner
    return state
