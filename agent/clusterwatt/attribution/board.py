"""Where the books of one GPU stand, and what an interval between two of its readings adds to them.

An interval goes to who held the device when it began; what a source tells during it counts from the next one
on. Its seconds, joules and money go the same way. Across a gap (readings further apart than three intervals)
joules go to who held the device at both ends with the same share, else to nobody; its seconds are observed by
nobody. So a job is never charged for what it is not known to have held. While only the energy is not measured
seconds are booked as ever; its joules, once the counter tells them, are those of a gap. So is what the
counter has seen beyond power over time, which stood in for it (`meters.energy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from clusterwatt.attribution.booking import (
    COUNTER,
    ESTIMATED,
    Booking,
    Seen,
    across_gap,
    method_of,
    state_of,
    uncovered,
    unobserved,
)
from clusterwatt.attribution.devices import Unit
from clusterwatt.attribution.entries import NOBODY, Amounts, Baseline, Held
from clusterwatt.attribution.idle import FREE, IdleRule, IdleWatch
from clusterwatt.attribution.recovery import Recovery
from clusterwatt.attribution.split import split
from clusterwatt.clock import GAP_INTERVALS
from clusterwatt.readings.gpu import GpuIntegrals


class Mark(msgspec.Struct, frozen=True):
    """How a unit stood at the reading up to which its board is booked.

    `held`: None when no source had been heard yet.
    """

    unit: Unit
    held: tuple[Held, ...] | None
    activity_s: float | None
    tensor_s: float | None


class BoardBook:
    """One board. `earlier`: where the last agent's books ended, by UUID of the board and its units."""

    def __init__(self, earlier: Mapping[str, Baseline]) -> None:
        self.measured_joules = 0.0  # what the newest `take` booked, straight from the totals
        self.silent = True
        self.has_energy = False
        self._recovery = Recovery(earlier)
        self._read_s: float | None = None  # booked up to this reading
        self._read_wall_s = 0.0
        self._seen_s = 0.0  # the newest reading
        self._gap = False  # a reading since `_read_s` came too late
        self._counted_s = 0.0  # unobserved seconds are booked up to here
        self._joules: dict[str, float] = {}  # of the board's totals by method, booked so far
        self._method = ""  # by which the newest joules were measured
        # Who held it when the counter went missing.
        self._uncounted: list[tuple[Unit, Sequence[Held]]] | None = None
        self._counter_joules: float | None = None  # the driver's own, at the newest reading that had it
        self._marks: tuple[Mark, ...] = ()
        self._uuid = ""
        self._watches: dict[str, IdleWatch] = {}

    def take(self, seen: Seen, rule: IdleRule) -> list[Booking]:
        """What is booked now; nothing while there is no new reading, or who holds what is not known yet."""
        self.measured_joules = 0.0
        integrals = seen.integrals
        if integrals is None or (self._read_s is not None and integrals.read_s <= self._seen_s):
            return self._while_silent(seen)
        late = integrals.read_s - self._seen_s > GAP_INTERVALS * seen.every_s
        self._seen_s, self.silent = integrals.read_s, False
        self._recovery.note(seen)
        if integrals.energy_counter_scope == "gpu" and integrals.energy_counter_joules is not None:
            self._counter_joules = integrals.energy_counter_joules
        bookings: list[Booking] = []
        if seen.settled:
            bookings += self._recovery.take(seen)
            self.measured_joules = self._recovery.measured_joules
        if self._read_s is None:
            self._mark(seen, integrals)
            return bookings
        self._gap |= late
        if not seen.settled:
            return []
        caught_up, joules = self._increment(seen, integrals)
        bookings += caught_up
        if self._gap:
            bookings += self._across_gap(seen, integrals.read_s, joules)
        else:
            for mark in self._marks:
                bookings += self._interval(seen, mark, integrals.read_s - self._read_s, joules, rule)
            bookings += self._free_slices(seen, integrals.read_s - self._read_s, joules)
        self._mark(seen, integrals)
        return bookings

    def baselines(self, signals: Mapping[str, str]) -> Iterator[tuple[str, Baseline]]:
        """Where the books stand, of the board and its units; nothing before they stand on their own."""
        marks = {mark.unit.uuid: mark.held for mark in self._marks}
        if not self._recovery.over or not marks or None in marks.values():
            return
        for uuid in {self._uuid, *marks}:
            yield (
                uuid,
                Baseline(
                    counter_joules=self._counter_joules if uuid == self._uuid else None,
                    read_wall_s=self._read_wall_s,
                    signal=signals.get(uuid, ""),
                    held=marks.get(uuid) or (),
                ),
            )

    def _while_silent(self, seen: Seen) -> list[Booking]:
        self.silent = self._read_s is None or seen.now_s - self._seen_s > GAP_INTERVALS * seen.every_s
        if not self.silent or self._read_s is None:
            return []
        self._gap = True
        return list(self._unobserved(seen, seen.now_s))

    def _increment(self, seen: Seen, integrals: GpuIntegrals) -> tuple[Iterable[Booking], float | None]:
        """Joules since the mark, None where they are not measured; before them what a gap held.

        A counter that is back tells of all the time in which it was not to be had, up to now.
        """
        if not seen.energies:
            if self.has_energy and self._uncounted is None:
                self._uncounted = self._then()
            self.has_energy = False
            return (), None
        self.has_energy = True
        grown = {}
        for energy in seen.energies:
            booked = self._joules.get(energy.method, 0.0)
            grown[energy.method] = max(0.0, energy.energy_joules - booked)
            self._joules[energy.method] = max(booked, energy.energy_joules)
        joules, most = sum(grown.values()), max(grown, key=grown.__getitem__)
        self.measured_joules += joules
        if grown[most] > 0 or self._method not in grown:
            self._method = most
        is_back = integrals.energy_counter_joules is not None
        if COUNTER in grown and self._method != COUNTER:  # power over time stands in for it
            self._uncounted = self._then() if self._uncounted is None else self._uncounted
            if not is_back and self._counter_joules is not None:
                self._counter_joules += joules  # a later agent is not to book them again
        if self._uncounted is None or not (is_back or COUNTER not in grown):
            return (), joules
        then, self._uncounted = self._uncounted, None
        return across_gap(seen, then, joules, method=self._method, live=True) if joules else (), None

    def _interval(
        self, seen: Seen, mark: Mark, seconds: float, joules: float | None, rule: IdleRule
    ) -> Iterator[Booking]:
        """What one unit adds to the books."""
        uuid, part = mark.unit.uuid, mark.unit.part
        held = seen.held.get(uuid, ()) if mark.held is None else mark.held
        activity_s = _since(mark.activity_s, seen.activity.get(uuid))
        tensor_s = _since(mark.tensor_s, seen.tensor.get(uuid))
        state = self._state(uuid, held, seen, known=activity_s is not None, rule=rule)
        for portion in split(held, seen.weights.get(uuid, {})):
            share = part * portion.share
            yield Booking(
                job_id=portion.job_id,
                account=portion.account,
                device=uuid,
                state=state_of(portion, state),
                method="" if joules is None else method_of(self._method, portion, part),
                amounts=Amounts(
                    gpu_seconds=seconds * share,
                    observed_seconds=0.0 if activity_s is None else seconds * share,
                    activity_seconds=(activity_s or 0.0) * share,
                    tensor_observed_seconds=0.0 if tensor_s is None else seconds * share,
                    tensor_seconds=(tensor_s or 0.0) * share,
                    joules=None if joules is None else joules * part * portion.energy,
                ),
            )

    def _free_slices(self, seen: Seen, seconds: float, joules: float | None) -> Iterator[Booking]:
        """Slices of a board in MIG mode that are in no instance."""
        rest = uncovered(self._uuid, [mark.unit for mark in self._marks])
        if rest > 0:
            amounts = Amounts(gpu_seconds=seconds * rest, joules=None if joules is None else joules * rest)
            yield Booking(NOBODY, "", self._uuid, FREE, "" if joules is None else ESTIMATED, amounts)

    def _state(self, uuid: str, held: Sequence[Held], seen: Seen, *, known: bool, rule: IdleRule) -> str:
        if not held:
            self._watches.pop(uuid, None)
            return FREE
        watch = self._watches.setdefault(uuid, IdleWatch())
        activity_s = seen.activity.get(uuid) if known else None
        return watch.state(self._seen_s, activity_s, frozenset(each.job_id for each in held), rule)

    def _across_gap(self, seen: Seen, read_s: float, joules: float | None) -> Iterator[Booking]:
        self._watches.clear()
        yield from self._unobserved(seen, read_s)
        if joules:
            yield from across_gap(seen, self._then(), joules, method=self._method, live=True)

    def _unobserved(self, seen: Seen, until_s: float) -> Iterator[Booking]:
        seconds = until_s - self._counted_s
        self._counted_s = max(self._counted_s, until_s)
        return unobserved(seen, self._then(), seconds, live=True)

    def _then(self) -> list[tuple[Unit, Sequence[Held]]]:
        return [(mark.unit, mark.held or ()) for mark in self._marks]

    def _mark(self, seen: Seen, integrals: GpuIntegrals) -> None:
        self._uuid = seen.board.uuid
        self._read_s = self._counted_s = integrals.read_s
        self._read_wall_s = seen.wall_s - (seen.now_s - integrals.read_s)
        self._gap = False
        units = {unit.uuid for unit in seen.board.units}
        self._watches = {uuid: watch for uuid, watch in self._watches.items() if uuid in units}
        self._marks = tuple(
            Mark(
                unit=unit,
                held=seen.held.get(unit.uuid, ()) if seen.settled else None,
                activity_s=seen.activity.get(unit.uuid),
                tensor_s=seen.tensor.get(unit.uuid),
            )
            for unit in seen.board.units
        )


def _since(then: float | None, now: float | None) -> float | None:
    """How far a counter has moved; None where it was not there at both ends, or began anew."""
    return None if then is None or now is None or now < then else now - then
