"""Takes in the reports of training processes: whose they are, how many a client may send, what is in them.

It knows neither HTTP nor /proc: it is told who sends, and answers with the status that HTTP has for it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.training.report import FaultyReportError, Report, parse
from clusterwatt.training.state import AHEAD_S

PER_SECOND = 20.0  # reports of one client; ours sends one a second, and one at each change of phase
BURST = 100.0
MAX_CLIENTS = 1_024


class Sender(msgspec.Struct, frozen=True):
    """Who sends. `client`: tells clients apart, for their rate.

    `known`: the kernel has said whose the process is, so that its own word does not count. `owner` is that
    then, a job's id or the name of a `JobMember`, empty for no job; `job_id` its job as far as it is known.
    """

    client: str
    known: bool = False
    owner: str = ""
    job_id: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of a report: a status of HTTP, and a line for each fault."""

    status: int
    faults: tuple[str, ...] = ()


class Runs(Protocol):
    """What is known of all runs; this end of it is called in the event loop and returns at once."""

    def report(self, report: Report, owner: str, *, known: bool) -> bool:
        """Take in a report with a time; False when there is no room for it now. `known`: as of the sender."""
        ...


class Intake:
    """Checks reports and hands them to the runs. Belongs to the event loop."""

    def __init__(self, runs: Runs, clock: Clock) -> None:
        self._runs = runs
        self._clock = clock
        self._rates = _Rates(clock)

    def take(self, body: bytes, sender: Sender) -> Verdict:
        """Take in one report, or say why not."""
        if not self._rates.allow(sender.client):
            return Verdict(429, (f"more than {PER_SECOND:g} reports a second; gather them into fewer",))
        try:
            report = parse(body)
        except FaultyReportError as error:
            return Verdict(400, tuple(error.faults))
        now_s = self._clock.wall_s()
        for name, time_s in (("time", report.time_s), ("phase_time", report.phase_time_s)):
            if time_s is not None and time_s > now_s + AHEAD_S:
                ahead = f"{time_s - now_s:.0f} s ahead of the agent's clock"
                line = f"{name}: expected Unix time in seconds, got {ahead}"
                return Verdict(400, (line,))
        if sender.known and report.job and report.job not in (sender.owner, sender.job_id):
            seen = sender.job_id or sender.owner or "no job"
            return Verdict(
                403, (f"job: the process belongs to {seen}, so it cannot report for {report.job}",)
            )
        time_s = now_s if report.time_s is None else report.time_s
        report = msgspec.structs.replace(report, time_s=time_s)
        owner = sender.owner if sender.known else report.job
        if not self._runs.report(report, owner, known=sender.known):
            return Verdict(503, ("there is no room for more reports now; try again",))
        return Verdict(204)


class _Rates:
    """How many reports each client may send now: a bucket each, which fills up steadily."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, client: str) -> bool:
        """Whether the client may send one more, which is then counted."""
        now_s = self._clock.monotonic_s()
        left, seen_s = self._left.pop(client, (BURST, now_s))
        left = min(BURST, left + (now_s - seen_s) * PER_SECOND)
        allowed = left >= 1.0
        self._left[client] = (left - 1.0 if allowed else left, now_s)
        if len(self._left) > MAX_CLIENTS:
            self._left.popitem(last=False)
        return allowed
