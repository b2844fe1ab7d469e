"""One request over HTTP, with limits on time and size: http and https only, and no redirect is followed.

A redirect would take the header with the key along to wherever it points. Nothing of a key gets into a
message, and nothing of what the server says: both could be logged.
"""

from __future__ import annotations

import http
import http.client
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from clusterwatt import __version__, plain_file
from clusterwatt.clock import Clock
from clusterwatt.http_deadline import answers_until

MAX_SECRET_FILE_BYTES = 16 << 10
CHUNK_BYTES = 1 << 16
MAX_ERROR_BYTES = 1 << 16


class SilentError(Exception):
    """No answer that is of use; the text says why, in our own words."""


class StatusError(SilentError):
    """An answer that is an error; its body is for those only who know what is in it."""

    def __init__(self, text: str, body: bytes) -> None:
        super().__init__(text)
        self.body = body


class Trust(msgspec.Struct, frozen=True):
    """Files in PEM form: whom to trust instead of the system's authorities, and what to show of oneself."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


class _Http(urllib.request.HTTPHandler):
    """Opens http, and https where there is a context; `answers`: the kind of their answers."""

    def __init__(self, answers: type[http.client.HTTPResponse], context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._answers = answers
        self._context = context

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._connection, http.client.HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        make = partial(http.client.HTTPSConnection, context=self._context)
        return self.do_open(partial(self._connection, make), request)

    https_request = urllib.request.HTTPHandler.http_request

    def _connection(
        self, make: Callable[..., http.client.HTTPConnection], *args: Any, **kwargs: Any
    ) -> http.client.HTTPConnection:
        connection = make(*args, **kwargs)
        connection.response_class = self._answers
        return connection


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Declines every redirect, which makes an error of it."""

    def redirect_request(self, *_: object) -> None:
        return None


def fetch(
    url: str,
    clock: Clock,
    *,
    timeout_s: float,
    max_bytes: int,
    headers: Mapping[str, str] = {},
    form: bytes | None = None,
    trust: Trust | None = None,
) -> bytes:
    """The body of the answer, to a POST where there is a form. Raises SilentError, or its StatusError."""
    deadline_s = clock.monotonic_s() + timeout_s
    named = {"Accept": "application/json", "User-Agent": f"clusterwatt/{__version__}", **headers}
    request = urllib.request.Request(url, form, named)  # noqa: S310 - the opener knows http and https only
    body = b""
    answers = answers_until(clock, deadline_s)
    try:
        with _opener(url, trust or Trust(), answers).open(request, timeout=timeout_s) as response:
            while chunk := response.read1(CHUNK_BYTES):
                body += chunk
                if len(body) > max_bytes or clock.monotonic_s() > deadline_s:
                    break
    except urllib.error.HTTPError as error:
        raise _status(error) from None
    except TimeoutError:
        raise SilentError(f"no answer within {timeout_s:g} s") from None
    except OSError as error:
        raise SilentError(_reason(error, timeout_s)) from None
    except (http.client.HTTPException, ValueError):
        raise SilentError("its answer is not HTTP") from None
    if len(body) > max_bytes:
        raise SilentError(f"its answer is larger than {max_bytes} bytes")
    if clock.monotonic_s() > deadline_s:
        raise SilentError(f"no answer within {timeout_s:g} s")
    return body


def secret(path: str, setting: str) -> str:
    """The one line of a file that holds a key. Raises SilentError, which names the setting, not the line."""
    try:
        content = plain_file.content(path, MAX_SECRET_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "not a name of a file"
        raise SilentError(f"{setting} cannot be read: {said}") from None
    text = content.decode("latin-1").strip()
    if not re.fullmatch(r"[ -~]+", text) or len(content) > MAX_SECRET_FILE_BYTES:
        raise SilentError(f"{setting}: expected one line of printable ASCII")
    return text


def _opener(url: str, trust: Trust, answers: type[http.client.HTTPResponse]) -> urllib.request.OpenerDirector:
    """What opens http and https, and nothing else: no file:, no ftp:, no data:."""
    context = None
    if url.startswith("https:"):
        try:
            for file in filter(None, (trust.ca_file, trust.cert_file, trust.key_file)):
                plain_file.check(file)
            context = ssl.create_default_context(cafile=trust.ca_file or None)
            if trust.cert_file:
                context.load_cert_chain(trust.cert_file, trust.key_file or None)
        except OSError as error:  # also what is not PEM
            said = "not in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
            raise SilentError(f"files of certificates or keys cannot be used: {said}") from None
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Http(answers, context),
        urllib.request.HTTPDefaultErrorHandler(),
        _NoRedirects(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _status(error: urllib.error.HTTPError) -> StatusError:
    code = error.code
    try:
        with error:
            body = error.read(MAX_ERROR_BYTES)
    except (OSError, http.client.HTTPException):
        body = b""
    phrase = http.HTTPStatus(code).phrase if code in set(http.HTTPStatus) else "unknown"
    text = f"it answers {code} {phrase}"
    if 300 <= code < 400:
        text += ": redirects are not followed, set url to where it points"
    if code in {401, 403}:
        text += ": check the header or file with the key"
    return StatusError(text, body)


def _reason(error: OSError, timeout_s: float) -> str:
    """Why no answer came; of an error that wraps another, the inner one."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {reason.verify_message}"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return "it cannot be reached"
