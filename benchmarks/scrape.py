"""How long a scrape of 3 000 series takes: the first of a snapshot, and one that finds the page rendered.

    python -m benchmarks.scrape [scrapes]

Server and client share the process and one loop, so figures contain the client's work as well.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Mapping

from benchmarks.render import LIMIT, catalog, snapshot
from clusterwatt.config.model import Http
from clusterwatt.expose.history import History
from clusterwatt.expose.render import Renderer
from clusterwatt.expose.server import Site

Took = tuple[float, float]

REQUESTS: Mapping[str, bytes] = {
    "text": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    "OpenMetrics, gzip": (
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n"
        b"Accept: application/openmetrics-text;version=1.0.0\r\nAccept-Encoding: gzip\r\n\r\n"
    ),
    "JSON of the live page": b"GET /api/v1/node HTTP/1.1\r\nHost: x\r\n\r\n",
}


async def scrape(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> Took:
    """Milliseconds of one request on a kept connection: on the clock, and of CPU."""
    started, cpu_started = time.perf_counter(), time.process_time()
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return (time.perf_counter() - started) * 1e3, (time.process_time() - cpu_started) * 1e3


def report(name: str, took: list[Took]) -> None:
    """Print median and 99th percentile: of the clock, and of CPU, which busy neighbours leave alone."""
    text = f"  {name:29}"
    for kind, ms in zip(("", "CPU "), map(sorted, zip(*took, strict=True)), strict=True):
        text += f"  {kind}median {statistics.median(ms):5.2f} ms, p99 {ms[int(len(ms) * 0.99)]:5.2f} ms"
    print(text)


async def main() -> None:
    """Measure each kind of request, fresh and again."""
    scrapes = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    site = Site(
        Renderer(catalog(335), "full", {}, LIMIT),
        History(),
        node_name="node",
        ready=lambda: (True, "ok"),
        alive=lambda: True,
    )
    address = await site.start(Http(listen="127.0.0.1:0"))
    reader, writer = await asyncio.open_connection(address.host, address.port, limit=1 << 22)
    rng = random.Random(1)
    tick = 0
    for name, request in REQUESTS.items():
        fresh, again = [], []
        for _ in range(scrapes):
            tick += 1
            site.publish(snapshot(tick, rng))
            fresh.append(await scrape(reader, writer, request))
            again.append(await scrape(reader, writer, request))
        report(f"{name}, fresh", fresh)
        report(f"{name}, again", again)
    writer.close()
    await site.stop()


if __name__ == "__main__":
    asyncio.run(main())
