"""/dcgm/metrics over HTTP: made once for each snapshot, and only when somebody asks."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from clusterwatt.config.model import Http
from clusterwatt.expose.dcgm.page import DcgmPage
from clusterwatt.expose.history import History
from clusterwatt.expose.server import Site
from clusterwatt.readings.gpu import GpuTemperature
from clusterwatt.readings.snapshot import Snapshot
from tests.expose.dcgm.pages import GPU_A, A, page_for, snapshot
from tests.expose.sites import OPENMETRICS, TEXT, CountingRenderer, RunningSite, Told

PATH = "/dcgm/metrics"


class Counted:
    """Counts how often a page is made."""

    def __init__(self, page: DcgmPage) -> None:
        self._take = page.take
        self.made = 0
        page.take = self.take  # type: ignore[method-assign]  # put in between

    def take(self, snapshot: Snapshot) -> Callable[[], bytes]:
        return partial(self._make, self._take(snapshot))

    def _make(self, make: Callable[[], bytes]) -> bytes:
        self.made += 1
        return make()


@contextlib.asynccontextmanager
async def running(page: DcgmPage | None) -> AsyncIterator[RunningSite]:
    told = Told()
    site = Site(
        CountingRenderer(),
        History(),
        node_name="gpu-node-17",
        ready=lambda: told.ready,
        alive=lambda: told.alive,
        dcgm=page,
    )
    address = await site.start(Http(listen="127.0.0.1:0"))
    try:
        yield RunningSite(site, address, told)
    finally:
        await site.stop()


def hot(celsius: float, monotonic_s: float = 1000.0) -> Snapshot:
    return snapshot(GPU_A, GpuTemperature("0", A, "core", celsius), monotonic_s=monotonic_s)


def test_a_scrape_gets_the_newest_snapshot(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(page_for(tmp_path, "DCGM_FI_DEV_GPU_TEMP")) as site:
            assert (await site.ask(PATH)).status == 503
            for celsius in (61.0, 62.0):
                site.site.publish(hot(celsius, 1000.0 + celsius))
            answer = await site.ask(PATH, {"Accept": OPENMETRICS})
            assert (answer.status, answer.headers["Content-Type"]) == (200, TEXT)
            assert answer.body.endswith(b"} 62\n")
            packed = await site.ask(PATH, {"Accept-Encoding": "gzip"})
            assert gzip.decompress(packed.body) == answer.body

    asyncio.run(test())


def test_it_is_made_once_for_each_snapshot_and_not_unasked(tmp_path: Path) -> None:
    async def test() -> None:
        page = page_for(tmp_path, "DCGM_FI_DEV_GPU_TEMP")
        counted = Counted(page)
        async with running(page) as site:
            for second in range(10):
                site.site.publish(hot(60.0, 1000.0 + second))
            assert (await site.ask("/metrics")).status == 200
            assert counted.made == 0
            answers = await asyncio.gather(*(site.ask(PATH) for _ in range(8)))
            assert {answer.status for answer in answers} == {200}
            assert counted.made == 1

    asyncio.run(test())


def test_old_values_are_not_served_as_new(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(page_for(tmp_path, "DCGM_FI_DEV_GPU_TEMP")) as site:
            site.site.publish(hot(60.0))
            site.told.alive = False
            assert (await site.ask(PATH)).status == 503

    asyncio.run(test())


def test_it_can_be_switched_off() -> None:
    async def test() -> None:
        async with running(None) as site:
            site.site.publish(hot(60.0))
            assert (await site.ask(PATH)).status == 404

    asyncio.run(test())


def test_another_page_comes_with_the_next_snapshot(tmp_path: Path) -> None:
    async def test() -> None:
        renderer = CountingRenderer()
        async with running(page_for(tmp_path, "DCGM_FI_DEV_GPU_TEMP")) as site:
            site.site.publish(hot(60.0))
            site.site.use(renderer, page_for(tmp_path, "dcgm_gpu_temp"))
            assert (await site.ask(PATH)).body.startswith(b"# HELP DCGM_FI_DEV_GPU_TEMP ")
            site.site.publish(hot(60.0, 1001.0))
            assert (await site.ask(PATH)).body.startswith(b"# HELP dcgm_gpu_temp ")

    asyncio.run(test())


def test_a_page_that_cannot_be_made_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        page = page_for(tmp_path, "DCGM_FI_DEV_GPU_TEMP")
        monkeypatch.setattr(page, "take", lambda _: partial(int, "not a number"))
        async with running(page) as site:
            site.site.publish(hot(60.0))
            assert (await site.ask(PATH)).status == 500
            assert (await site.ask("/metrics")).status == 200

    asyncio.run(test())
