"""Joules and seconds of use of each GPU: counters that begin with the agent and never fall.

The driver host states sums that start again with each host, and the driver's own energy counter, which starts
with the driver. Here their increments are added up: a new host, a reloaded driver, a counter that steps back
or a gap adds nothing that was not measured.

While the driver refuses its counter, power over time stands in for it, as a total of its own method beside
the counter's: the two add up. What the counter has seen beyond that is added when it is back. While neither
is to be had there is no total: one that stands still would say that the GPU draws nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from clusterwatt.clock import STALE_INTERVALS
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.gpu import GpuIntegrals, GpuPowerLimit
from clusterwatt.readings.gpu_measured import GpuBusy, GpuEnergy

READINGS_TO_CHOOSE = 3  # a counter that fails once at the start is not yet a card without one
POWER_TOLERANCE = 1.2  # above the limit for moments; more than this over an interval is not energy


class Total:
    """Adds up a sum that another process keeps and may begin anew; `since_s` tells its beginnings apart."""

    def __init__(self) -> None:
        self.value: float | None = None
        self._since_s = 0.0
        self._last = 0.0

    def add(self, value: float | None, since_s: float) -> None:
        """Take the sum as it stands now; None is no sample."""
        if value is None:
            return
        base = self._last if since_s == self._since_s else 0.0
        self.value = (self.value or 0.0) + max(0.0, value - base)
        self._since_s, self._last = since_s, value


class CounterTotal:
    """Adds up the driver's energy counter. The first reading is a baseline, not energy."""

    def __init__(self) -> None:
        self.joules = 0.0
        self._last: tuple[float, float] | None = None  # joules, time

    def add(
        self, joules: float, read_s: float, limit_watts: float | None, known_joules: float = 0.0
    ) -> str | None:
        """Take a reading; returns the reason when its difference to the last was not energy.

        `known_joules`: what is counted elsewhere of what was used since the last reading.
        """
        last, self._last = self._last, (joules, read_s)
        if last is None:
            return None
        delta, seconds = joules - last[0], read_s - last[1]
        if delta < 0:
            return "counter_backwards"
        if limit_watts is not None and delta > limit_watts * POWER_TOLERANCE * max(seconds, 1.0):
            return "counter_jump"
        self.joules += max(0.0, delta - known_joules)
        return None


class StandIn:
    """Power over time in place of the driver's counter, from when that has been refused for a while."""

    def __init__(self) -> None:
        self.joules: float | None = None  # None: it was never needed
        self.since_counter = 0.0  # of these, since the last reading that had the counter
        self._waiting = 0.0  # of readings that the counter may still make up for

    def add(self, joules: float, refused: int) -> None:
        """Take what power over time adds at the `refused`th reading without the counter."""
        self._waiting += joules
        if self.joules is None and self._waiting > 0 and refused >= STALE_INTERVALS:
            self.joules = 0.0  # on the page before it moves, else nobody sees the first rise
        elif self.joules is not None and refused > STALE_INTERVALS:
            self.joules += self._waiting
            self.since_counter += self._waiting
            self._waiting = 0.0

    def end(self) -> float:
        """The counter is back; returns what was counted in its place."""
        counted, self.since_counter, self._waiting = self.since_counter, 0.0, 0.0
        return counted


class GpuAccount:
    """What one GPU has used since the agent started."""

    def __init__(self) -> None:
        self.busy = Total()
        self.memory_busy = Total()
        self.integral = Total()
        self.counter = CounterTotal()
        self.stand_in = StandIn()
        self.method: str | None = None
        self.refused = 0  # readings without the driver's counter since the last that had it
        self.powerless = 0  # readings at which power added nothing since the last at which it did
        self._seen = 0

    def choose(self, integrals: GpuIntegrals) -> None:
        """Choose the method of energy once: the driver's counter where there is one."""
        if self.method is not None:
            return
        self._seen += 1
        if integrals.energy_counter_joules is not None:
            self.method = "counter"
        elif integrals.power_integral_joules is not None and self._seen >= READINGS_TO_CHOOSE:
            self.method = "integrated"


class GpuMeter:
    """Turns the driver host's integrals into the agent's counters, by UUID."""

    def __init__(self) -> None:
        self._accounts: defaultdict[str, GpuAccount] = defaultdict(GpuAccount)
        self._newest: dict[str, GpuIntegrals] = {}

    def measure(
        self, integrals: Iterable[GpuIntegrals], limits: Iterable[GpuPowerLimit]
    ) -> Iterator[Reading]:
        """Take what the host says now, yield the counters; a `Failure` for each difference refused."""
        most_watts = {limit.uuid: limit.limit_watts for limit in limits if limit.limit in ("max", "enforced")}
        for now in integrals:
            account = self._accounts[now.uuid]
            if self._newest.get(now.uuid) != now:
                self._newest[now.uuid] = now
                refused = self._take(account, now, most_watts.get(now.uuid))
                if refused:
                    yield Failure(item=now.uuid, reason=refused, detail="the driver's energy counter")
            yield from self._counters(account, now)

    def _take(self, account: GpuAccount, now: GpuIntegrals, limit_watts: float | None) -> str | None:
        account.choose(now)
        account.busy.add(now.busy_seconds, now.since_s)
        account.memory_busy.add(now.memory_busy_seconds, now.since_s)
        before = account.integral.value or 0.0
        account.integral.add(now.power_integral_joules, now.since_s)
        drawn = (account.integral.value or 0.0) - before
        account.powerless = 0 if drawn > 0 else account.powerless + 1  # every board draws something
        if now.energy_counter_joules is None:
            account.refused += 1
            if account.method == "counter" and now.energy_counter_scope == "gpu":
                account.stand_in.add(drawn, account.refused)
            return None
        account.refused = 0
        known_joules = account.stand_in.end()
        return account.counter.add(now.energy_counter_joules, now.read_s, limit_watts, known_joules)

    def _counters(self, account: GpuAccount, now: GpuIntegrals) -> Iterator[Reading]:
        busy = None if now.busy_seconds is None else account.busy.value
        memory_busy = None if now.memory_busy_seconds is None else account.memory_busy.value
        if busy is not None or memory_busy is not None:
            yield GpuBusy(gpu=now.gpu, uuid=now.uuid, busy_seconds=busy, memory_busy_seconds=memory_busy)
        if account.method is None:
            return
        yield from self._energies(account, now)

    def _energies(self, account: GpuAccount, now: GpuIntegrals) -> Iterator[GpuEnergy]:
        def energy(scope: str, method: str, joules: float) -> GpuEnergy:
            return GpuEnergy(gpu=now.gpu, uuid=now.uuid, scope=scope, method=method, energy_joules=joules)

        answers, powered = account.refused < STALE_INTERVALS, account.powerless < STALE_INTERVALS
        if account.method == "counter" and now.energy_counter_scope == "gpu":
            if answers or powered:
                yield energy("gpu", "counter", account.counter.joules)
                if account.stand_in.joules is not None:
                    yield energy("gpu", "integrated", account.stand_in.joules)
            return
        # On a superchip the counter covers the whole module; what the GPU alone used is integrated.
        if account.method == "counter" and answers:
            yield energy(now.energy_counter_scope, "counter", account.counter.joules)
        if account.integral.value is not None and powered:
            yield energy("gpu", "integrated", account.integral.value)
