from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import threading
import time

import psutil
import pytest

from clusterwatt.config.model import Http
from clusterwatt.expose.gate import Connection, Gate, GateLimits, client_of
from clusterwatt.readings.agent import ConnectionsRefused
from clusterwatt.readings.gpu import GpuUse
from clusterwatt.readings.network import Network
from tests.expose.sites import CountingRenderer, RunningSite, running, snapshot
from tests.expose.test_server import SlowRenderer, in_loop

USE = GpuUse("0", "GPU-a", 0.5)
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
TASKS_CAP = 64


async def closed(reader: asyncio.StreamReader, within_s: float = 5.0) -> bytes:
    """What still comes until the server ends the connection."""
    try:
        return await asyncio.wait_for(reader.read(), within_s)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize(
    ("head_s", "pause_s", "lasting_s", "between_s"),
    [
        pytest.param(1.0, 0.05, 3.0, 0.2, id="short"),
        pytest.param(10.0, 1.0, 60.0, 5.0, id="as in the field", marks=pytest.mark.full),
    ],
)
def test_g27_slow_clients_block_nobody(
    head_s: float, pause_s: float, lasting_s: float, between_s: float
) -> None:
    """200 connections send a request byte by byte while others scrape."""

    async def test() -> None:
        renderer = CountingRenderer()
        http = Http(listen="127.0.0.1:0", header_timeout_seconds=head_s)
        async with running(renderer, http) as site:
            devices = (Network(f"eth{n}", "physical", receive_bytes=float(n)) for n in range(2000))
            site.site.publish(snapshot(1, *devices))
            assert (await site.ask("/metrics")).status == 200
            gc.collect()
            process = psutil.Process()
            memory_before, threads_before = process.memory_info().rss, threading.active_count()
            slow = await slow_clients(site, 200)
            opened_s = time.monotonic()
            ended_s: list[float] = []
            scrapes_s: list[float] = []
            most_tasks, most_memory, sent, next_scrape_s = 0, 0, 0, opened_s
            while time.monotonic() - opened_s < lasting_s:
                for client in tuple(slow):
                    if not still_open(client, REQUEST[sent % 30 : sent % 30 + 1]):
                        slow.remove(client)
                        ended_s.append(time.monotonic() - opened_s)
                sent += 1
                if time.monotonic() >= next_scrape_s:
                    next_scrape_s += between_s
                    started_s = time.monotonic()
                    assert (await site.ask("/metrics")).status == 200
                    scrapes_s.append(time.monotonic() - started_s)
                most_tasks = max(most_tasks, len(asyncio.all_tasks()))
                most_memory = max(most_memory, process.memory_info().rss)
                await asyncio.sleep(pause_s)
            assert not slow
            assert len(ended_s) == 200
            assert max(ended_s) < 3 * head_s
            assert max(scrapes_s) < 1.0
            assert len(scrapes_s) >= 10
            assert most_tasks <= TASKS_CAP
            assert threading.active_count() == threads_before
            assert most_memory - memory_before < 20 * 2**20

    asyncio.run(test())


async def slow_clients(site: RunningSite, number: int) -> list[socket.socket]:
    """Plain sockets, which have no task of their own."""
    clients = []
    for _ in range(number):
        client = socket.socket()
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, (site.address.host, site.address.port))
        clients.append(client)
    return clients


def still_open(client: socket.socket, byte: bytes) -> bool:
    try:
        client.send(byte)
        ended = client.recv(65_536) == b""
    except BlockingIOError:
        return True
    except OSError:
        ended = True
    if ended:
        client.close()
    return not ended


@in_loop
async def test_a_further_request_on_a_kept_connection_has_a_deadline_too() -> None:
    http = Http(listen="127.0.0.1:0", header_timeout_seconds=0.3)
    async with running(http=http) as site:
        reader, writer = await site.connect()
        for _ in range(3):
            writer.write(REQUEST)
            await reader.readuntil(b"ok\n")
            await asyncio.sleep(0.2)  # idle for longer than a head may take in all
        await asyncio.sleep(0.2)
        writer.write(REQUEST[:10])
        assert await closed(reader) == b""
        writer.close()


