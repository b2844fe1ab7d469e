"""A site on the loopback with snapshots made by hand, and plain ways to talk to it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping

import aiohttp
import msgspec

from clusterwatt.config.model import Http
from clusterwatt.expose.history import History
from clusterwatt.expose.render import Page, Renderer
from clusterwatt.expose.server import BoundAddress, Site
from clusterwatt.expose.training import Reception, ReportSocket
from clusterwatt.expose.web_file import WebFile
from clusterwatt.readings.base import Reading
from clusterwatt.readings.snapshot import Snapshot
from tests.expose.test_render import CATALOG

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class CountingRenderer(Renderer):
    """Counts how often it renders."""

    def __init__(self) -> None:
        super().__init__(CATALOG, "full", {}, 10_000)
        self.rendered: list[tuple[int, bool]] = []

    def render(self, snapshot: Snapshot, *, openmetrics: bool) -> Page:
        self.rendered.append((snapshot.tick, openmetrics))
        return super().render(snapshot, openmetrics=openmetrics)


class Told:
    """What a test lets the agent say of itself."""

    def __init__(self) -> None:
        self.alive = True
        self.ready = (True, "ok")


class Answer(msgspec.Struct):
    status: int
    headers: Mapping[str, str]
    body: bytes


class RunningSite:
    def __init__(self, site: Site, address: BoundAddress, told: Told) -> None:
        self.site = site
        self.address = address
        self.told = told

    async def ask(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        *,
        tls: ssl.SSLContext | None = None,
    ) -> Answer:
        """One request by a real client, on a connection of its own; the body as it came."""
        async with (
            aiohttp.ClientSession(
                auto_decompress=False, skip_auto_headers=["Accept-Encoding", "Accept"]
            ) as client,
            client.request(
                method, f"{self.address.url}{path}", headers=headers, ssl=True if tls is None else tls
            ) as response,
        ):
            return Answer(response.status, response.headers, await response.read())

    async def connect(
        self, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.address.host, self.address.port, ssl=tls)

    async def send(self, request: bytes) -> bytes:
        """What the server answers to these bytes until it closes."""
        reader, writer = await self.connect()
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await writer.wait_closed()
        return answer


@contextlib.asynccontextmanager
async def running(
    renderer: Renderer | None = None,
    http: Http | None = None,
    reports: tuple[Reception, ReportSocket] | None = None,
    web_file: WebFile | None = None,
) -> AsyncIterator[RunningSite]:
    told = Told()
    site = Site(
        renderer or CountingRenderer(),
        History(),
        node_name="gpu-node-17",
        ready=lambda: told.ready,
        alive=lambda: told.alive,
    )
    if reports is not None:
        site.use_reports(*reports)
    site.use_web_file(web_file)
    address = await site.start(http or Http(listen="127.0.0.1:0"))
    try:
        yield RunningSite(site, address, told)
    finally:
        await site.stop()


def snapshot(tick: int, *readings: Reading, monotonic_s: float = 1000.0) -> Snapshot:
    by_type: dict[type[Reading], tuple[Reading, ...]] = {}
    for reading in readings:
        by_type[type(reading)] = (*by_type.get(type(reading), ()), reading)
    return Snapshot(tick, 1_700_000_000.0 + tick, monotonic_s + tick, by_type)
