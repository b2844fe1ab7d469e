"""The weeks of a simulated cluster's lanes: which jobs follow each other there, and what each does when.

A lane is a set of GPUs that always belong to the same job. Everything here follows from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone

import msgspec

from clusterwatt.simulate import acts
from clusterwatt.simulate.acts import Act
from clusterwatt.simulate.timetable import WEEK_S
from clusterwatt.simulate.work import EPOCH_S

HOUR_S, MINUTE_S = 3_600.0, 60.0


class Spell(msgspec.Struct, frozen=True):
    """An act, and the seconds of the week from which it lasts."""

    start_s: float
    act: Act


class Shift(msgspec.Struct, frozen=True):
    """One job of a lane: seconds of the week, and its spells, the first at its start."""

    start_s: float
    end_s: float
    spells: tuple[Spell, ...]


Course = Callable[[random.Random, float, float], Iterator[Spell]]


def pretraining(chance: random.Random, start_s: float, end_s: float) -> Iterator[Spell]:
    """A long run: warm-up, then training with checkpoints, evaluations, and data that comes late at times."""
    yield from _training(chance, start_s, end_s, acts.TRAIN)


def hanging(chance: random.Random, start_s: float, end_s: float) -> Iterator[Spell]:
    """A run whose ranks wait for each other for the last 40 minutes, until somebody cancels it."""
    hang_s = end_s - 40 * MINUTE_S
    for spell in _training(chance, start_s, end_s, acts.TRAIN):
        if spell.start_s < hang_s:
            yield spell
    yield Spell(hang_s, acts.HANG)


def straggling(chance: random.Random, start_s: float, end_s: float) -> Iterator[Spell]:
    """A run in which one GPU becomes hot after a fifth of the time, and all others wait for it."""
    slow_s = start_s + 0.2 * (end_s - start_s)
    for spell in _training(chance, start_s, end_s, acts.TRAIN):
        slow = spell.start_s >= slow_s and spell.act is acts.TRAIN
        yield Spell(spell.start_s, acts.STRAGGLER) if slow else spell


def starving(chance: random.Random, start_s: float, end_s: float) -> Iterator[Spell]:
    """A run that waits for its data most of the time."""
    yield Spell(start_s, acts.STARTUP)
    yield Spell(start_s + 90.0, acts.STARVED)


def sweep(chance: random.Random, start_s: float, end_s: float) -> Iterator[Spell]:
    """A small run of a parameter sweep."""
    yield Spell(start_s, acts.STARTUP)
    yield Spell(start_s + 30.0, acts.SMALL)
    yield Spell(end_s - 60.0, acts.EVALUATION)


def smoke(chance: random.Random, start_s: float, end_s: float) -> Iterator[Spell]:
    """A test that lasts a minute."""
    yield Spell(start_s, acts.SMALL)


def idle_notebook(chance: random.Random, start_s: float, end_s: float) -> Iterator[Spell]:
    """A notebook whose user has gone."""
    yield Spell(start_s, acts.HELD)


def notebook(chance: random.Random, start_s: float, end_s: float) -> Iterator[Spell]:
    """A notebook in use: a cell now and then."""
    at_s = start_s
    while at_s < end_s:
        yield Spell(at_s, acts.HELD)
        at_s += chance.uniform(3, 40) * MINUTE_S
        if at_s < end_s:
            yield Spell(at_s, acts.INTERACTIVE)
        at_s += chance.uniform(1, 10) * MINUTE_S


def service(chance: random.Random, start_s: float, end_s: float) -> Iterator[Spell]:
    """Requests by day, few at night (UTC)."""
    levels = {step: acts.serving(step / 10) for step in range(1, 10)}
    at_s = start_s
    while at_s < end_s:
        hour = (EPOCH_S + at_s) % 86_400.0 / HOUR_S
        by_day = 0.75 if 8 <= hour < 20 else 0.35 if 6 <= hour < 22 else 0.15
        yield Spell(at_s, levels[max(1, min(9, round(10 * by_day + chance.uniform(-1.5, 1.5))))])
        at_s += 10 * MINUTE_S


def _training(chance: random.Random, start_s: float, end_s: float, train: Act) -> Iterator[Spell]:
    at_s = start_s
    yield Spell(at_s, acts.STARTUP)
    at_s += chance.uniform(60.0, 150.0)
    yield Spell(at_s, acts.WARMUP)
    at_s += 12 * MINUTE_S
    checkpoints = 0
    while at_s < end_s:
        yield Spell(at_s, train)
        at_s += chance.uniform(9, 12) * MINUTE_S
        if chance.random() < 0.12 and at_s < end_s:
            yield Spell(at_s, acts.STALL)
            at_s += chance.uniform(1, 4) * MINUTE_S
            if at_s < end_s:
                yield Spell(at_s, train)
            at_s += chance.uniform(3, 6) * MINUTE_S
        if at_s < end_s:
            yield Spell(at_s, acts.CHECKPOINT)
        at_s += 40.0
        checkpoints += 1
        if checkpoints % 3 == 0 and at_s < end_s:
            yield Spell(at_s, acts.EVALUATION)
            at_s += 90.0


def one_after_another(
    course: Course, chance: random.Random, hours: tuple[float, float], gap_hours: tuple[float, float]
) -> Iterator[Shift]:
    """Jobs of random length with pauses between them, until the week is over."""
    at_s = chance.uniform(*gap_hours) * HOUR_S
    while at_s < WEEK_S - 0.5 * hours[0] * HOUR_S:
        end_s = min(at_s + chance.uniform(*hours) * HOUR_S, WEEK_S)
        yield _shift(course, chance, at_s, end_s)
        at_s = end_s + chance.uniform(*gap_hours) * HOUR_S


def all_week(course: Course, chance: random.Random) -> Iterator[Shift]:
    """One job that ends with the week."""
    yield _shift(course, chance, 0.0, WEEK_S)


def once(act: Act, start_s: float, end_s: float) -> Iterator[Shift]:
    """One job in the week, which does the same all the time."""
    if start_s < WEEK_S:
        yield Shift(start_s, min(end_s, WEEK_S), (Spell(start_s, act),))


def by_night(course: Course, chance: random.Random) -> Iterator[Shift]:
    """A job from ten in the evening to six in the morning (UTC)."""
    first = datetime.fromtimestamp(EPOCH_S, timezone.utc)
    to_ten_s = (22 - first.hour - first.minute / 60 - first.second / 3600) * HOUR_S
    for day in range(7):
        start_s = to_ten_s % 86_400.0 + day * 86_400.0
        end_s = min(start_s + 8 * HOUR_S, WEEK_S)
        if end_s - start_s > HOUR_S:
            yield _shift(course, chance, start_s, end_s)


def _shift(course: Course, chance: random.Random, start_s: float, end_s: float) -> Shift:
    spells = tuple(spell for spell in course(chance, start_s, end_s) if start_s <= spell.start_s < end_s)
    return Shift(start_s, end_s, spells)


def spells_of(shifts: Sequence[Shift]) -> list[tuple[float, Act | None]]:
    """All spells of a week from second 0 on, with None for the time between jobs."""
    turns: list[tuple[float, Act | None]] = [(0.0, None)]
    for shift in shifts:
        turns += [(spell.start_s, spell.act) for spell in shift.spells]
        if shift.end_s < WEEK_S:
            turns.append((shift.end_s, None))
    if len(turns) > 1 and turns[1][0] == 0.0:
        del turns[0]
    return turns