@in_loop
async def test_a_request_in_pieces_and_two_at_once_are_understood() -> None:
    async with running() as site:
        reader, writer = await site.connect()
        for position in range(len(REQUEST)):
            writer.write(REQUEST[position : position + 1])
            await writer.drain()
            await asyncio.sleep(0)
        await reader.readuntil(b"ok\n")
        writer.write(REQUEST + REQUEST + REQUEST[:20])
        await reader.readuntil(b"ok\n")
        await reader.readuntil(b"ok\n")
        await asyncio.sleep(0.05)
        writer.write(REQUEST[20:])
        await reader.readuntil(b"ok\n")
        writer.close()


@in_loop
async def test_a_head_without_end_is_refused() -> None:
    async with running() as site:
        answer = await site.send(b"GET /healthz HTTP/1.1\r\nX-Long: " + b"a" * 17_000)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert answer.endswith(b"\r\n\r\nheader too large\n")


@in_loop
async def test_a_head_that_is_a_little_too_large_and_whole_is_refused_alike() -> None:
    async with running() as site:
        for size in (16_400, 60_000, 100_000):
            answer = await site.send(b"GET /healthz HTTP/1.1\r\nX: " + b"a" * size + b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 431 "), size


MUCH = b"a" * 5_000_000


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: %b\r\n\r\n" % MUCH, 431, id="header"),
        pytest.param(b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % MUCH, 431, id="path"),
        pytest.param(b"GET /metrics HTTP/1.1\nHost: x\n\n" + MUCH, 400, id="line ends"),
        pytest.param(b"GET /metrics SPDY/9\r\nHost: x\r\n\r\n" + MUCH, 400, id="no HTTP"),
        pytest.param(
            b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(MUCH) + MUCH,
            405,
            id="body",
        ),
    ],
)
def test_who_sends_more_than_is_read_can_read_the_answer(request_: bytes, status: int) -> None:
    """A client of the plainest kind: it sends all that it has to say, and only then looks for an answer."""

    def talk(address: tuple[str, int]) -> bytes:
        with socket.create_connection(address, timeout=20) as client:
            client.sendall(request_)
            return b"".join(iter(lambda: client.recv(4096), b""))

    async def test() -> None:
        async with running() as site:
            answer = await asyncio.to_thread(talk, (site.address.host, site.address.port))
            assert answer.split(b" ", 2)[1] == b"%d" % status
            assert answer.endswith(b"\n")

    asyncio.run(test())


