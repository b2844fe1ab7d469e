"""Times as people give them."""

from __future__ import annotations

import pytest

from clusterwatt.report.period import shown, unix_time, with_zone

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
