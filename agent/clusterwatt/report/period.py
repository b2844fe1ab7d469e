"""Times as people give them, in the local zone: `now`, `-7d`, `+2h`, `18:00`, `2026-11-30T14:00`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

AGO, AHEAD = re.compile(r"-(\d{1,6})([mhdw])"), re.compile(r"\+(\d{1,6})([mhdw])")
CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
# Not all that `fromisoformat` reads: it reads less on Python 3.10 than on later ones.
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:?\d\d)?)?")
SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
EXPECTED = "expected now, -7d (m, h, d, w), 2026-11-30 (its midnight) or 2026-11-30T14:00"
EXPECTED_AHEAD = "expected +2h (m, h, d, w), 18:00 (the next), 2030-01-31 (its midnight) or 2030-01-31T18:00"
FIRST_S, LAST_S = (
    0.0,
    253_370_764_800.0,
)  # 1970 to 9998: what is near the first or last year has no local time


def unix_time(text: str, now_s: float) -> float:
    """The Unix time that a text means, local where it has no offset; the days of `-7d` have 24 hours.

    Raises ValueError, which says what is expected.
    """
    ago = AGO.fullmatch(text)
    if text == "now":
        unix_s = now_s
    elif ago:
        unix_s = now_s - int(ago[1]) * SECONDS[ago[2]]
    elif DATE.fullmatch(text):
        unix_s = _read(text)
    else:
        raise ValueError(EXPECTED)
    return _known(unix_s)


def time_to_come(text: str, now_s: float) -> float:
    """The Unix time that a text means when it is said of the future; a date may lie in the past all the same.

    Raises ValueError, which says what is expected.
    """
    ahead, clock = AHEAD.fullmatch(text), CLOCK.fullmatch(text)
    if ahead:
        unix_s = now_s + int(ahead[1]) * SECONDS[ahead[2]]
    elif clock:
        unix_s = _next(int(clock[1]), int(clock[2]), now_s)
    elif DATE.fullmatch(text):
        unix_s = _read(text)
    else:
        raise ValueError(EXPECTED_AHEAD)
    return _known(unix_s)


def shown(unix_s: float) -> str:
    """A Unix time as people read it: ISO 8601 in the local zone with its offset, to the minute."""
    return _local(unix_s).isoformat(timespec="minutes")


def with_zone(unix_s: float) -> str:
    """The same to the second, for machines."""
    return _local(unix_s).isoformat(timespec="seconds")


def _known(unix_s: float) -> float:
    if not FIRST_S <= unix_s < LAST_S:
        raise ValueError("expected a time from 1970 to 9998")
    return unix_s


def _next(hour: int, minute: int, now_s: float) -> float:
    """The next time at which local clocks show this; in the night in which they are put back, twice."""
    today = _local(now_s).replace(hour=hour, minute=minute, second=0, microsecond=0, tzinfo=None)
    times = (
        (today + timedelta(days=days)).replace(fold=fold).timestamp() for days in (0, 1) for fold in (0, 1)
    )
    return next(unix_s for unix_s in times if unix_s > now_s)


def _read(text: str) -> float:
    # Python 3.10 reads neither Z nor an offset without a colon.
    written = re.sub(r"([+-]\d\d)(\d\d)$", r"\1:\2", text.replace("Z", "+00:00"))
    try:
        read = datetime.fromisoformat(written)
    except ValueError as error:
        raise ValueError(f"there is no such time: {error}") from None
    try:
        return read.astimezone(timezone.utc).timestamp()
    except (OverflowError, OSError, ValueError):  # on the far side of the first or last year
        return -1.0


def _local(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, timezone.utc).astimezone()
