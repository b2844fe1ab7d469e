"""What the books know of a board in one tick, and what they make of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from clusterwatt.attribution.devices import Board, Unit
from clusterwatt.attribution.entries import NOBODY, Amounts, Held
from clusterwatt.attribution.idle import ACTIVE, FREE
from clusterwatt.attribution.split import Portion, kept, split
from clusterwatt.readings.gpu import GpuIntegrals
from clusterwatt.readings.gpu_measured import GpuEnergy

COUNTER, ESTIMATED = "counter", "estimated"


class Seen(msgspec.Struct, frozen=True):
    """A board and its units in one tick. `activity`, `tensor`: counters of the meters, by UUID.

    `energies`: totals of the board, one for each method; they add up.
    `settled`: every source of allocation was heard, so that what is not in `held` is free.
    """

    board: Board
    integrals: GpuIntegrals | None
    energies: tuple[GpuEnergy, ...]
    limit_watts: float | None
    held: Mapping[str, tuple[Held, ...]]
    weights: Mapping[str, Mapping[str, float]]
    activity: Mapping[str, float]
    tensor: Mapping[str, float]
    now_s: float
    wall_s: float
    every_s: float
    settled: bool


class Booking(msgspec.Struct, frozen=True):
    """Amounts of one device that fall to a job, or to nobody. `live`: measured since the agent started."""

    job_id: str
    account: str
    device: str
    state: str
    method: str
    amounts: Amounts
    live: bool = True


def state_of(portion: Portion, held: str) -> str:
    """The state of a portion of a device whose holders are in the state `held`."""
    return FREE if portion.job_id == NOBODY else held


def method_of(method: str, portion: Portion, part: float) -> str:
    """How the joules of a portion are known: as those of the board for a whole one, else estimated."""
    return method if portion.energy * part == 1.0 else ESTIMATED


def uncovered(board_uuid: str, units: Sequence[Unit]) -> float:
    """The part of a board that its units leave: slices that are in no instance."""
    if units[0].uuid == board_uuid:
        return 0.0
    rest = 1.0 - sum(unit.part for unit in units)
    return rest if rest > 1e-9 else 0.0  # seven sevenths are one


def across_gap(
    seen: Seen,
    then: Sequence[tuple[Unit, Sequence[Held]]],
    joules: float,
    *,
    method: str,
    live: bool,
) -> Iterator[Booking]:
    """Joules that a counter saw while nobody measured: to who held the same share at both ends."""
    for unit, held in then:
        same_unit = any(now.uuid == unit.uuid and now.part == unit.part for now in seen.board.units)
        both = kept(held, seen.held.get(unit.uuid, ())) if same_unit else ()
        for portion in split(both, {}):
            yield Booking(
                job_id=portion.job_id,
                account=portion.account,
                device=unit.uuid,
                state=state_of(portion, ACTIVE),
                method=method_of(method, portion, unit.part),
                amounts=Amounts(joules=joules * unit.part * portion.energy),
                live=live,
            )
    rest = uncovered(seen.board.uuid, [unit for unit, _ in then])
    if rest > 0:
        amounts = Amounts(joules=joules * rest)
        yield Booking(NOBODY, "", seen.board.uuid, FREE, ESTIMATED, amounts, live)


def unobserved(
    seen: Seen, then: Sequence[tuple[Unit, Sequence[Held]]], seconds: float, *, live: bool
) -> Iterator[Booking]:
    """Seconds in which jobs held a device, at both ends of the gap, and nobody measured it."""
    if seconds <= 0:
        return
    for unit, held in then:
        for each in kept(held, seen.held.get(unit.uuid, ())):
            amounts = Amounts(unobserved_seconds=seconds * unit.part * each.share)
            yield Booking(each.job_id, each.account, unit.uuid, ACTIVE, "", amounts, live)
