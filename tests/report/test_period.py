"""Times as people give them."""

from __future__ import annotations

import pytest

from clusterwatt.report.period import shown, time_to_come, unix_time, with_zone

NOW_S = 1_796_040_000.0  # 2026-11-30T12:00Z


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("now", NOW_S),
        ("-90m", NOW_S - 5_400),
        ("-7d", NOW_S - 7 * 86_400),
        ("-2w", NOW_S - 14 * 86_400),
        ("2026-11-30", NOW_S - 13 * 3_600),  # midnight in Berlin
        ("2026-07-01", 1_782_856_800.0),  # 22:00 in UTC the day before: summer time
        ("2026-11-30T13:00", NOW_S),
        ("2026-11-30 13:00:01", NOW_S + 1),
        ("2026-11-30T12:00Z", NOW_S),
        ("2026-11-30T14:00+0200", NOW_S),
    ],
)
def test_times(text: str, expected_s: float) -> None:
    assert unix_time(text, NOW_S) == expected_s


@pytest.mark.parametrize("text", ["", "yesterday", "7d", "+7d", "-7D", "30.11.2026", "2026-11", "1e9"])
def test_what_is_no_time_says_what_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected now, -7d .* or 2026-11-30T14:00"):
        unix_time(text, NOW_S)


@pytest.mark.parametrize("text", ["2026-02-30", "2026-11-30T25:00", "2026-13-01", "2026-11-30T14:00+99:00"])
def test_a_time_that_there_is_not_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="there is no such time: "):
        unix_time(text, NOW_S)


@pytest.mark.parametrize(
    "text", ["0001-01-01", "1969-12-31", "9999-12-31", "9999-12-31T23:59:59-1200", "-999999w"]
)
def test_a_time_that_no_ledger_can_know_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time from 1970 to 9998"):
        unix_time(text, NOW_S)


def test_the_first_and_the_last_time_can_be_shown() -> None:
    for text in ("1970-01-02", "9998-12-31"):
        assert shown(unix_time(text, NOW_S)).startswith(text)


def test_times_are_shown_on_the_wall_with_their_offset() -> None:
    assert shown(NOW_S) == "2026-11-30T13:00+01:00"
    assert with_zone(NOW_S) == "2026-11-30T13:00:00+01:00"


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("+90m", NOW_S + 5_400),
        ("+2h", NOW_S + 7_200),
        ("+1w", NOW_S + 7 * 86_400),
        ("18:00", NOW_S + 5 * 3_600),  # it is 13:00 in Berlin
        ("13:01", NOW_S + 60),
        ("13:00", NOW_S + 86_400),  # now: the next one is tomorrow's
        ("09:30", NOW_S + 20.5 * 3_600),
        ("2026-12-01T13:00", NOW_S + 86_400),
        ("2026-12-01", NOW_S + 11 * 3_600),
        ("2026-11-29", NOW_S - 37 * 3_600),  # over already: for the caller to judge
    ],
)
def test_times_to_come(text: str, expected_s: float) -> None:
    assert time_to_come(text, NOW_S) == expected_s


@pytest.mark.parametrize(
    ("now", "text", "expected"),
    [
        ("2026-10-24T20:00", "06:00", "2026-10-25T06:00+01:00"),  # over the end of summer time
        ("2026-10-25T00:15Z", "02:30", "2026-10-25T02:30+02:00"),  # 02:15, for the first time
        ("2026-10-25T01:15Z", "02:30", "2026-10-25T02:30+01:00"),  # 02:15, for the second time
        ("2026-03-28T20:00", "02:30", "2026-03-29T03:30+02:00"),  # there is none in that night
    ],
)
def test_the_next_time_of_day_when_the_clocks_are_changed(now: str, text: str, expected: str) -> None:
    assert shown(time_to_come(text, unix_time(now, NOW_S))) == expected


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "2h", "-2h", "now", "18", "24:00", "18:60", "2026-W50-1", "20261201"]
)
def test_what_is_no_time_to_come_says_what_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected \+2h .*, 18:00 .* or 2030-01-31T18:00"):
        time_to_come(text, NOW_S)
