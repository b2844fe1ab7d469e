"""The number that an HTTP service states in its JSON answer."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from datetime import datetime, timezone
from urllib.parse import urlsplit

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.config.model import GridService as Settings
from clusterwatt.feeds.fetch import SilentError, Trust, fetch, secret

MAX_ANSWER_BYTES = 1 << 20
MAX_GRAMS_PER_KWH = 5_000.0  # three times the worst coal; more is another unit
GRAMS_PER_KWH = {"grams_per_kwh": 1.0, "pounds_per_mwh": 0.45359237}
MILLISECONDS_FROM = 1e11  # a Unix time so large is in milliseconds


class Stated(msgspec.Struct, frozen=True):
    """What the service states, and for which Unix time; None when it does not say."""

    grams_per_kwh: float
    stated_s: float | None


Ask = Callable[[Settings, Clock], Stated]


def ask(settings: Settings, clock: Clock) -> Stated:
    """Ask once. Raises SilentError."""
    body = _body(settings, clock)
    if not body.strip():
        raise SilentError("it answers with nothing in it")
    try:
        answer: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise SilentError("its answer is not JSON") from None
    number = _number(_at(answer, settings.value_path), settings.value_path)
    grams = number * GRAMS_PER_KWH[settings.unit]
    if not 0 <= grams <= MAX_GRAMS_PER_KWH:
        raise SilentError(f"{grams:.6g} g/kWh at {settings.value_path} is not possible: check unit and path")
    stated_s = _unix_time(_at(answer, settings.time_path), settings.time_path) if settings.time_path else None
    return Stated(grams, stated_s)


def host(settings: Settings) -> str:
    """The service's name, as it is shown."""
    return urlsplit(settings.url).hostname or ""


def _body(settings: Settings, clock: Clock) -> bytes:
    headers = {}
    if settings.header:
        headers[settings.header] = secret(settings.header_file, "feeds.grid.service.header_file")
    return fetch(
        settings.url,
        clock,
        timeout_s=settings.timeout_seconds,
        max_bytes=MAX_ANSWER_BYTES,
        headers=headers,
        trust=Trust(ca_file=settings.ca_file),
    )


def _at(answer: object, path: str) -> object:
    """What stands at a dotted path; numbers go into lists."""
    found = answer
    for step in path.split("."):
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif (
            isinstance(found, list)
            and re.fullmatch(r"-?\d{1,6}", step)
            and -len(found) <= int(step) < len(found)
        ):
            found = found[int(step)]
        else:
            raise SilentError(f"its answer has nothing at {path}")
    return found


def _number(found: object, path: str) -> float:
    """A number, which some services write as text."""
    number = math.nan
    if isinstance(found, int | float | str) and not isinstance(found, bool):
        try:
            number = float(found)
        except (ValueError, OverflowError):
            number = math.nan
    if not math.isfinite(number):
        raise SilentError(f"expected a number at {path}, got {_kind(found)}")
    return number


def _unix_time(found: object, path: str) -> float:
    """Unix time of an ISO 8601 text (UTC when it names no zone) or of a number."""
    if isinstance(found, str):
        # Python 3.10 reads neither Z nor fractions of any length.
        text = re.sub(r"\.\d+", "", found.strip().replace("Z", "+00:00"))
        try:
            time = datetime.fromisoformat(text)
            return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()
        except (ValueError, OverflowError):
            pass
    elif isinstance(found, int | float) and not isinstance(found, bool):
        with contextlib.suppress(OverflowError):  # a whole number of hundreds of digits
            return found / 1000 if found > MILLISECONDS_FROM else float(found)
    raise SilentError(f"expected a time at {path}, got {_kind(found)}")


def _kind(found: object) -> str:
    if found is None:
        return "null"
    names = {bool: "true or false", str: "a text", dict: "an object", list: "a list"}
    return names.get(type(found), "a number that is not finite")
