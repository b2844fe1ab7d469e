"""Questions to a Prometheus-compatible server (https://prometheus.io/docs/prometheus/latest/querying/api/).

One question is of one moment. What it may cost is bounded: its range by who asks, its answer by size, its
time by a limit that the server is told too.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.config.problems import shown
from clusterwatt.feeds.fetch import SilentError, StatusError, Trust, fetch, secret

MAX_ANSWER_BYTES = 64 << 20
TIMEOUT_S = 120.0


class AskError(Exception):
    """The server did not answer the question. One line with the remedy where there is one."""


class Access(msgspec.Struct, frozen=True):
    """How the server is reached; `password_file` and `token_file` hold one line each, never shown."""

    url: str
    user: str = ""
    password_file: str = ""
    token_file: str = ""
    trust: Trust = Trust()


class Sample(msgspec.Struct, frozen=True):
    """A value with its labels."""

    metric: dict[str, str]
    value: tuple[float, str]


class _Result(msgspec.Struct, frozen=True, rename={"result_type": "resultType"}):
    result_type: str
    result: list[Sample]


class _Answer(msgspec.Struct, frozen=True, rename={"error_type": "errorType"}):
    status: str
    data: _Result | None = None
    error: str = ""
    error_type: str = ""


class Prometheus:
    """Asks one server."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self._access = access
        self._clock = clock

    def ask(self, query: str, at_s: float) -> list[tuple[Mapping[str, str], float]]:
        """Labels and value of every sample that a query gives for a moment. Raises AskError."""
        form = urlencode({"query": query, "time": f"{at_s:.3f}", "timeout": f"{TIMEOUT_S:g}s"}).encode()
        url = self._access.url.rstrip("/") + "/api/v1/query"
        try:
            body = fetch(
                url,
                self._clock,
                timeout_s=TIMEOUT_S,
                max_bytes=MAX_ANSWER_BYTES,
                headers=self._headers(),
                form=form,
                trust=self._access.trust,
            )
        except StatusError as error:
            raise AskError(f"{self._access.url}: {_said(error)}") from None
        except SilentError as error:
            hint = "; ask for a shorter period" if "larger than" in str(error) else ""
            raise AskError(f"{self._access.url}: {error}{hint}") from None
        answer = _decoded(body)
        if answer is None or answer.data is None or answer.data.result_type != "vector":
            raise AskError(f"{self._access.url}: its answer is not that of Prometheus: check the address")
        samples = ((sample.metric, _number(sample.value[1])) for sample in answer.data.result)
        return [(labels, value) for labels, value in samples if math.isfinite(value)]

    def _headers(self) -> dict[str, str]:
        access = self._access
        if access.token_file:
            return {"Authorization": f"Bearer {secret(access.token_file, '--token-file')}"}
        if access.user:
            password = secret(access.password_file, "--password-file") if access.password_file else ""
            pair = base64.b64encode(f"{access.user}:{password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}


def _decoded(body: bytes) -> _Answer | None:
    try:
        return msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _said(error: StatusError) -> str:
    """What the server says of its error: Prometheus says it in JSON, and it names what to change."""
    answer = _decoded(error.body)
    return f"{error}: {shown(answer.error)}" if answer is not None and answer.error else str(error)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
