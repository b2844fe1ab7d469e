"""Reports over HTTP and over a Unix socket, with real connections, up to what is handed on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import aiohttp
import pytest

from clusterwatt.expose import training
from clusterwatt.expose.training import Peer, Reception, ReportSocket
from clusterwatt.readings.agent import ConnectionsRefused
from clusterwatt.training import Reporter
from clusterwatt.training.intake import Intake, Sender
from clusterwatt.training.report import MAX_BODY_BYTES, Report
from tests.clocks import FakeClock
from tests.expose.sites import RunningSite, running
from tests.expose.test_gate import slow_clients, still_open
from tests.expose.test_server import in_loop

JSON = {"Content-Type": "application/json"}


class Runs:
    """What was handed on."""

    def __init__(self) -> None:
        self.reports: list[tuple[Report, str]] = []

    def report(self, report: Report, owner: str, *, known: bool) -> bool:
        self.reports.append((report, owner))
        return True


def mine(peer: Peer) -> Sender:
    return Sender(client=f"uid {peer.uid}", known=True, owner=f"pid/{peer.pid}", job_id=f"pid/{peer.pid}")


class Receiving:
    """A site that takes reports."""

    def __init__(self, site: RunningSite, path: Path, runs: Runs) -> None:
        self.site = site
        self.path = path
        self.runs = runs

    async def post(
        self, body: object, *, over: str, headers: Mapping[str, str] = JSON, path: str = training.PATH
    ) -> tuple[int, list[str]]:
        """Status and faults."""
        connector = aiohttp.UnixConnector(str(self.path)) if over == "socket" else aiohttp.TCPConnector()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with (
            aiohttp.ClientSession(connector=connector) as client,
            client.post(f"http://{self.site.address}{path}", data=data, headers=headers) as answer,
        ):
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return answer.status, json.loads(text)["errors"] if is_json else [text.strip()]


@contextlib.asynccontextmanager
async def receiving(
    folder: Path, sender_of: Callable[[Peer], Sender] = mine, *, mode: int = 0o666
) -> AsyncIterator[Receiving]:
    runs, path = Runs(), folder / "agent.sock"
    reception = Reception(Intake(runs, FakeClock(wall_s=time.time())).take, sender_of, FakeClock())
    async with running(reports=(reception, ReportSocket(str(path), mode, reception))) as site:
        yield Receiving(site, path, runs)
    reception.stop()


OVER = pytest.mark.parametrize("over", ["http", "socket"])


@OVER
def test_a_report_is_taken(tmp_path: Path, over: str) -> None:
    async def test() -> None:
        async with receiving(tmp_path) as place:
            assert await place.post({"run": "a", "step": 5}, over=over) == (204, [""])
            ((report, owner),) = place.runs.reports
            assert (report.run, report.step) == ("a", 5.0)
            assert owner == ("" if over == "http" else f"pid/{os.getpid()}")

    asyncio.run(test())


@pytest.mark.parametrize(
    "header", ["Forwarded: for=192.0.2.1", "X-Forwarded-For: 192.0.2.1", "via: 1.1 proxy"]
)
def test_what_a_proxy_on_this_machine_passes_on_is_not_taken(tmp_path: Path, header: str) -> None:
    async def test() -> None:
        async with receiving(tmp_path) as place:
            name, _, value = header.partition(": ")
            said, (line,) = await place.post({"run": "a"}, over="http", headers=JSON | {name: value})
            assert said == 403
            assert "this machine only" in line
            assert not place.runs.reports

    asyncio.run(test())


@OVER
@pytest.mark.parametrize(
    ("body", "headers", "status", "fault"),
    [
        ({"run": "a", "steps": 1}, JSON, 400, '"steps": unknown key'),
        (b"\xff", JSON, 400, "the body is not JSON"),
        ({"run": "a"}, {"Content-Type": "text/plain"}, 415, "expected application/json"),
        (
            {"run": "a"},
            {"Content-Type": "application/x-www-form-urlencoded"},
            415,
            "expected application/json",
        ),
        ({"run": "a"}, JSON | {"Origin": "http://127.0.0.1:10777"}, 403, "web pages"),
        ({"run": "a"}, JSON | {"Origin": "null"}, 403, "web pages"),
        ({"run": "a"}, JSON | {"Sec-Fetch-Site": "cross-site"}, 403, "web pages"),
        ({"run": "a"}, JSON | {"Content-Encoding": "gzip"}, 415, "Content-Encoding"),
        (b"x" * (MAX_BODY_BYTES + 1), JSON, 413, "65536"),
    ],
)
def test_what_is_not_taken_is_told(
    tmp_path: Path, over: str, body: object, headers: Mapping[str, str], status: int, fault: str
) -> None:
    async def test() -> None:
        async with receiving(tmp_path) as place:
            said, (line,) = await place.post(body, over=over, headers=headers)
            assert said == status
            assert fault in line
            assert not place.runs.reports

    asyncio.run(test())


@OVER
def test_who_sends_without_end_is_cut_off(tmp_path: Path, over: str) -> None:
    async def test() -> None:
        async with receiving(tmp_path) as place:
            with contextlib.suppress(
                aiohttp.ClientError
            ):  # the answer may be lost in what is still being sent
                assert (await place.post(b"x" * 1_000_000, over=over))[0] == 413
            assert not place.runs.reports
            assert await place.post({"run": "a"}, over=over) == (204, [""])

    asyncio.run(test())


@OVER
def test_a_body_without_a_length_is_counted_as_it_comes(tmp_path: Path, over: str) -> None:
    def send(address: str | tuple[str, int]) -> bytes:
        with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as client:
            client.connect(address)
            client.sendall(b"POST /api/v1/training HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n")
            client.sendall(b"Content-Type: application/json\r\n\r\n")
            for _ in range(MAX_BODY_BYTES // 0x1000 + 1):
                client.sendall(b"1000\r\n" + b" " * 0x1000 + b"\r\n")
            return client.recv(4096)

    async def test() -> None:
        async with receiving(tmp_path) as place:
            address = place.site.address
            where = str(place.path) if over == "socket" else (address.host, address.port)
            assert (await asyncio.to_thread(send, where)).startswith(b"HTTP/1.1 413 ")

    asyncio.run(test())


async def connect(place: Receiving, over: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if over == "socket":
        return await asyncio.open_unix_connection(str(place.path))
    return await place.site.connect()


@OVER
def test_a_body_that_comes_slowly_is_given_up(
    tmp_path: Path, over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "BODY_WITHIN_S", 0.2)

    async def test() -> None:
        async with receiving(tmp_path) as place:
            reader, writer = await connect(place, over)
            writer.write(b"POST /api/v1/training HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            writer.write(b"Content-Length: 50\r\n\r\n{")
            assert (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 408 ")
            writer.close()

    asyncio.run(test())


def test_g27_clients_that_report_slowly_block_no_scrape(tmp_path: Path) -> None:
    head = b"POST /api/v1/training HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

    async def test() -> None:
        async with receiving(tmp_path) as place:
            slow = await slow_clients(place.site, 200)
            for client in slow:
                client.send(head + b"Content-Length: 500\r\n\r\n")
            began_s = time.monotonic()
            scrapes_s = []
            while slow and time.monotonic() - began_s < 20:
                started_s = time.monotonic()
                assert (await place.site.ask("/healthz")).status == 200
                scrapes_s.append(time.monotonic() - started_s)
                slow = [client for client in slow if still_open_after_reading(client)]
                await asyncio.sleep(0.05)
            assert not slow
            assert max(scrapes_s) < 1.0
            assert len(asyncio.all_tasks()) < 64

    asyncio.run(test())


def still_open_after_reading(client: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        while client.recv(4096):
            pass
    return still_open(client, b" ")


@in_loop
async def test_without_reception_there_is_nothing() -> None:
    async with running() as site:
        answer = await site.ask(training.PATH, JSON, method="POST")
        assert answer.status == 404


def test_at_the_socket_there_is_nothing_but_reports(tmp_path: Path) -> None:
    """It is mounted into pods, and what is on the page is not theirs to read."""

    async def test() -> None:
        async with receiving(tmp_path) as place:
            assert (await place.post({}, over="socket", path="/metrics"))[0] == 404
            reader, writer = await connect(place, "socket")
            writer.write(b"GET /api/v1/training HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 405 ")
            assert b"Allow: POST" in answer
            writer.close()

    asyncio.run(test())


def test_the_kernel_names_the_sender(tmp_path: Path) -> None:
    """Another process, which claims to be this one."""

    async def test() -> None:
        async with receiving(tmp_path) as place:
            body = json.dumps({"run": "a", "job": "slurm/1"})
            script = (
                "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
                f"b={body!r}.encode(); s.sendall(b'POST /api/v1/training HTTP/1.1\\r\\nHost: x\\r\\n'"
                "b'Content-Type: application/json\\r\\nConnection: close\\r\\n'"
                "b'Content-Length: %d\\r\\n\\r\\n' % len(b) + b); print(s.makefile().read())"
            )
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", script, str(place.path), stdout=subprocess.PIPE
            )
            said, _ = await process.communicate()
            assert b"403" in said
            assert (
                f"the process belongs to pid/{process.pid}, so it cannot report for slurm/1".encode() in said
            )
            assert not place.runs.reports

    asyncio.run(test())


def test_a_look_that_hangs_costs_reports_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "LOOK_WITHIN_S", 0.1)
    goes_on = threading.Event()

    def hangs(peer: Peer) -> Sender:
        goes_on.wait(10)
        return mine(peer)

    async def test() -> None:
        async with receiving(tmp_path, hangs) as place:
            expected = (503, ["it cannot be told whose the process is; try again"])
            assert await place.post({"run": "a"}, over="socket") == expected
            assert await place.post({"run": "a"}, over="socket") == expected
            assert (await place.site.ask("/healthz")).status == 200
            goes_on.set()
            while (await place.post({"run": "a"}, over="socket"))[0] != 204:
                await asyncio.sleep(0.01)

    asyncio.run(test())


@pytest.mark.parametrize(
    "error", [ProcessLookupError(errno.ESRCH, "gone"), PermissionError(errno.EACCES, "no")]
)
def test_who_cannot_be_told_is_asked_to_try_again(tmp_path: Path, error: OSError) -> None:
    def fails(_: Peer) -> Sender:
        raise error

    async def test() -> None:
        async with receiving(tmp_path, fails) as place:
            assert (await place.post({"run": "a"}, over="socket"))[0] == 503

    asyncio.run(test())


def test_a_number_that_may_be_another_processes_by_now_is_not_believed(tmp_path: Path) -> None:
    """The process ends while it is looked for; somebody who holds its end of the socket stays."""
    if not has_peer_handles():
        pytest.skip("this machine's kernel has no SO_PEERPIDFD, which came with Linux 6.5")
    ended = threading.Event()

    def late(peer: Peer) -> Sender:
        ended.wait(10)
        return mine(peer)

    async def test() -> None:
        async with receiving(tmp_path, late) as place:
            ours, theirs = socket.socketpair()
            script = (
                "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
                "socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b'x'], [s.fileno()])"
            )
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", script, str(place.path), str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
            )
            assert await child.wait() == 0
            ended.set()
            _, (handle,), _, _ = socket.recv_fds(ours, 1, 1)
            reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=handle))
            body = b'{"run":"a"}'
            writer.write(b"POST /api/v1/training HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            writer.write(b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
            answer = await reader.read()
            writer.close()
            ours.close()
            theirs.close()
            assert answer.startswith(b"HTTP/1.1 503 ") or b"gone" in answer
            assert not place.runs.reports

    asyncio.run(test())


def has_peer_handles() -> bool:
    one, other = socket.socketpair()
    with one, other:
        try:
            os.close(one.getsockopt(socket.SOL_SOCKET, training.SO_PEERPIDFD))
        except OSError:
            return False
        return True


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
def test_the_socket_has_its_mode_and_is_taken_away(tmp_path: Path, mode: int) -> None:
    async def test() -> None:
        async with receiving(tmp_path / "run", mode=mode) as place:
            assert stat.S_IMODE(os.stat(place.path).st_mode) == mode
        assert not place.path.exists()

    asyncio.run(test())


def test_the_way_to_the_socket_is_open_whatever_the_umask(tmp_path: Path) -> None:
    async def test() -> None:
        before = os.umask(0o077)
        try:
            async with receiving(tmp_path / "run" / "training"):
                folders = [tmp_path / "run", tmp_path / "run" / "training"]
                assert [stat.S_IMODE(os.stat(folder).st_mode) for folder in folders] == [0o755, 0o755]
        finally:
            os.umask(before)

    asyncio.run(test())


def test_a_socket_that_a_dead_agent_left_is_replaced(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "agent.sock"))
    left.close()

    async def test() -> None:
        async with receiving(tmp_path) as place:
            assert (await place.post({"run": "a"}, over="socket"))[0] == 204

    asyncio.run(test())


def test_the_socket_of_another_agent_is_left_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with receiving(tmp_path) as first:
            with pytest.raises(OSError, match=r"agent.sock: another agent listens there"):
                async with receiving(tmp_path):
                    pass
            assert (await first.post({"run": "a"}, over="socket"))[0] == 204

    asyncio.run(test())


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("file", "what is no socket"),
        ("a" * 120, "too long"),
        ("file/below", "or no folder, is in the way"),
    ],
)
def test_a_path_that_cannot_be_is_named_with_the_remedy(tmp_path: Path, path: str, remedy: str) -> None:
    (tmp_path / "file").write_text("precious")

    async def test() -> None:
        reception = Reception(Intake(Runs(), FakeClock()).take, mine, FakeClock())
        with pytest.raises(OSError, match=rf"training\.api\.socket: .*: .*{remedy}"):
            async with running(reports=(reception, ReportSocket(str(tmp_path / path), 0o600, reception))):
                pass
        reception.stop()

    asyncio.run(test())
    assert (tmp_path / "file").read_text() == "precious"


def test_connections_that_are_turned_away_are_counted_with_those_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = training.LIMITS.__class__(max_connections=2)
    monkeypatch.setattr(training, "LIMITS", limits)

    async def test() -> None:
        async with receiving(tmp_path) as place:
            clients = [await connect(place, "socket") for _ in range(5)]
            await asyncio.sleep(0.05)
            refused = [r for r in place.site.site.readings() if isinstance(r, ConnectionsRefused)]
            assert len(refused) == len({reading.reason for reading in refused})
            assert {r.reason: r.connections for r in refused}["max_connections"] == 3.0
            for _, writer in clients:
                writer.close()

    asyncio.run(test())


def test_our_own_client_is_understood(tmp_path: Path) -> None:
    async def test() -> None:
        async with receiving(tmp_path) as place:

            def train() -> Reporter:
                with Reporter("a", f"unix:{place.path}", every_seconds=0.01, enabled=True) as told:
                    told.log(step=1, tokens=10, loss=float("nan"))
                    with told.phase("checkpoint"):
                        told.log(step=2, loss=2.0)
                return told

            told = await asyncio.to_thread(train)
            assert (told.dropped, told.sent) == (0, len(place.runs.reports))
            reports = [report for report, _ in place.runs.reports]
            assert [report.phase for report in reports if report.phase][-1] == "train"
            assert sum(report.nonfinite.get("loss", 0) for report in reports) == 1
            assert any(report.scalars == {"loss": 2.0} for report in reports)

    asyncio.run(test())


def test_from_this_machine_only() -> None:
    assert all(map(training._is_loopback, ["127.0.0.1", "127.3.0.1", "::1", "::ffff:127.0.0.1"]))
    assert not any(map(training._is_loopback, ["10.0.0.1", "::ffff:10.0.0.1", "fe80::1", "", None]))
