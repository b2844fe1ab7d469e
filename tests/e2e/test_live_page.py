"""The live page in a real browser: what somebody sees who opens it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.browser import Tab, tab
from tests.e2e.servers import Server, agent, end

pytestmark = [pytest.mark.e2e, pytest.mark.full]

GPUS = 8
SHOWN_S = 15.0
UPDATED_S = 15.0
PNG = b"\x89PNG\r\n\x1a\n"
PICTURES = Path(__file__).resolve().parents[2] / ".cache" / "pictures"
GPU_ROWS = "document.querySelectorAll('#gpus tbody tr').length"
VISIBLE = "document.getElementById('{}').checkVisibility()"


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Server]:
    """The agent with simulated GPUs."""
    with agent(tmp_path, "--simulate", "h100") as server:
        yield server


async def opened(page: Tab, server: Server) -> None:
    """Open the live page and wait until it shows all GPUs."""
    await page.send("Page.navigate", url=f"{server.url}/")
    await page.until(f"{GPU_ROWS} === {GPUS}", SHOWN_S)


def test_it_shows_eight_gpus_and_updates_by_itself(
    ours: Server, chromium_program: Path, tmp_path: Path
) -> None:
    async def look() -> None:
        async with tab(chromium_program, tmp_path) as page:
            await opened(page, ours)
            assert await page.ask(VISIBLE.format("simulated")), "nobody is told that the GPUs are simulated"
            assert not await page.ask("document.getElementById('gpus').innerText.includes('NaN')")
            await page.ask("window.sameDocument = true; window.shownFirst = document.body.innerText; 1")
            await page.until("document.body.innerText !== window.shownFirst", UPDATED_S)
            assert await page.ask("window.sameDocument"), "it was loaded anew instead"
            assert await page.ask(GPU_ROWS) == GPUS
            PICTURES.mkdir(parents=True, exist_ok=True)
            picture = PICTURES / "page.png"
            await page.screenshot(picture)
            assert picture.read_bytes().startswith(PNG)
            assert picture.stat().st_size > 20_000, "an empty page is smaller"
            assert page.errors == []

    asyncio.run(look())


@pytest.mark.parametrize("width", [390, 820, 1920])
def test_nothing_sticks_out_at_the_side(
    width: int, ours: Server, chromium_program: Path, tmp_path: Path
) -> None:
    async def look() -> None:
        async with tab(chromium_program, tmp_path, f"{width},900") as page:
            await page.send(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=900,
                deviceScaleFactor=1,
                mobile=False,
            )
            await opened(page, ours)
            assert await page.ask("document.documentElement.scrollWidth") <= width
            assert page.errors == []

    asyncio.run(look())


def test_it_says_when_the_agent_has_gone(ours: Server, chromium_program: Path, tmp_path: Path) -> None:
    async def look() -> None:
        async with tab(chromium_program, tmp_path) as page:
            await opened(page, ours)
            end(ours.process)
            await page.until("document.getElementById('connection').dataset.state === 'lost'", 2 * UPDATED_S)

    asyncio.run(look())
