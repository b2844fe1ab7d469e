"""Joules and seconds of use of each GPU: counters that begin with the agent and never fall.

The driver host states sums that start again with each host, and the driver's own energy counter, which starts
with the driver. Here their increments are added up: a new host, a reloaded driver, a counter that steps back
or a gap adds nothing that was not measured. While the driver's counter is refused there is no total: one that
stands still would say that the GPU draws nothing. What it counted meanwhile is added when it is back.
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

    def add(self, joules: float, read_s: float, limit_watts: float | None) -> str | None:
        """Take a reading; returns the reason when its difference to the last was not energy."""
        last, self._last = self._last, (joules, read_s)
        if last is None:
            return None
        delta, seconds = joules - last[0], read_s - last[1]
        if delta < 0:
            return "counter_backwards"
        if limit_watts is not None and delta > limit_watts * POWER_TOLERANCE * max(seconds, 1.0):
            return "counter_jump"
        self.joules += delta
        return None


class GpuAccount:
    """What one GPU has used since the agent started."""

    def __init__(self) -> None:
        self.busy = Total()
        self.memory_busy = Total()
        self.integral = Total()
        self.counter = CounterTotal()
        self.method: str | None = None
        self.refused = 0  # readings without the driver's counter since the last that had it
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
        account.integral.add(now.power_integral_joules, now.since_s)
        if now.energy_counter_joules is None:
            account.refused += 1
            return None
        account.refused = 0
        return account.counter.add(now.energy_counter_joules, now.read_s, limit_watts)

    def _counters(self, account: GpuAccount, now: GpuIntegrals) -> Iterator[Reading]:
        busy = None if now.busy_seconds is None else account.busy.value
        memory_busy = None if now.memory_busy_seconds is None else account.memory_busy.value
        if busy is not None or memory_busy is not None:
            yield GpuBusy(gpu=now.gpu, uuid=now.uuid, busy_seconds=busy, memory_busy_seconds=memory_busy)
        if account.method is None:
            return
        counter, integral = account.counter.joules, account.integral.value
        # On a superchip the counter covers the whole module; what the GPU alone used is integrated.
        scope = now.energy_counter_scope
        if account.method == "counter" and account.refused < STALE_INTERVALS:
            yield GpuEnergy(gpu=now.gpu, uuid=now.uuid, scope=scope, method="counter", energy_joules=counter)
        if integral is not None and (account.method == "integrated" or scope != "gpu"):
            yield GpuEnergy(
                gpu=now.gpu, uuid=now.uuid, scope="gpu", method="integrated", energy_joules=integral
            )
