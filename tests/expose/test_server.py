from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import socket
import threading
from collections.abc import Callable, Coroutine
from importlib import resources
from typing import Any

import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser

from clusterwatt.config.model import Http
from clusterwatt.expose.render import Page
from clusterwatt.readings.agent import SeriesCount, SeriesDropped
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuInfo, GpuUse
from clusterwatt.readings.host import CpuCount
from clusterwatt.readings.snapshot import Snapshot
from tests.expose.sites import OPENMETRICS, TEXT, CountingRenderer, running, snapshot

SCRAPE_OF_PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
SCRAPE_WITH_PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,"
    + SCRAPE_OF_PROMETHEUS_3
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"

USE = GpuUse("0", "GPU-a", 0.5)


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that runs in an event loop of its own, which must end with it."""

    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("coding", [None, "gzip"])
@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, TEXT),
        ("*/*", TEXT),
        ("application/openmetrics-text;version=1.0.0", OPENMETRICS),
        ("application/vnd.google.protobuf", TEXT),
        ("application/openmetrics-text", OPENMETRICS),
        ('application/openmetrics-text; version="1.0.0"; charset=utf-8', OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1", TEXT),
        ("application/openmetrics-text;version=2.0.0", TEXT),
        ("application/openmetrics-text;version=1.0.0;q=0", TEXT),
        ("application/openmetrics-text;version=1.0.0;q=0.3,text/plain;q=0.8", TEXT),
        ("application/openmetrics-text;version=1.0.0;q=nonsense", TEXT),
        ("text/plain;version=0.0.4;q=0.5, APPLICATION/OpenMetrics-Text;Version=1.0.0;Q=0.9", OPENMETRICS),
        (SCRAPE_OF_PROMETHEUS_3, OPENMETRICS),
        (SCRAPE_WITH_PROTOBUF, OPENMETRICS),
        (BROWSER, TEXT),
        (",;,=;q", TEXT),
    ],
)
def test_g09_every_scrape_gets_a_content_type_that_prometheus_takes(
    accept: str | None, content_type: str, coding: str | None, method: str
) -> None:
    async def test() -> None:
        async with running() as site:
            site.site.publish(snapshot(1, USE))
            headers = {"Accept": accept} if accept is not None else {}
            if coding:
                headers["Accept-Encoding"] = coding
            answer = await site.ask("/metrics", headers, method)
            assert answer.status == 200
            assert answer.headers["Content-Type"] == content_type
            assert answer.headers.get("Content-Encoding") == coding
            if method == "HEAD":
                assert answer.body == b""
                assert int(answer.headers["Content-Length"]) > 50
                return
            body = gzip.decompress(answer.body) if coding else answer.body
            assert b'{gpu="0",uuid="GPU-a"} 0.5\n' in body
            assert body.endswith(b"# EOF\n") == (content_type == OPENMETRICS)

    asyncio.run(test())


@pytest.mark.parametrize(
    ("accept_encoding", "packed"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("GZIP", True),
        ("gzip;q=0", False),
        ("identity", False),
        ("*", False),
        ("br", False),
        ("", False),
    ],
)
def test_gzip_only_when_it_is_named(accept_encoding: str, packed: bool) -> None:
    async def test() -> None:
        async with running() as site:
            site.site.publish(snapshot(1, USE))
            answer = await site.ask("/metrics", {"Accept-Encoding": accept_encoding})
            assert ("Content-Encoding" in answer.headers) == packed
            assert "Accept-Encoding" in answer.headers["Vary"]

    asyncio.run(test())


@in_loop
async def test_g02_a_series_that_ended_is_gone_at_the_next_scrape() -> None:
    async with running() as site:
        site.site.publish(snapshot(1, USE, GpuUse("1", "GPU-b", 0.1)))
        assert b"GPU-b" in (await site.ask("/metrics")).body
        site.site.publish(snapshot(2, USE))
        second = await site.ask("/metrics")
        assert b"GPU-b" not in second.body
        assert b"GPU-a" in second.body


@in_loop
async def test_a_snapshot_is_rendered_once_for_each_format_however_many_ask() -> None:
    renderer = CountingRenderer()
    async with running(renderer) as site:
        site.site.publish(snapshot(1, USE))
        openmetrics = {"Accept": "application/openmetrics-text"}
        asked = [site.ask("/metrics") for _ in range(10)] + [
            site.ask("/metrics", openmetrics) for _ in range(10)
        ]
        answers = await asyncio.gather(*asked, site.ask("/metrics", {"Accept-Encoding": "gzip"}))
        assert {answer.status for answer in answers} == {200}
        assert len({answer.body for answer in answers}) == 3
        assert sorted(renderer.rendered) == [(1, False), (1, True)]


@in_loop
async def test_a_snapshot_that_nobody_asks_for_is_not_rendered() -> None:
    renderer = CountingRenderer()
    async with running(renderer) as site:
        for tick in range(1, 20):
            site.site.publish(snapshot(tick, USE))
            await asyncio.sleep(0)
        await site.ask("/metrics")
        assert [tick for tick, _ in renderer.rendered] == [
            1,
            19,
        ]  # 1: the first page, on which readiness waits


class SlowRenderer(CountingRenderer):
    """Takes until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def render(self, snapshot: Snapshot, *, openmetrics: bool) -> Page:
        self.go_on.wait(10)
        return super().render(snapshot, openmetrics=openmetrics)