@in_loop
async def test_what_nobody_wants_is_read_to_a_limit_and_for_a_while_only() -> None:
    for limits in (GateLimits(leaving_s=30.0, max_unwanted_bytes=100_000), GateLimits(leaving_s=0.2)):
        gate = Gate(lambda _: SilentServer(), limits)
        listening = await asyncio.get_running_loop().create_server(gate, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        writer.write(b"x" * 20_000)
        await reader.readuntil(b"header too large\n")

        async def go_on(writer: asyncio.StreamWriter = writer) -> None:
            while True:
                writer.write(b"x" * 10_000)
                await writer.drain()
                await asyncio.sleep(0.01)

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(go_on(), 10.0)
        assert not gate._open
        listening.close()
        await listening.wait_closed()


@in_loop
async def test_who_has_the_last_answer_takes_no_place_of_those_who_wait() -> None:
    async with running() as site:
        slow = [await site.connect() for _ in range(GateLimits().max_served)]
        for reader, writer in slow:
            writer.write(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
            await reader.readuntil(b"method not allowed\n")
        reader, writer = await site.connect()
        writer.write(REQUEST)
        await asyncio.wait_for(reader.readuntil(b"ok\n"), 1.0)
        for _, each in (*slow, (reader, writer)):
            each.close()


def test_requests_that_pile_up_behind_one_in_work_are_held_to_a_limit() -> None:
    """The limit of a head is that of the first; the others come while it is in work."""

    async def test() -> None:
        renderer = SlowRenderer()
        async with running(renderer) as site:
            site.site.publish(snapshot(1, USE))
            reader, writer = await site.connect()
            try:
                writer.write(REQUEST.replace(b"healthz", b"metrics"))
                await asyncio.sleep(0.1)
                field = b"X-%d: " + b"x" * 1_000 + b"\r\n"
                head = REQUEST[:-2] + b"".join(field % number for number in range(15)) + b"\r\n"
                for _ in range(20):
                    writer.write(head)
                assert await closed(reader, 3) == b""
            finally:
                renderer.go_on.set()
                writer.close()

    asyncio.run(test())


@in_loop
async def test_many_requests_one_after_the_other_are_held_to_no_limit() -> None:
    async with running() as site:
        reader, writer = await site.connect()
        head = REQUEST[:-2] + b"X: " + b"x" * 15_000 + b"\r\n\r\n"
        for _ in range(40):
            writer.write(head + REQUEST)
            await reader.readuntil(b"ok\n")
            await reader.readuntil(b"ok\n")
        writer.close()


@in_loop
async def test_a_body_is_not_taken_in() -> None:
    async with running() as site:
        reader, writer = await site.connect()
        writer.write(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n" + b"a" * 1000)
        started_s = time.monotonic()
        answer = await closed(reader)
        assert answer.startswith(b"HTTP/1.1 405 ")
        assert time.monotonic() - started_s < 3
        writer.close()


@in_loop
async def test_beyond_the_limit_the_longest_silent_connection_makes_room() -> None:
    http = Http(listen="127.0.0.1:0", max_connections=3)
    async with running(http=http) as site:
        kept = [await site.connect() for _ in range(3)]
        for _, writer in kept:
            writer.write(REQUEST[:10])
        reader, writer = await site.connect()
        writer.write(REQUEST)
        await reader.readuntil(b"ok\n")
        assert await closed(kept[0][0], 1.0) == b""
        kept[1][1].write(REQUEST[10:])
        await kept[1][0].readuntil(b"ok\n")
        writer.close()
        for _, writer in kept:
            writer.close()


class SilentServer(asyncio.Protocol):
    """Takes a request and never answers."""


@in_loop
async def test_where_all_connections_have_a_request_in_work_further_ones_are_closed_at_once() -> None:
    gate = Gate(lambda _: SilentServer(), GateLimits(max_connections=3))
    listening = await asyncio.get_running_loop().create_server(gate, "127.0.0.1", 0)
    busy = [await asyncio.open_connection(*listening.sockets[0].getsockname()) for _ in range(3)]
    for _, writer in busy:
        writer.write(REQUEST)
    await asyncio.sleep(0.05)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    assert await closed(reader, 1.0) == b""
    writer.close()
    for reader, writer in busy:
        gate.close()
        assert await closed(reader, 1.0) == b""
        writer.close()
    listening.close()
    await listening.wait_closed()


def test_one_client_has_a_share_of_the_connections_but_for_the_loopback() -> None:
    gate = Gate(lambda _: SilentServer(), GateLimits(max_connections_per_client=1))
    assert client_of(("127.0.0.1", 4711)) == client_of(("::ffff:127.0.0.1", 4711, 0, 0)) == ""
    assert client_of("") == client_of(None) == client_of(("::1", 4711, 0, 0)) == ""
    assert client_of(("::ffff:192.0.2.1", 1, 0, 0)) == client_of(("192.0.2.1", 2)) == "192.0.2.1"
    assert client_of(("2001:db8::1", 1, 0, 0)) == client_of(("2001:db8::2:1%eth0", 1, 0, 0)) != ""
    first, second, other = (Connection(gate) for _ in range(3))
    first.address = second.address = ("192.0.2.1", 1)
    other.address = ("192.0.2.2", 1)
    assert [gate.opened(one) for one in (first, second, other)] == [True, False, True]
    gate.closed(first)
    gate.closed(first)
    assert gate.opened(second)
    assert sum(reading.connections for reading in gate.refused()) == 1


@in_loop
async def test_kept_connections_make_room_for_new_requests() -> None:
    async with running() as site:
        kept = []
        for _ in range(GateLimits().max_served):
            reader, writer = await site.connect()
            writer.write(REQUEST)
            await reader.readuntil(b"ok\n")
            kept.append((reader, writer))
        assert len(asyncio.all_tasks()) <= TASKS_CAP
        assert (await site.ask("/healthz")).status == 200
        assert await closed(kept[0][0], 1.0) == b""  # the longest idle
        kept[1][1].write(REQUEST)
        await kept[1][0].readuntil(b"ok\n")
        for _, writer in kept:
            writer.close()


@in_loop
async def test_many_clients_at_once_are_all_answered() -> None:
    async with running() as site:
        site.site.publish(snapshot(1, USE))
        await site.ask("/metrics")
        most_tasks = 0
        asked = [asyncio.create_task(site.ask("/metrics")) for _ in range(150)]
        while not all(task.done() for task in asked):
            most_tasks = max(most_tasks, sum(map(belongs_to_server, asyncio.all_tasks())))
            await asyncio.sleep(0.001)
        assert {task.result().status for task in asked} == {200}
        assert 0 < most_tasks <= TASKS_CAP


class EchoServer(asyncio.Protocol):
    """Stands for the HTTP server: remembers what it was given."""

    def __init__(self) -> None:
        self.received = b""
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


@in_loop
async def test_a_client_that_does_not_read_its_answer_is_cut_off() -> None:
    servers: list[EchoServer] = []

    def make(_: object) -> EchoServer:
        servers.append(EchoServer())
        return servers[-1]

    gate = Gate(make, GateLimits(exchange_s=0.2))
    listening = await asyncio.get_running_loop().create_server(gate, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    writer.write(REQUEST)
    assert await closed(reader, 2.0) == b""
    assert servers[0].received == REQUEST
    assert servers[0].lost
    writer.close()
    listening.close()
    await listening.wait_closed()


@in_loop
async def test_a_client_that_reads_only_part_of_a_large_page_is_cut_off() -> None:
    async with running() as site:
        interfaces = (Network(f"eth{n}" * 600, "physical", receive_bytes=1.0) for n in range(4000))
        site.site.publish(snapshot(1, *interfaces))
        await site.ask("/metrics")
        assert site.site._gate is not None
        site.site._gate.limits = GateLimits(exchange_s=1.0, idle_s=60)
        reader, writer = await site.connect()
        transport = writer.transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        transport.pause_reading()  # type: ignore[attr-defined]  # a read transport, too
        await asyncio.sleep(0.1)
        assert len(site.site._gate._served) == 1
        assert (await site.ask("/healthz")).status == 200
        end_s = time.monotonic() + 5
        while site.site._gate._served:
            assert time.monotonic() < end_s
            await asyncio.sleep(0.05)
        writer.close()


def belongs_to_server(task: asyncio.Task[object]) -> bool:
    return "RequestHandler" in str(task.get_coro())


@in_loop
async def test_empty_lines_before_a_request_take_no_place() -> None:
    """As many clients as are served at once, and more, that send only line ends."""
    http = Http(listen="127.0.0.1:0", header_timeout_seconds=1.0)
    async with running(http=http) as site:
        blank = [await site.connect() for _ in range(2 * GateLimits().max_served)]
        for _, writer in blank:
            writer.write(b"\r\n\r\n")
        reader, asking = await site.connect()
        asking.write(b"\r\n" + REQUEST)
        await asyncio.wait_for(reader.readuntil(b"ok\n"), 0.9)
        for reader, writer in blank:
            assert await closed(reader, 2.0) == b""  # line ends do not put their deadline off
            writer.close()
        asking.close()


@in_loop
async def test_a_request_that_waits_is_not_cut_off_as_if_it_were_not_here() -> None:
    servers: list[EchoServer] = []

    def make(_: object) -> EchoServer:
        servers.append(EchoServer())
        return servers[-1]

    gate = Gate(make, GateLimits(head_s=0.1, exchange_s=0.3, waiting_s=2.0, max_served=1))
    listening = await asyncio.get_running_loop().create_server(gate, "127.0.0.1", 0)
    clients = [await asyncio.open_connection(*listening.sockets[0].getsockname()) for _ in range(3)]
    for _, writer in clients:
        writer.write(REQUEST)
    for reader, writer in clients:
        await closed(reader, 3.0)
        writer.close()
    assert [server.received for server in servers] == [REQUEST] * 3
    listening.close()
    await listening.wait_closed()


@in_loop
async def test_a_client_that_has_said_all_that_it_will_say_is_answered() -> None:
    async with running() as site:
        reader, writer = await site.connect()
        writer.write(REQUEST)
        writer.write_eof()
        answer = await closed(reader, 2.0)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"ok\n")
        writer.close()


@in_loop
async def test_half_a_request_that_ends_is_let_go_of_at_once() -> None:
    async with running() as site:
        reader, writer = await site.connect()
        writer.write(REQUEST[:20])
        writer.write_eof()
        assert await closed(reader, 1.0) == b""
        writer.close()


@pytest.mark.parametrize("head", [b"GET /healthz HTTP/1.1\nHost: x\n\n", b"GET /healthz HTTP/1.0\n\r\n"])
def test_lines_that_end_without_a_carriage_return_are_refused_at_once(head: bytes) -> None:
    async def test() -> None:
        async with running() as site:
            answer = await asyncio.wait_for(site.send(head), 2.0)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert answer.endswith(b"\r\n\r\nbad request\n")

    asyncio.run(test())


def test_who_is_not_let_in_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """600 half requests shut others out for a while: the agent says so, on its page and in its log."""

    async def test() -> None:
        http = Http(listen="127.0.0.1:0", max_connections=5)
        async with running(http=http) as site:
            half = [await site.connect() for _ in range(5 + 7)]
            for reader, _ in half[:7]:
                assert await closed(reader, 1.0) == b""
            assert {r.reason: r.connections for r in refused(site)} == {
                "max_connections": 7.0,
                "max_connections_per_client": 0.0,
                "no_descriptors": 0.0,
                "busy": 0.0,
            }
            for _, writer in half:
                writer.close()

    asyncio.run(test())
    (said,) = [record.getMessage() for record in caplog.records if record.name == "clusterwatt.expose.gate"]
    assert "http.max_connections" in said


def refused(site: RunningSite) -> list[ConnectionsRefused]:
    return [reading for reading in site.site.readings() if isinstance(reading, ConnectionsRefused)]


def test_without_descriptors_connections_wait_and_the_log_stays_quiet(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As with `ulimit -n`: asyncio's own server tells of each accept that fails, a hundred times a round."""

    async def test() -> None:
        async with running() as site:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            clients = [socket.socket() for _ in range(10)]
            taken = os.dup(0)
            resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 1, hard))
            try:
                for client in clients:
                    client.setblocking(False)
                    await asyncio.get_running_loop().sock_connect(
                        client, (site.address.host, site.address.port)
                    )
                await asyncio.sleep(0.3)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                os.close(taken)
            assert len(caplog.records) == 1, caplog.text
            assert (await asyncio.wait_for(site.ask("/healthz"), 5.0)).status == 200
            for client in clients:
                client.close()

    asyncio.run(test())


def test_connections_leave_descriptors_to_the_collectors() -> None:
    async def test() -> None:
        async with running() as site:
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            open_now = max(map(int, os.listdir("/proc/self/fd")))
            clients = [socket.socket() for _ in range(open_now + 60)]
            used = max(map(int, os.listdir("/proc/self/fd")))
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 60, limits[1]))
            try:
                for client in clients:
                    client.setblocking(False)
                    await asyncio.get_running_loop().sock_connect(
                        client, (site.address.host, site.address.port)
                    )
                await asyncio.sleep(0.2)
                spare = [os.dup(0) for _ in range(16)]
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for descriptor in spare:
                os.close(descriptor)
            for client in clients:
                client.close()
            counts = {reading.reason: reading.connections for reading in refused(site)}
            assert counts["no_descriptors"] > 0
            assert counts["max_connections"] == 0

    asyncio.run(test())
