"""Asking a server: keys from files, errors in its own words, and questions that stay small."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from clusterwatt import cli
from clusterwatt.clock import SystemClock
from clusterwatt.report import cluster
from clusterwatt.report.prometheus import Access, AskError, Prometheus
from tests.feeds.web import Web, body, serving

NOTHING = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'
SECRET = "pass-plant-91c2"


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as server:
        server.answer = body(NOTHING)
        yield server


def asked(web: Web, **access: str) -> list[object]:
    return list(Prometheus(Access(web.url, **access), SystemClock()).ask("up", 1.0))  # type: ignore[arg-type]


def test_values_with_their_labels(web: Web) -> None:
    result = [
        {"metric": {"job_id": "a"}, "value": [1, "2.5"]},
        {"metric": {"job_id": "b"}, "value": [1, "NaN"]},
        {"metric": {}, "value": [1, "+Inf"]},
    ]
    web.answer = body(
        json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
    )
    assert asked(web) == [({"job_id": "a"}, 2.5)]


def test_keys_come_from_files(web: Web, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(SECRET + "\n")
    asked(web, user="ann", password_file=str(key))
    basic = base64.b64encode(f"ann:{SECRET}".encode()).decode()
    assert web.requests[-1][1]["authorization"] == f"Basic {basic}"
    asked(web, token_file=str(key))
    assert web.requests[-1][1]["authorization"] == f"Bearer {SECRET}"
    assert web.requests[-1][0] == "/api/v1/query"


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (b'{"status":"error","errorType":"execution","error":"query processing would load too many samples"}',
         422, "it answers 422 .*: query processing would load too many samples"),
        (b"", 401, "it answers 401 Unauthorized: check the header or file with the key"),
        (b"<html>", 502, "it answers 502 Bad Gateway"),
        (b"<html>", 200, "its answer is not that of Prometheus: check the address"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', 200, "its answer is not"),
    ],
)  # fmt: skip
def test_errors_are_one_line(web: Web, content: bytes, status: int, said: str) -> None:
    web.answer = body(content, status)
    with pytest.raises(AskError, match=f"^{re.escape(web.url)}: {said}") as caught:
        asked(web)
    assert "\n" not in str(caught.value)


def test_no_question_is_of_more_than_a_day(web: Web) -> None:
    forms: list[dict[str, list[str]]] = []

    def note(request: BaseHTTPRequestHandler) -> None:
        forms.append(parse_qs(request.rfile.read(int(request.headers["Content-Length"])).decode()))
        body(NOTHING)(request)

    web.answer = note
    server = Prometheus(Access(web.url), SystemClock())
    cluster.usage(server, 0.0, 2.5 * 86_400, "run")
    windows = {int(window) for form in forms for window in re.findall(r"\[(\d+)ms\]", form["query"][0])}
    assert windows == {86_400_000, 43_200_000}
    assert {float(form["time"][0]) for form in forms} == {86_400.0, 172_800.0, 216_000.0}
    assert all(form["timeout"] for form in forms)
    with pytest.raises(AskError, match="at most 400 days"):
        cluster.usage(server, 0.0, 401 * 86_400.0, "job")


def test_a_job_id_stays_a_text_in_the_question() -> None:
    assert cluster.quoted('a"} or vector(1) #\n\\') == '"a\\"} or vector(1) #\\n\\\\"'


def test_the_command_line_says_in_one_line_what_is_wrong(
    web: Web, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*argv: str) -> tuple[int, str]:
        status = cli.main(argv)
        return status, capsys.readouterr().err

    assert said("report", "--from", "-7x", "--ledger", "x")[0] == 2
    status, text = said("report", "--from", "yesterday", "--ledger", "x")
    assert status == 2
    assert text.startswith("clusterwatt: --from 'yesterday': expected now, -7d")
    status, text = said("report", "--prometheus", "ftp://x")
    assert (status, text) == (
        2, "clusterwatt: --prometheus 'ftp://x': it begins with http:// or https:// and a host\n"
    )  # fmt: skip
    web.answer = body(b"", 503)
    status, text = said("report", "--from", "-7d", "--prometheus", web.url)
    assert (status, text) == (1, f"clusterwatt: {web.url}: it answers 503 Service Unavailable\n")
    missing = str(tmp_path / "none")
    status, text = said("report", "--prometheus", web.url, "--token-file", missing)
    assert (status, text) == (
        1, f"clusterwatt: {web.url}: --token-file cannot be read: No such file or directory\n"
    )  # fmt: skip
