"""Price of electricity, flat or by time of use.

Times of use are in the local time of a named zone, so that a change to summer time needs nothing. Periods
must cover each minute of every month exactly once: a gap would be energy without a price, an overlap a price
by chance; both are refused with their place.
"""

from __future__ import annotations

import bisect
import calendar
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from clusterwatt.config.problems import Problem, shown
from clusterwatt.config.records import Record

MINUTES = 24 * 60
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MONTHS = tuple(str(month) for month in range(1, 13))
ABOVE = "electricity"  # where it stands in the book

Money = Annotated[float, Meta(ge=0, le=1_000_000_000)]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the book's file."""


class Period(Part, frozen=True):
    """A price and when it holds; without weekdays, hours or months: on all."""

    price_per_kwh: Money
    weekdays: tuple[str, ...] = ()
    hours: tuple[str, ...] = ()
    months: tuple[str, ...] = ()


class Electricity(Part, frozen=True):
    """One price, or one by time of use."""

    zone: str = ""
    price_per_kwh: Money | None = None
    time_zone: str = ""
    periods: tuple[Period, ...] = ()


class Span(msgspec.Struct, frozen=True):
    """A part of a day, in minutes of local time, with its price and the period that it comes from."""

    start: int
    end: int
    price: float
    period: int


class Tariff:
    """Price of energy by local time."""

    def __init__(self, zone: ZoneInfo, spans: Mapping[tuple[int, int], Sequence[Span]]) -> None:
        self._zone = zone
        self._spans = spans
        self._starts = {day: [span.start for span in of_day] for day, of_day in spans.items()}

    def price_per_kwh(self, wall_s: float) -> float:
        """The price at a Unix time."""
        local = datetime.fromtimestamp(wall_s, self._zone)
        day = (local.month, local.weekday())
        index = bisect.bisect_right(self._starts[day], local.hour * 60 + local.minute) - 1
        return self._spans[day][index].price


def _zone_of(electricity: Electricity, record: Record[Any], problems: list[Problem]) -> ZoneInfo | None:
    """The zone that is named; None, and a problem, where there is none of that name."""
    try:
        return ZoneInfo(electricity.time_zone)
    except (KeyError, ValueError, OSError):  # not found, `../x`, a folder
        said = f'expected a time zone as Europe/Berlin, got "{shown(electricity.time_zone)}"'
        remedy = "" if _zones_are_here() else ": this system has no tzdata, install it (package tzdata)"
        problems.append(record.problem(f"{ABOVE}.time_zone", said + remedy))
        return None


def tariff_of(electricity: Electricity | None, record: Record[Any], problems: list[Problem]) -> Tariff | None:
    """The tariff by time of use of a book; None where there is none, or where it is wrong."""
    if electricity is None:
        return None
    if not electricity.periods:
        if electricity.price_per_kwh is None and not record.is_wrong(f"{ABOVE}.periods"):
            said = "missing: a price, or periods with a time_zone"
            problems.append(record.problem(f"{ABOVE}.price_per_kwh", said))
        if electricity.time_zone:  # months begin in it
            _zone_of(electricity, record, problems)
        return None
    if electricity.price_per_kwh is not None:
        problems.append(
            record.problem(f"{ABOVE}.price_per_kwh", "expected one price or periods, not both: remove one")
        )
    zone = _zone_of(electricity, record, problems)
    spans: dict[tuple[int, int], list[Span]] = {
        (month, weekday): [] for month in range(1, 13) for weekday in range(7)
    }
    before = len(problems)
    for index, period in enumerate(electricity.periods):
        path = f"{ABOVE}.periods[{index}]"
        weekdays = _choices(record, f"{path}.weekdays", period.weekdays, WEEKDAYS, problems)
        months = _choices(record, f"{path}.months", period.months, MONTHS, problems)
        hours = _hours(record, f"{path}.hours", period.hours, problems)
        for month in months:
            for weekday in weekdays:
                spans[month + 1, weekday] += [
                    Span(start, end, period.price_per_kwh, index) for start, end in hours
                ]
    if len(problems) > before or zone is None or record.is_wrong(f"{ABOVE}.periods"):
        return None
    problems += _faults(record, spans)
    return Tariff(zone, spans)


