"""An HTTP service: what counts as a value, what counts as silence, and that the key stays where it is."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.config.model import GridService, http_address
from clusterwatt.feeds.fetch import SilentError
from clusterwatt.feeds.service import Stated, ask
from tests.feeds.web import Web, body, serving

SECRET = "sk-plant-7f3a"


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as server:
        yield server


def settings(web: Web, **changes: object) -> GridService:
    return GridService(**{"url": web.url, "value_path": "carbonIntensity", **changes})  # type: ignore[arg-type]


def asked(web: Web, **changes: object) -> Stated:
    return ask(settings(web, **changes), SystemClock())


def silence(web: Web, **changes: object) -> str:
    with pytest.raises(SilentError) as caught:
        asked(web, **changes)
    return str(caught.value)


def test_a_value_and_its_time(web: Web) -> None:
    web.answer = body(b'{"zone": "FR", "carbonIntensity": 44.2, "datetime": "2026-11-30T12:00:00.000Z"}')
    assert asked(web, time_path="datetime") == Stated(44.2, 1_796_040_000.0)
    assert asked(web) == Stated(44.2, None)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        (b'"2026-11-30T12:00Z"', 1_796_040_000.0),
        (b'"2026-11-30T13:00:00+01:00"', 1_796_040_000.0),
        (b'"2026-11-30T12:00:00"', 1_796_040_000.0),
        (b"1796040000", 1_796_040_000.0),
        (b"1796040000000", 1_796_040_000.0),
    ],
)
def test_times_as_services_write_them(web: Web, text: bytes, time: float) -> None:
    web.answer = body(b'{"v": 1, "t": ' + text + b"}")
    assert asked(web, value_path="v", time_path="t").stated_s == time


def test_a_path_leads_through_lists_and_a_number_may_be_text(web: Web) -> None:
    web.answer = body(b'{"data": [{"intensity": {"actual": 120}}, {"value": [0, "87.5"]}]}')
    assert asked(web, value_path="data.0.intensity.actual").grams_per_kwh == 120.0
    assert asked(web, value_path="data.-1.value.1").grams_per_kwh == 87.5


def test_pounds_per_mwh_become_grams_per_kwh(web: Web) -> None:
    web.answer = body(b'{"carbonIntensity": 1000}')
    assert asked(web, unit="pounds_per_mwh").grams_per_kwh == pytest.approx(453.59237)


@pytest.mark.parametrize(
    ("content", "status", "text"),
    [
        (b"", 200, "it answers with nothing in it"),
        (b" \n", 200, "it answers with nothing in it"),
        (b"<html>", 200, "its answer is not JSON"),
        (b"[" * 100_000, 200, "its answer is not JSON"),
        (b'{"carbonIntensity": NaN}', 200, "its answer is not JSON"),
        (b'{"carbonIntensity": null}', 200, "expected a number at carbonIntensity, got null"),
        (b'{"carbonIntensity": true}', 200, "expected a number at carbonIntensity, got true or false"),
        (b'{"carbonIntensity": "none"}', 200, "expected a number at carbonIntensity, got a text"),
        (b'{"error": "bad zone"}', 200, "its answer has nothing at carbonIntensity"),
        (b'{"carbonIntensity": -3}', 200, "-3 g/kWh at carbonIntensity is not possible: check unit and path"),
        (
            b'{"carbonIntensity": 44e3}',
            200,
            "44000 g/kWh at carbonIntensity is not possible: check unit and path",
        ),
        (b"busy", 503, "it answers 503 Service Unavailable"),
        (b"", 401, "it answers 401 Unauthorized: check the header or file with the key"),
        (b" " * ((1 << 20) + 1), 200, "its answer is larger than 1048576 bytes"),
    ],
)
def test_what_is_no_value(web: Web, content: bytes, status: int, text: str) -> None:
    web.answer = body(content, status)
    assert silence(web) == text


@pytest.mark.parametrize("time", [b"null", b"true", b'"yesterday"', b"9" * 400])
def test_what_is_no_time(web: Web, time: bytes) -> None:
    web.answer = body(b'{"v": 1, "t": ' + time + b"}")
    assert silence(web, value_path="v", time_path="t").startswith("expected a time at t, got ")


@pytest.mark.parametrize("where", ["file:///etc/passwd", "http://127.0.0.1:1/", "https://example.org/"])
def test_no_redirect_is_followed(web: Web, where: str) -> None:
    web.answer = body(b"", 302, (("Location", where),))
    assert silence(web).startswith("it answers 302 Found: redirects are not followed")
    assert len(web.requests) == 1


def test_the_key_is_sent_read_anew_and_never_told(web: Web, tmp_path: Path) -> None:
    key = tmp_path / "key"
    web.answer = body(f'{{"carbonIntensity": "{SECRET}"}}'.encode())
    for value in (SECRET, SECRET + "2"):
        key.write_text(f"  {value}\n")
        assert SECRET not in silence(web, header="auth-token", header_file=str(key))
        assert web.requests[-1][1]["auth-token"] == value

    def echo(request: BaseHTTPRequestHandler) -> None:
        request.send_response(403, f"bad key {SECRET}")
        request.end_headers()

    web.answer = echo
    assert SECRET not in silence(web, header="auth-token", header_file=str(key))


@pytest.mark.parametrize("content", [f"{SECRET}\r\nHost: evil\r\n", f"{SECRET}\u00fc", "", SECRET * 2000])
def test_a_file_that_holds_no_single_line_is_named_and_not_told(
    web: Web, tmp_path: Path, content: str
) -> None:
    key = tmp_path / "key"
    key.write_text(content)
    said = silence(web, header="auth-token", header_file=str(key))
    assert said == "feeds.grid.service.header_file: expected one line of printable ASCII"
    assert not web.requests


def test_a_missing_key_is_silence_and_nothing_is_asked(web: Web, tmp_path: Path) -> None:
    said = silence(web, header="auth-token", header_file=str(tmp_path / "none"))
    assert said == "feeds.grid.service.header_file cannot be read: No such file or directory"
    assert not web.requests


def test_nobody_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(SilentError, match="Connection refused"):
        ask(GridService(url=f"http://127.0.0.1:{port}/", value_path="v"), SystemClock())


def test_an_answer_that_does_not_come() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        with pytest.raises(SilentError, match=r"no answer within 0\.05 s"):
            ask(GridService(url=url, value_path="v", timeout_seconds=0.05), SystemClock())


def test_what_speaks_no_http(web: Web) -> None:
    def greet(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"SSH-2.0-x\r\n")

    web.answer = greet
    assert silence(web) == "its answer is not HTTP"


def test_the_proxy_of_the_environment_is_used(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    web.answer = body(b'{"carbonIntensity": 7}')
    monkeypatch.setenv("http_proxy", web.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert ask(GridService(url="http://grid.example/v3", value_path="carbonIntensity"), SystemClock())
    assert web.requests[0][0] == "http://grid.example/v3"


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://x/",
        "http://",
        "https://me:key@host/",
        "http://host/a b",
        "http://h:99999/",
    ],
)
def test_addresses_that_are_refused(url: str) -> None:
    with pytest.raises(ValueError):
        http_address(url)
