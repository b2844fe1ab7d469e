"""One question to an HTTP service that answers in JSON, and the number that it states.

Limits on time and size; http and https only; no redirect is followed, because the header with the key would
go along. Nothing that the service says, and nothing of the key, gets into a message.
"""

from __future__ import annotations

import http
import http.client
import math
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from clusterwatt import __version__
from clusterwatt.clock import Clock
from clusterwatt.config.model import GridService as Settings

MAX_ANSWER_BYTES = 1 << 20
MAX_HEADER_FILE_BYTES = 16 << 10
CHUNK_BYTES = 1 << 16
MAX_GRAMS_PER_KWH = 5_000.0  # three times the worst coal; more is another unit
GRAMS_PER_KWH = {"grams_per_kwh": 1.0, "pounds_per_mwh": 0.45359237}
MILLISECONDS_FROM = 1e11  # a Unix time so large is in milliseconds


class SilentError(Exception):
    """The service gave no value; the text says why, in our own words."""


class Stated(msgspec.Struct, frozen=True):
    """What the service states, and for which Unix time; None when it does not say."""

    grams_per_kwh: float
    stated_s: float | None


Ask = Callable[[Settings, Clock], Stated]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Declines every redirect, which makes an error of it."""

    def redirect_request(self, *_: object) -> None:
        return None


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
    deadline_s = clock.monotonic_s() + settings.timeout_seconds
    request = urllib.request.Request(settings.url, headers=_headers(settings))  # noqa: S310 - scheme is checked
    try:
        with _opener(settings).open(request, timeout=settings.timeout_seconds) as response:
            return _read(response, lambda: clock.monotonic_s() > deadline_s)
    except urllib.error.HTTPError as error:
        error.close()
        raise SilentError(_status(error.code)) from None
    except TimeoutError:
        raise SilentError(f"no answer within {settings.timeout_seconds:g} s") from None
    except OSError as error:
        raise SilentError(_reason(error, settings)) from None
    except (http.client.HTTPException, ValueError):
        raise SilentError("its answer is not HTTP") from None


def _read(response: http.client.HTTPResponse, late: Callable[[], bool]) -> bytes:
    body = b""
    while chunk := response.read1(CHUNK_BYTES):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise SilentError(f"its answer is larger than {MAX_ANSWER_BYTES} bytes")
        if late():
            raise TimeoutError
    return body


def _opener(settings: Settings) -> urllib.request.OpenerDirector:
    """What opens http and https, and nothing else: no file:, no ftp:, no data:."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        _NoRedirects(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    if settings.url.startswith("https:"):
        try:
            context = ssl.create_default_context(cafile=settings.ca_file or None)
        except OSError as error:  # also what is not PEM
            said = error.strerror or "not in PEM form"
            raise SilentError(f"feeds.grid.service.ca_file cannot be used: {said}") from None
        opener.add_handler(urllib.request.HTTPSHandler(context=context))
    return opener


def _headers(settings: Settings) -> dict[str, str]:
    headers = {"Accept": "application/json", "User-Agent": f"clusterwatt/{__version__}"}
    if settings.header:
        headers[settings.header] = secret(settings.header_file, "feeds.grid.service.header_file")
    return headers


def secret(path: str, setting: str) -> str:
    """The one line of a file that holds a key. Raises SilentError, which names the setting, not the line."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_HEADER_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "not a name of a file"
        raise SilentError(f"{setting} cannot be read: {said}") from None
    text = content.decode("latin-1").strip()
    if not re.fullmatch(r"[ -~]+", text) or len(content) > MAX_HEADER_FILE_BYTES:
        raise SilentError(f"{setting}: expected one line of printable ASCII")
    return text


def _status(code: int) -> str:
    phrase = http.HTTPStatus(code).phrase if code in set(http.HTTPStatus) else "unknown"
    if 300 <= code < 400:
        return f"it answers {code} {phrase}: redirects are not followed, set url to where it points"
    if code in {401, 403}:
        return f"it answers {code} {phrase}: check header and header_file"
    return f"it answers {code} {phrase}"


def _reason(error: OSError, settings: Settings) -> str:
    """Why no answer came; of an error that wraps another, the inner one."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return f"no answer within {settings.timeout_seconds:g} s"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {reason.verify_message}"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return "it cannot be reached"


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
        return found / 1000 if found > MILLISECONDS_FROM else float(found)
    raise SilentError(f"expected a time at {path}, got {_kind(found)}")


def _kind(found: object) -> str:
    if found is None:
        return "null"
    names = {bool: "true or false", str: "a text", dict: "an object", list: "a list"}
    return names.get(type(found), "a number that is not finite")
