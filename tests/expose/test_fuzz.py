"""What the network may send: nonsense, floods, half of everything. The page stays quick, memory flat."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import time

import psutil
import pytest

from clusterwatt.config.model import Http
from clusterwatt.readings.gpu import GpuUse
from clusterwatt.readings.network import Network
from tests.expose.sites import RunningSite, running, snapshot
from tests.expose.test_gate import REQUEST, TASKS_CAP
from tests.expose.test_server import in_loop

USE = GpuUse("0", "GPU-a", 0.5)
SECRET = b"EXAMPLE-NOT-REAL"
BAD = [
    b"\x00" * 100 + b"\r\n\r\n",
    b"\xff\xfe GET / \r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",  # no Host
    b"GET http://" + SECRET + b"/metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET //metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /%00%ff%2e%2e/" + SECRET + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /" + SECRET * 500 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 2000 + b"\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + SECRET * 1500 + b"\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\n folded: " + SECRET + b"\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n",
    b"POST /api/v1/training HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xyz\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    b"CONNECT " + SECRET + b":443 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + SECRET + b"\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: " + b"a/b;q=0.1," * 1500 + b"\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x55" * 600 + b"\r\n\r\n",
]


async def quick(site: RunningSite) -> None:
    """A scrape succeeds within a second."""
    started_s = time.monotonic()
    assert (await site.ask("/metrics")).status == 200
    assert time.monotonic() - started_s < 1.0


@in_loop
async def test_bad_requests_are_ended_and_answered_without_an_echo() -> None:
    async with running(http=Http(listen="127.0.0.1:0", header_timeout_seconds=1.0)) as site:
        site.site.publish(snapshot(1, USE))
        for bad in BAD:
            answer = b""
            reader, writer = await site.connect()
            writer.write(bad)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                answer = await asyncio.wait_for(reader.read(), 5)
            writer.close()
            assert SECRET not in answer, bad[:80]
            assert b"Traceback" not in answer
            assert b"aiohttp" not in answer.lower()
            assert not answer or answer.startswith(b"HTTP/1."), bad[:80]
            assert not answer.startswith(b"HTTP/1.1 500"), bad[:80]
        await quick(site)


def test_a_thousand_broken_requests_leave_nothing_behind() -> None:
    """Requests of a known seed: pieces of good ones, cut, doubled and overwritten."""
    chance = random.Random(20_110)

    def broken() -> bytes:
        pieces = bytearray(chance.choice(BAD)[:2000] + REQUEST)
        for _ in range(chance.randrange(1, 20)):
            place = chance.randrange(len(pieces))
            pieces[place : place + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
        return bytes(pieces[: chance.randrange(1, len(pieces) + 1)])

    async def send(site: RunningSite) -> None:
        with contextlib.suppress(OSError):
            _, writer = await site.connect()
            writer.write(broken())
            await writer.drain()
            writer.transport.abort()

    async def test() -> None:
        async with running(http=Http(listen="127.0.0.1:0", header_timeout_seconds=1.0)) as site:
            site.site.publish(snapshot(1, USE))
            for _ in range(20):
                await asyncio.gather(*(send(site) for _ in range(50)))
                await quick(site)
            await asyncio.sleep(0.1)
            assert site.site._gate is not None
            assert not site.site._gate._open
            assert not site.site._gate._of_client

    asyncio.run(test())


@pytest.mark.parametrize(
    "connections",
    [pytest.param(1_500, id="short"), pytest.param(20_000, id="long", marks=pytest.mark.full)],
)
def test_thousands_of_connections_leave_the_scrape_quick_and_memory_flat(connections: int) -> None:
    """More than may be open at a time, each with a piece of a request; none of them goes by itself."""

    async def test() -> None:
        async with running() as site:
            site.site.publish(
                snapshot(1, *(Network(f"eth{n}", "physical", receive_bytes=float(n)) for n in range(2000)))
            )
            await quick(site)
            gc.collect()
            process = psutil.Process()
            memory, most_memory, most_tasks = process.memory_info().rss, 0, 0
            loop, kept = asyncio.get_running_loop(), []
            for number in range(connections):
                client = socket.socket()
                client.setblocking(False)
                await loop.sock_connect(client, (site.address.host, site.address.port))
                client.send(REQUEST[: number % 30])
                kept.append(client)
                if len(kept) > 700:  # more than the site keeps
                    kept.pop(0).close()
                if number % 250 == 249:
                    await quick(site)
                    most_memory = max(most_memory, process.memory_info().rss)
                    most_tasks = max(most_tasks, len(asyncio.all_tasks()))
            assert most_memory - memory < 20 * 2**20
            assert most_tasks <= TASKS_CAP
            for client in kept:
                client.close()

    asyncio.run(test())
