"""The fleet's one port: pages of nodes, discovery, the list, and nodes that do not answer."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clusterwatt.fleet.clock import FleetClock
from clusterwatt.fleet.scenario import CALM, Fault, Scenario
from clusterwatt.fleet.site import FleetSite
from tests.clocks import FakeClock
from tests.fleet.fleets import Ticking, looped, settings


@asynccontextmanager
async def served(folder: Path, scenario: Scenario = CALM) -> AsyncIterator[tuple[Ticking, str]]:
    ticking = Ticking(settings(3), folder, scenario)
    site = FleetSite(ticking.fleet.nodes, absent=ticking.fleet.absent, dead=ticking.fleet.dead)
    await ticking.tick(2)
    address = await site.start("127.0.0.1:0")
    try:
        yield ticking, f"http://{address}"
    finally:
        await site.stop()
        ticking.fleet.stop()


async def get(url: str) -> str:
    def ask() -> str:
        with urllib.request.urlopen(url, timeout=5) as answer:
            body: bytes = answer.read()
            return body.decode()

    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, ask)


@looped
async def test_every_node_has_its_pages_below_its_name(tmp_path: Path) -> None:
    async with served(tmp_path) as (ticking, url):
        for node in ticking.fleet.nodes:
            page = await get(f"{url}/{node.name}/metrics")
            assert page.count("clusterwatt_gpu_up{") == 8
        assert json.loads(await get(f"{url}/node-0002/api/v1/node"))["node"] == "node-0002"
        # Without the slash the browser would look for the page's files in the wrong place.
        assert "page.js" in await get(f"{url}/node-0002")
        assert "fetch" in await get(f"{url}/node-0002/page.js")


@looped
async def test_discovery_names_each_node_as_instance(tmp_path: Path) -> None:
    gone = Scenario(faults=(Fault("node_vanishes", "10s", "30s", "node-0002"),))
    async with served(tmp_path, gone) as (ticking, url):
        targets = json.loads(await get(f"{url}/sd"))
        assert [target["labels"]["instance"] for target in targets] == ["node-0001", "node-0002", "node-0003"]
        assert {target["labels"]["job"] for target in targets} == {"clusterwatt"}
        assert {f"http://{target['targets'][0]}" for target in targets} == {url}
        assert targets[0]["labels"]["__metrics_path__"] == "/node-0001/metrics"
        ticking.clock.advance(15)
        await ticking.tick()
        targets = json.loads(await get(f"{url}/sd"))
        assert [target["labels"]["instance"] for target in targets] == ["node-0001", "node-0003"]


@looped
async def test_a_dead_exporter_answers_nothing(tmp_path: Path) -> None:
    dead = Scenario(faults=(Fault("exporter_dies", "10s", "30s", "node-0001"),))
    async with served(tmp_path, dead) as (ticking, url):
        assert await get(f"{url}/node-0001/metrics")
        ticking.clock.advance(15)
        await ticking.tick()
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            await get(f"{url}/node-0001/metrics")
        assert await get(f"{url}/node-0002/metrics")
        assert "silent" in await get(f"{url}/")


@looped
async def test_the_list_names_nodes_and_their_jobs(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, url):
        page = await get(f"{url}/")
        assert page.count("<tr>") == 4
        assert '<a href="node-0003/">node-0003</a>' in page
        assert "pretrain-70b" in page


def test_the_clock_stands_still_within_a_tick_and_keeps_its_pace() -> None:
    real = FakeClock(wall_s=1_000.4)
    clock = FleetClock(real, speed=10.0, every_s=5.0)
    assert clock.wall_s() == 1_000.0
    real.advance(0.3)
    assert clock.wall_s() == 1_000.0
    assert clock.wait_s() == pytest.approx(0.2)
    real.advance(0.2)
    clock.step()
    assert clock.wall_s() == 1_005.0
    real.advance(1.5)  # a tick that took too long: what was missed is left out
    clock.step()
    assert clock.wall_s() == 1_020.0