@in_loop
async def test_a_long_rendering_holds_up_neither_the_loop_nor_those_who_wait_with_one_that_leaves() -> None:
    renderer = SlowRenderer()
    async with running(renderer) as site:
        site.site.publish(snapshot(1, USE))
        impatient = asyncio.create_task(site.ask("/metrics"))
        patient = asyncio.create_task(site.ask("/metrics"))
        assert (await site.ask("/healthz")).status == 200
        assert (await site.ask("/readyz")).status == 503
        impatient.cancel()
        assert (await site.ask("/healthz")).status == 200
        renderer.go_on.set()
        assert (await patient).status == 200
        assert renderer.rendered == [(1, False)]


class BrokenRenderer(CountingRenderer):
    def render(self, snapshot: Snapshot, *, openmetrics: bool) -> Page:
        raise RuntimeError("EXAMPLE-NOT-REAL in /etc/secret/path")


class OnceBrokenRenderer(CountingRenderer):
    def render(self, snapshot: Snapshot, *, openmetrics: bool) -> Page:
        if snapshot.tick == 1:
            raise RuntimeError("a bug")
        return super().render(snapshot, openmetrics=openmetrics)


def test_a_first_page_that_cannot_be_rendered_is_not_the_last_word(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with running(OnceBrokenRenderer()) as site:
            shown: asyncio.Queue[int] = asyncio.Queue()
            site.site.on_publish(lambda snapshot: shown.put_nowait(snapshot.tick))
            site.site.publish(snapshot(1, USE))
            assert (await site.ask("/metrics")).status == 500
            site.site.publish(snapshot(2, USE))
            assert await asyncio.wait_for(shown.get(), 5) == 2
            assert (await site.ask("/readyz")).status == 200

    asyncio.run(test())
    assert "the first page cannot be rendered" in caplog.text


@in_loop
async def test_g18_no_answer_tells_of_errors_inside() -> None:
    async with running(BrokenRenderer()) as site:
        site.site.publish(snapshot(1, USE))
        answers = [
            await site.ask("/metrics"),
            await site.ask("/api/v1/EXAMPLE2"),
            await site.ask("/../../etc/passwd"),
            await site.ask("/metrics", {"Expect": "EXAMPLE2"}),
            await site.ask("/metrics?token=EXAMPLE2", method="DELETE"),
        ]
        assert [answer.status for answer in answers] == [500, 404, 404, 417, 405]
        for answer in answers:
            assert re.fullmatch(rb"[a-z ]+\n", answer.body), answer.body
            assert answer.headers["Content-Type"].startswith("text/plain")
            told = answer.body + repr(answer.headers).encode()
            for secret in (b"EXAMPLE", b"secret", b"RuntimeError", b"aiohttp", b"ython", b"passwd"):
                assert secret not in told
        raw = await site.send(b"GARBAGE EXAMPLE2 \xff\r\n\r\n")
        assert raw.startswith(b"HTTP/1.0 400 ")
        assert raw.endswith(b"\r\n\r\nbad request\n")
        assert b"EXAMPLE2" not in raw
        assert b"nosniff" in raw


@in_loop
async def test_only_get_and_head() -> None:
    async with running() as site:
        site.site.publish(snapshot(1, USE))
        for path in ("/", "/metrics", "/healthz", "/readyz", "/api/v1/node", "/page.js"):
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
                answer = await site.ask(path, method=method)
                assert answer.status == 405
                assert set(answer.headers["Allow"].split(",")) == {"GET", "HEAD"}
            assert (await site.ask(path, method="HEAD")).status == 200


@in_loop
async def test_every_answer_has_the_security_headers() -> None:
    async with running() as site:
        site.site.publish(snapshot(1, USE))
        for path in ("/", "/metrics", "/healthz", "/readyz", "/api/v1/node", "/page.css", "/nothing"):
            headers = (await site.ask(path)).headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["Referrer-Policy"] == "no-referrer"
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert headers["Server"] == "clusterwatt"


@in_loop
async def test_health_is_that_of_the_ticks_and_stopped_ticks_give_no_metrics() -> None:
    async with running() as site:
        site.site.publish(snapshot(1, USE))
        assert (await site.ask("/healthz")).body == b"ok\n"
        site.told.alive = False
        assert (await site.ask("/healthz")).status == 503
        page = await site.ask("/metrics")
        assert page.status == 503
        assert b"GPU" not in page.body


@in_loop
async def test_ready_when_the_first_page_is_there_and_the_node_says_so() -> None:
    async with running() as site:
        assert (await site.ask("/readyz")).status == 503
        assert (await site.ask("/metrics")).status == 503
        assert (await site.ask("/healthz")).status == 200
        shown: asyncio.Queue[int] = asyncio.Queue()
        site.site.on_publish(lambda snapshot: shown.put_nowait(snapshot.tick))
        site.site.publish(snapshot(1, USE))
        assert await asyncio.wait_for(shown.get(), 5) == 1
        assert (await site.ask("/readyz")).status == 200
        site.told.ready = (False, "7 of 8 GPUs are visible")
        answer = await site.ask("/readyz")
        assert (answer.status, answer.body) == (503, b"7 of 8 GPUs are visible\n")
        site.site.publish(snapshot(2, USE))
        assert shown.get_nowait() == 2


@in_loop
async def test_the_site_counts_series_once_for_a_snapshot() -> None:
    async with running() as site:

        def said() -> list[Reading]:
            return [r for r in site.site.readings() if isinstance(r, SeriesCount | SeriesDropped)]

        assert said() == []
        doubled = (USE, USE, GpuUse("1", "GPU-b", 0.2))
        site.site.publish(snapshot(1, *doubled))
        for _ in range(3):
            await site.ask("/metrics")
            await site.ask("/metrics", {"Accept": "application/openmetrics-text"})
        await site.ask("/readyz")
        assert said() == [SeriesCount(2.0), SeriesDropped("gpu_use", 1.0)]
        site.site.publish(snapshot(2, *doubled))
        await site.site.page()
        assert said() == [SeriesCount(2.0), SeriesDropped("gpu_use", 2.0)]


@in_loop
async def test_the_openmetrics_page_is_what_the_strict_parser_takes() -> None:
    async with running() as site:
        info = GpuInfo("0", "GPU-a", 'a "b"\\\n', "hopper", "0000:01:00.0", "0", "N/A", "96", "", "", "false")
        site.site.publish(snapshot(1, USE, info))
        page = await site.ask("/metrics", {"Accept": "application/openmetrics-text"})
        families = list(openmetrics_parser.text_string_to_metric_families(page.body.decode()))  # type: ignore[no-untyped-call]  # has no hints
        assert [family.name for family in families] == [
            "clusterwatt_gpu_info",
            "clusterwatt_gpu_utilization_ratio",
        ]


@in_loop
async def test_the_node_as_json_is_made_once_and_has_a_known_shape() -> None:
    async with running() as site:
        assert (await site.ask("/api/v1/node")).status == 503
        site.site.publish(snapshot(1, USE, CpuCount(cpus=64.0)))
        answer = await site.ask("/api/v1/node")
        assert answer.headers["Content-Type"] == "application/json"
        node = json.loads(answer.body)
        assert node["node"] == "gpu-node-17"
        assert node["tick"] == 1
        assert node["gpus"][0]["utilization_ratio"] == 0.5
        assert node["gpus"][0]["power_watts"] is None
        assert node["gpus"][0]["curves"] == {"utilization_ratio": [0.5]}
        assert node["seconds_ago"] == [0.0]
        assert node["host"]["cpus"] == 64.0
        packed = await site.ask("/api/v1/node", {"Accept-Encoding": "gzip"})
        assert gzip.decompress(packed.body) == answer.body


@in_loop
async def test_the_page_loads_only_what_the_agent_serves_and_runs_nothing_inline() -> None:
    async with running() as site:
        site.site.publish(snapshot(1, USE))
        html = (await site.ask("/")).body.decode()
        links = re.findall(r'(?:src|href)="([^"]*)"', html)
        assert set(links) >= {"page.css", "page.js", "icon.svg"}
        for link in links:
            if not link.startswith("#"):
                assert (await site.ask(f"/{link}")).status == 200
        everything = html + "".join(
            [(await site.ask(f"/{name}")).body.decode() for name in ("page.css", "page.js")]
        )
        assert not re.search(r"(?i)\son[a-z]+\s*=|<style|\sstyle=|javascript:|<script(?![^>]*\ssrc=)", html)
        assert not re.search(r"(?i)@import|url\(|eval\(|innerHTML|document\.write|new Function", everything)
        assert set(re.findall(r"https?://[^\s\"']+", everything)) <= {"http://www.w3.org/2000/svg"}


def test_all_static_files_are_known_to_the_server() -> None:
    from clusterwatt.expose.server import STATIC

    assert {file.name for file in (resources.files("clusterwatt.expose") / "static").iterdir()} == set(STATIC)


@pytest.mark.parametrize(
    ("listen", "host"), [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("localhost:0", "")]
)
def test_port_zero_gives_the_real_address(listen: str, host: str) -> None:
    if "::1" in listen and not _has_ipv6():
        pytest.skip("this machine has no IPv6")

    async def test() -> None:
        async with running(http=Http(listen=listen)) as site:
            assert site.address.port > 0
            assert not host or site.address.host == host
            assert (await site.ask("/healthz")).status == 200

    asyncio.run(test())


@in_loop
async def test_a_port_that_is_taken_is_named_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            OSError, match=rf"^http.listen: {re.escape(listen)}: another process .* another port$"
        ):
            async with running(http=Http(listen=listen)):
                pass


@in_loop
async def test_a_foreign_address_is_named_with_the_remedy() -> None:
    with pytest.raises(OSError, match=r"^http.listen: 192\.0\.2\.1:0: this machine has no such address"):
        async with running(http=Http(listen="192.0.2.1:0")):
            pass


@in_loop
async def test_stopping_ends_open_connections_and_frees_the_port() -> None:
    async with running() as site:
        reader, writer = await site.connect()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"ok\n")
        half, half_writer = await site.connect()
        half_writer.write(b"GET /hea")
        await site.site.stop()
        assert await asyncio.wait_for(reader.read(), 5) == b""
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(half.read(), 5) == b""
        for each in (writer, half_writer):
            each.close()
        with pytest.raises(OSError):
            await site.connect()


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False
