"""TLS of a request: who is trusted, and what we show of ourselves."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.feeds.fetch import SilentError, StatusError, Trust, fetch
from tests.feeds.web import Answer, body, serving


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not here")
    folder = tmp_path_factory.mktemp("tls")
    made = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=127.0.0.1"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True, timeout=60)
    return str(folder / "cert.pem"), str(folder / "key.pem")


def asked(url: str, trust: Trust | None = None) -> bytes:
    return fetch(url, SystemClock(), timeout_s=10, max_bytes=100, trust=trust)


def test_who_is_not_trusted_is_not_told_anything(pair: tuple[str, str]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    with serving(context) as web:
        web.answer = body(b"well")
        with pytest.raises(SilentError, match=r"^its certificate is not trusted: "):
            asked(web.url)
        assert not web.requests
        assert asked(web.url, Trust(ca_file=pair[0])) == b"well"
        other = web.url.replace("127.0.0.1", "localhost")
        with pytest.raises(SilentError, match=r"^its certificate is not trusted: .*localhost"):
            asked(other, Trust(ca_file=pair[0]))


def test_a_server_may_ask_who_we_are(pair: tuple[str, str]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    context.load_verify_locations(pair[0])
    context.verify_mode = ssl.CERT_REQUIRED
    with serving(context) as web:
        web.answer = body(b"well")
        assert asked(web.url, Trust(pair[0], *pair)) == b"well"
        with pytest.raises(SilentError):
            asked(web.url, Trust(pair[0]))


@pytest.mark.parametrize("content", [None, "nonsense"])
def test_files_that_are_none(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SilentError, match=r"^files of certificates or keys cannot be used: "):
        asked("https://127.0.0.1:1/", Trust(ca_file=str(file)))


def test_the_body_of_an_error_is_for_who_knows_it() -> None:
    with serving() as web:
        web.answer = body(b"secret detail", 500)
        with pytest.raises(StatusError) as caught:
            asked(web.url)
    assert (str(caught.value), caught.value.body) == (
        "it answers 500 Internal Server Error",
        b"secret detail",
    )


def dripping(first: bytes) -> Answer:
    """An answer of which a byte comes now and then, and that never ends."""

    def send(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(first)
        for _ in range(200):
            request.wfile.write(b" ")
            time.sleep(0.02)

    return send


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1",
        b"HTTP/1.1 200 OK\r\nX:",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 500 No\r\nContent-Length: 999\r\n\r\n",
    ],
)
def test_who_sends_a_byte_now_and_then_is_given_up_in_time(first: bytes) -> None:
    with serving() as web:
        web.answer = dripping(first)
        began_s = time.monotonic()
        with pytest.raises(
            SilentError, match=r"^(no answer within 0\.2 s|it answers 500 Internal Server Error)$"
        ):
            fetch(web.url, SystemClock(), timeout_s=0.2, max_bytes=1000)
        assert time.monotonic() - began_s < 2
