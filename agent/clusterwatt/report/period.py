"""Times as people give them: `now`, `-7d`, `2026-11-30`, `2026-11-30T14:00`, in the local zone."""

from __future__ import annotations

import re
from datetime import datetime, timezone

AGO = re.compile(r"-(\d{1,6})([mhdw])")
SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
EXPECTED = "expected now, -7d (m, h, d, w), 2026-11-30 (its midnight) or 2026-11-30T14:00"


def unix_time(text: str, now_s: float) -> float:
    """The Unix time that a text means, local where it has no offset; the days of `-7d` have 24 hours.

    Raises ValueError, which says what is expected.
    """
    if text == "now":
        return now_s
    ago = AGO.fullmatch(text)
    if ago:
        return now_s - int(ago[1]) * SECONDS[ago[2]]
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:?\d\d)?)?", text):
            # Python 3.10 reads neither Z nor an offset without a colon.
            written = re.sub(r"([+-]\d\d)(\d\d)$", r"\1:\2", text.replace("Z", "+00:00"))
            return datetime.fromisoformat(written).astimezone(timezone.utc).timestamp()
    except (ValueError, OverflowError, OSError):  # a day that there is not, a year before the first
        pass
    raise ValueError(EXPECTED)


def shown(unix_s: float) -> str:
    """A Unix time as people read it, in the local zone, to the minute."""
    return local(unix_s).strftime("%Y-%m-%d %H:%M")


def with_zone(unix_s: float) -> str:
    """A Unix time in the local zone with its offset, for machines."""
    return local(unix_s).isoformat(timespec="seconds")


def local(unix_s: float) -> datetime:
    """A Unix time on the wall here."""
    return datetime.fromtimestamp(unix_s, timezone.utc).astimezone()
