"""What the GPUs of a lane have in common: integrals of its signals, and sums by state, job and account.

All GPUs of a job do the same, but for the one that holds up the others, and differ by a factor in their
power. So everything is summed up once for each lane, and a GPU costs a multiplication.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from clusterwatt.fleet.history.spells import Stretch
from clusterwatt.fleet.node import PUE
from clusterwatt.simulate.cluster import JobRun
from clusterwatt.simulate.work import Signal, Signals, mean

HEAT_S = 45.0
JOULES_PER_KWH = 3.6e6
SIGNALS = ("busy", "sm", "power", "capped", "hot")


class Sums(NamedTuple):
    """Of one GPU so far. `work`: seconds of full power; `priced_*`: times the price of a joule."""

    seconds: float = 0.0
    work: float = 0.0
    activity: float = 0.0
    priced_seconds: float = 0.0
    priced_work: float = 0.0

    def plus(self, seconds: float, work: float, activity: float, price: float) -> Sums:
        """With a stretch of time at a price, for a kWh, added."""
        of_joule = price * PUE / JOULES_PER_KWH
        return Sums(
            self.seconds + seconds,
            self.work + work,
            self.activity + activity,
            self.priced_seconds + of_joule * seconds,
            self.priced_work + of_joule * work,
        )


NOTHING_YET = Sums()
Key = tuple[JobRun | None, str]


class Voice:
    """One kind of GPU of a lane, from `from_s` on. Times are asked for in order, block after block."""

    def __init__(self, signals: Signals, stretches: Sequence[Stretch], from_s: float) -> None:
        self.signals = signals
        self.stretches = stretches
        self._from_s = from_s
        self._place = 0
        self._at_s = from_s
        self._sums: defaultdict[Key, Sums] = defaultdict(Sums)
        self.times: Sequence[float] = ()
        self.effort: list[float] = []
        self.heat: list[float] = []
        self.integrals: dict[str, list[float]] = {}
        self.by_state: dict[str, list[Sums]] = {}
        self.by_job: dict[tuple[JobRun, str], list[Sums]] = {}

    def sing(self, times: Sequence[float], states: Sequence[str], keep_s: float) -> None:
        """Work out the values of these times. `keep_s`: sums of jobs are kept for so long after their end."""
        self.times = times
        self.integrals = {name: self._since(self.signals.of(name), times) for name in SIGNALS}
        warmth = [self.warmth(time_s) for time_s in times]
        self.effort, self.heat = [effort for effort, _ in warmth], [heat for _, heat in warmth]
        self.by_state = {state: [] for state in states}
        self.by_job = {}
        for index, time_s in enumerate(times):
            self._go_on(time_s)
            for state, column in self.by_state.items():
                column.append(_all(sums for key, sums in self._sums.items() if key[1] == state))
            for (job, state), sums in self._sums.items():
                if job is not None:
                    self.by_job.setdefault((job, state), [NOTHING_YET] * index).append(sums)
        self._forget(times[-1] - keep_s)

    def warmth(self, time_s: float) -> tuple[float, float]:
        """Mean power and mean heat protection of the time that temperatures follow."""
        from_s = time_s - HEAT_S
        return mean(self.signals.drawn, from_s, time_s), mean(self.signals.hot, from_s, time_s)

    def rest(self) -> None:
        """Give back the memory of the values."""
        self.times, self.effort, self.heat = (), [], []
        self.integrals, self.by_state, self.by_job = {}, {}, {}

    def _since(self, signal: Signal, times: Sequence[float]) -> list[float]:
        zero = signal.integral(self._from_s)
        return [signal.integral(time_s) - zero for time_s in times]

    def _go_on(self, until_s: float) -> None:
        drawn, sm = self.signals.drawn, self.signals.sm
        while self._at_s < until_s and self._place < len(self.stretches):
            stretch = self.stretches[self._place]
            from_s, to_s = self._at_s, min(until_s, stretch.until_s)
            if to_s > from_s:
                key = (stretch.job, stretch.state)
                self._sums[key] = self._sums[key].plus(
                    to_s - from_s,
                    drawn.integral(to_s) - drawn.integral(from_s),
                    sm.integral(to_s) - sm.integral(from_s),
                    stretch.price,
                )
            self._at_s = to_s
            if to_s >= stretch.until_s:
                self._place += 1

    def _forget(self, before_s: float) -> None:
        """Sums of jobs that are long over go on as sums of nobody's past, by state."""
        for key in [key for key in self._sums if key[0] is not None and key[0].end_s < before_s]:
            job, state = key
            assert job is not None  # as the line above
            gone = self._sums.pop(key)
            past = (None, state)
            self._sums[past] = _all((self._sums[past], gone))


def _all(parts: Iterator[Sums] | Sequence[Sums]) -> Sums:
    columns = tuple(zip(*parts, strict=True))
    return Sums(*(sum(column) for column in columns)) if columns else NOTHING_YET
