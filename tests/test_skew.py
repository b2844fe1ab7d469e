"""How old a counter is when it is scraped: at most 1.2 s (RDMA 2.2 s), also beside a source that hangs.

A counter that was read long before the scrape makes its rate wrong by as much.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.collectors import Collector
from clusterwatt.collectors.cpu import CpuCollector
from clusterwatt.collectors.ethernet import EthernetCollector
from clusterwatt.collectors.rdma import RdmaCollector
from clusterwatt.config.model import EthernetCollector as EthernetSettings
from clusterwatt.config.model import RdmaCollector as RdmaSettings
from clusterwatt.pipeline import Pipeline
from clusterwatt.readings.base import Reading
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.source import Account, Source
from clusterwatt.sysfs import Files

H100_NODE = Path(__file__).parent / "roots/h100-ib"
SCRAPES = 40
LIMITS_S = {"cpu": 1.2, "ethernet": 1.2, "rdma": 2.2}


class Hanging:
    """A collector whose call does not come back."""

    name = "hanging"

    def __init__(self, release: threading.Event) -> None:
        self._release = release

    def collect(self) -> list[Reading]:
        self._release.wait()
        return []


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_no_counter_is_older_than_promised_when_it_is_scraped(release: threading.Event) -> None:
    clock = SystemClock()
    files = [Files(H100_NODE, clock) for _ in range(3)]
    collectors: list[tuple[Collector, float]] = [
        (CpuCollector(files[0]), 1.0),
        (EthernetCollector(files[1], EthernetSettings(), clock), 1.0),
        (RdmaCollector(files[2], RdmaSettings(), clock), 2.0),
        (Hanging(release), 1.0),
    ]
    sources = [Source(c, every_s, clock, Account(c.name, clock)) for c, every_s in collectors]
    published: list[tuple[Snapshot, dict[str, float]]] = []

    def publish(snapshot: Snapshot) -> None:
        published.append((snapshot, {source.name: source.read_s for source in sources}))

    ages: dict[str, list[float]] = {name: [] for name in LIMITS_S}

    async def scrape() -> None:
        """Look at the newest snapshot at random times, as scrapers do."""
        stop = asyncio.Event()
        ticks = asyncio.create_task(Pipeline(sources, None, clock, publish).run(stop))
        await asyncio.sleep(0.3)  # the first snapshot is there, also beside the first call that hangs
        chance = random.Random(1)
        for _ in range(SCRAPES):
            await asyncio.sleep(chance.uniform(0.05, 0.2))
            now_s = clock.monotonic_s()
            for name, seen in ages.items():
                seen.append(now_s - published[-1][1][name])
        stop.set()
        await ticks

    asyncio.run(scrape())
    oldest = {name: max(ages[name]) for name in LIMITS_S}
    assert all(oldest[name] <= limit_s for name, limit_s in LIMITS_S.items()), oldest
    assert oldest["cpu"] > 0.5, "the scrapes did not meet old snapshots: the test shows nothing"
