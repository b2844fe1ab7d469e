"""The time between the last agent's books and this one's: what the driver's counter saw of it.

The counter ran on if the machine did and the driver was not loaded anew. What it cannot have counted, by the
board's power limit, is dropped: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterwatt.attribution.booking import COUNTER, Booking, Seen, across_gap, unobserved
from clusterwatt.attribution.entries import Baseline

MOST_WATTS = 2_000.0  # of a board whose limit is not known
POWER_TOLERANCE = 1.2  # above the limit for moments
WAIT_S = 60.0  # for the counter of a board that had one


class Recovery:
    """One board's. `baselines`: where the last agent's books ended, by UUID of the board and its units."""

    def __init__(self, baselines: Mapping[str, Baseline]) -> None:
        self.measured_joules = 0.0
        self._baselines = baselines
        self._first: tuple[float, float] | None = None  # when the board was first seen: both clocks
        # Where the counter stood when the meters began to count it, and the Unix time of its first reading.
        self._counter: tuple[float, float] | None = None

    @property
    def over(self) -> bool:
        """Whether what there was is booked."""
        return not self._baselines

    def note(self, seen: Seen) -> None:
        """Take a reading of the board.

        What the meters have counted so far is booked with the first interval: they began before the books
        where the ledger has opened late.
        """
        self._first = self._first or (seen.now_s, seen.wall_s)
        integrals = seen.integrals
        if integrals is None or integrals.energy_counter_scope != "gpu" or self._counter is not None:
            return
        if integrals.energy_counter_joules is not None:
            metered = sum(energy.energy_joules for energy in seen.energies)
            self._counter = (integrals.energy_counter_joules - metered, seen.wall_s)

    def take(self, seen: Seen) -> Iterator[Booking]:
        """Book what there is, once."""
        self.measured_joules = 0.0
        if not self._baselines or self._first is None:
            return
        baseline = self._baselines.get(seen.board.uuid)
        wants_counter = baseline is not None and baseline.counter_joules is not None
        if wants_counter and self._counter is None and seen.now_s - self._first[0] < WAIT_S:
            return
        then = [
            (unit, self._baselines[unit.uuid].held if unit.uuid in self._baselines else ())
            for unit in seen.board.units
        ]
        joules = self._counted(seen, baseline)
        if joules:
            self.measured_joules = joules
            yield from across_gap(seen, then, joules, method=COUNTER, live=False)
        for unit, held in then:
            if held:
                seconds = self._first[1] - self._baselines[unit.uuid].read_wall_s
                yield from unobserved(seen, [(unit, held)], seconds, live=False)
        self._baselines = {}

    def _counted(self, seen: Seen, baseline: Baseline | None) -> float:
        if baseline is None or baseline.counter_joules is None or self._counter is None:
            return 0.0
        joules, seconds = self._counter[0] - baseline.counter_joules, self._counter[1] - baseline.read_wall_s
        most = (seen.limit_watts or MOST_WATTS) * POWER_TOLERANCE * max(seconds, 1.0)
        return joules if 0 <= joules <= most else 0.0