def _faults(record: Record[Any], spans: Mapping[tuple[int, int], list[Span]]) -> Iterator[Problem]:
    """Sort each day's spans; every pair of periods that overlaps, once, and the first gap."""
    pairs: set[tuple[int, int]] = set()
    gap = False
    for (month, weekday), of_day in spans.items():
        of_day.sort(key=lambda span: (span.start, span.end))
        day = f"{calendar.day_abbr[weekday]} in {calendar.month_abbr[month]}"
        until, last = 0, -1
        for span in of_day:
            if span.start > until and not gap:
                gap = True
                yield _gap(record, day, until, span.start)
            pair = (min(last, span.period), max(last, span.period))
            if span.start < until and pair not in pairs:
                pairs.add(pair)
                here = f"{ABOVE}.periods[{pair[1]}]"
                there = record.line(f"{ABOVE}.periods[{pair[0]}]")
                said = f"overlaps the period on {there}, as on {day} at {_clock(span.start)}"
                yield record.problem(here, f"{said}: let one end where the other begins")
            if span.end > until:
                until, last = span.end, span.period
        if until < MINUTES and not gap:
            gap = True
            yield _gap(record, day, until, MINUTES)


def _gap(record: Record[Any], day: str, start: int, end: int) -> Problem:
    said = f"no price on {day} from {_clock(start)} to {_clock(end)}"
    return record.problem(f"{ABOVE}.periods", f"{said}: add a period for it")


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _choices(
    record: Record[Any], path: str, texts: Sequence[str], names: Sequence[str], problems: list[Problem]
) -> list[int]:
    """Indices of names, of which a text is one, or the first and the last of some as `mon-fri`."""
    if not texts:
        return list(range(len(names)))
    chosen: set[int] = set()
    for index, text in enumerate(texts):
        first, dash, last = text.lower().partition("-")
        if first not in names or (dash and last not in names):
            said = f"expected {names[0]} to {names[-1]}, or a range as {names[0]}-{names[4]}"
            problems.append(record.problem(f"{path}[{index}]", f'{said}, got "{shown(text)}"'))
            continue
        start, end = names.index(first), names.index(last if dash else first)
        chosen.update((start + step) % len(names) for step in range((end - start) % len(names) + 1))
    return sorted(chosen)


def _hours(
    record: Record[Any], path: str, texts: Sequence[str], problems: list[Problem]
) -> list[tuple[int, int]]:
    """Parts of a day in minutes; what runs over midnight is cut in two, on the same weekdays."""
    if not texts:
        return [(0, MINUTES)]
    parts: list[tuple[int, int]] = []
    for index, text in enumerate(texts):
        found = re.fullmatch(r"(\d{1,2})(?::(\d\d))?-(\d{1,2})(?::(\d\d))?", text.replace(" ", ""))
        start, end = (
            (int(found[1]) * 60 + int(found[2] or 0), int(found[3]) * 60 + int(found[4] or 0))
            if found
            else (0, 0)
        )
        minutes_fit = found is not None and int(found[2] or 0) < 60 and int(found[4] or 0) < 60
        if not minutes_fit or start == end or start >= MINUTES or end > MINUTES:
            said = f'expected hours as 7-20, 6:30-22 or 22-6, got "{shown(text)}"'
            problems.append(record.problem(f"{path}[{index}]", said))
        elif start < end:
            parts.append((start, end))
        else:
            parts += [(0, end), (start, MINUTES)] if end else [(start, MINUTES)]
    return parts


def _zones_are_here() -> bool:
    try:
        ZoneInfo("Europe/Berlin")
    except (KeyError, OSError):
        return False
    return True
