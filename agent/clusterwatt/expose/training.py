"""`POST /api/v1/training`: where training processes report, over HTTP and over a Unix socket.

Over the socket the kernel names the sender (unix(7), SO_PEERCRED), whose cgroup names the job: nobody reports
for another's. Over HTTP a process says itself to which job it belongs, so that is for processes of this
machine only, and not for what a proxy on it passes on. A web page must not report through the browser of
somebody who works on the machine: what has an Origin is refused, and so is a body that is not declared as
JSON, which is all that a page can send without asking (Fetch Standard, CORS-safelisted request-header).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import select
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from aiohttp import web

from clusterwatt.clock import Clock
from clusterwatt.expose import gate as gates
from clusterwatt.expose.doorway import Doorway
from clusterwatt.expose.exchanges import STOP_WITHIN_S, Exchanges
from clusterwatt.expose.gate import Gate, GateLimits
from clusterwatt.log import ChangeLog
from clusterwatt.readings.agent import ConnectionsRefused
from clusterwatt.training.intake import Sender, Verdict
from clusterwatt.training.report import MAX_BODY_BYTES
from clusterwatt.worker import Outcome, Worker

log = logging.getLogger(__name__)

PATH = "/api/v1/training"
LOOK_WITHIN_S = 1.0
BODY_WITHIN_S = 2.0
FORWARDED = ("Forwarded", "X-Forwarded-For", "Via")  # RFC 7239, its forerunner, and RFC 9110, 7.6.3
MAX_AT_ONCE = 4  # over HTTP: bodies that come slowly must not take the places of those who scrape
CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
SO_PEERPIDFD = 77  # include/uapi/asm-generic/socket.h, since Linux 6.5; Python has no name for it
LIMITS = GateLimits(
    head_s=5.0, waiting_s=10.0, exchange_s=5.0, idle_s=15.0, max_connections=128, max_served=8
)
REFUSED = {
    **gates.REFUSED,
    "max_connections": "training processes are turned away: too many are connected to training.api.socket; "
    "`ss -xp` shows which",
}


class Peer(msgspec.Struct, frozen=True):
    """The process at the other end of a Unix socket; pid 0: in a PID namespace that the agent cannot see."""

    pid: int
    uid: int


class Reception:
    """Answers reports. Belongs to the event loop.

    `take` takes a body in and returns at once. `sender_of` finds out whose a process is; it reads files, so
    it runs on a thread of its own, and who is not told from within a second is asked to try again.
    """

    def __init__(
        self, take: Callable[[bytes, Sender], Verdict], sender_of: Callable[[Peer], Sender], clock: Clock
    ) -> None:
        self._take = take
        self._sender_of = sender_of
        self._worker = Worker("report-senders", clock)
        self._turn = asyncio.Lock()
        self._log = ChangeLog(log, clock)
        self._at_once = 0

    async def over_http(self, request: web.Request) -> web.Response:
        """Answer a report of a process of this machine, which says itself whose it is."""
        if not _is_loopback(request.remote) or any(name in request.headers for name in FORWARDED):
            return _answer(403, "reports are taken from this machine only")
        if self._at_once == MAX_AT_ONCE:
            return _answer(503, "others are reporting; try again")
        self._at_once += 1
        try:
            body = await _body(request)
        except _NotTaken as why:
            return _answer(why.status, why.fault)
        finally:
            self._at_once -= 1
        return _verdict(self._take(body, Sender(client="http")))  # addresses of the loopback are free to all

    async def over_socket(self, request: web.Request) -> web.Response:
        """Answer a report of a process that the kernel names."""
        try:
            body = await _body(request)
        except _NotTaken as why:
            return _answer(why.status, why.fault)
        try:
            sender = await asyncio.wait_for(self._look(request), LOOK_WITHIN_S)
        except (OSError, asyncio.TimeoutError) as error:
            self._log.bad("", "unknown", f"senders of reports cannot be told: {error or 'no answer in time'}")
            return _answer(503, "it cannot be told whose the process is; try again")
        self._log.good("", "senders of reports can be told again")
        return _verdict(self._take(body, sender))

    def stop(self) -> None:
        """End the thread."""
        self._worker.stop()

    async def _look(self, request: web.Request) -> Sender:
        """Who sends. Raises OSError when that cannot be told."""
        connection = request.get_extra_info("socket")
        if connection is None:
            raise ConnectionResetError("the process has gone")
        loop = asyncio.get_running_loop()
        async with self._turn:
            answer: asyncio.Future[Sender] = loop.create_future()

            def done(outcome: Outcome[Sender]) -> None:
                # A call that hung may come back after the end of the loop.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(_settle, answer, outcome)

            if not self._worker.start(lambda: _sender(connection, self._sender_of), done):
                raise TimeoutError("an earlier one hangs")
            return await answer


class ReportSocket:
    """A Unix socket at which nothing but reports is taken."""

    def __init__(self, path: str, mode: int, reception: Reception) -> None:
        self._path = path
        self._mode = mode
        self._reception = reception
        self._app = web.Application(client_max_size=MAX_BODY_BYTES)
        self._app.router.add_post(PATH, reception.over_socket)
        self._runner: web.AppRunner | None = None
        self._gate: Gate | None = None
        self._doorway: Doorway | None = None
        self._inode = 0

    async def start(self) -> None:
        """Listen. Raises OSError with one line that names the path and the remedy."""
        runner = web.AppRunner(self._app, shutdown_timeout=STOP_WITHIN_S)
        await runner.setup()
        gate = Gate(lambda connection: Exchanges(connection, runner), LIMITS, said=REFUSED)
        try:
            listening = _bound(self._path, self._mode)
        except OSError as error:
            await runner.cleanup()
            raise OSError(f"training.api.socket: {self._path}: {_remedy(error)}") from None
        self._inode = os.stat(self._path).st_ino
        self._doorway = Doorway([listening], gate)
        self._runner, self._gate = runner, gate

    def refused(self) -> Iterator[ConnectionsRefused]:
        """Connections that were closed without an answer so far, by reason."""
        if self._gate is not None:
            yield from self._gate.refused()

    async def stop(self) -> None:
        """Listen no more, and take the socket away unless another agent has put its own there."""
        if self._doorway is not None:
            self._doorway.close()
            with contextlib.suppress(OSError):
                if os.stat(self._path).st_ino == self._inode:
                    os.unlink(self._path)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._gate is not None:
            self._gate.close()
        self._reception.stop()


class _NotTaken(Exception):
    """A request whose body is not even looked at."""

    def __init__(self, status: int, fault: str) -> None:
        super().__init__(fault)
        self.status = status
        self.fault = fault


async def _body(request: web.Request) -> bytes:
    """The whole body. Raises _NotTaken."""
    headers = request.headers
    if "Origin" in headers or "Sec-Fetch-Site" in headers:
        raise _NotTaken(403, "reports are not taken from web pages")
    if request.content_type != "application/json":
        raise _NotTaken(415, "Content-Type: expected application/json")
    if "Content-Encoding" in headers:
        raise _NotTaken(415, "Content-Encoding: expected none")
    too_long = _NotTaken(413, f"the body has more than {MAX_BODY_BYTES} bytes")
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise too_long
    try:
        body = await asyncio.wait_for(_read(request), BODY_WITHIN_S)
    except asyncio.TimeoutError:
        raise _NotTaken(408, f"the body was not there within {BODY_WITHIN_S:g} s") from None
    if len(body) > MAX_BODY_BYTES:
        raise too_long
    return body


async def _read(request: web.Request) -> bytes:
    """The body, or a little more of it than is taken."""
    body = bytearray()
    while len(body) <= MAX_BODY_BYTES and (part := await request.content.readany()):
        body += part
    return bytes(body)


def _sender(connection: socket.socket, sender_of: Callable[[Peer], Sender]) -> Sender:
    """Whose the process is that opened the connection. Raises OSError.

    Its number may be another's by now. The kernel's handle on the process tells whether it has ended: read
    afterwards, it vouches for what was read before.
    """
    pid, uid, _ = CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    )
    try:
        handle = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError:  # an older kernel, or the process has been reaped: then its folder is gone as well
        return sender_of(Peer(pid, uid))
    try:
        sender = sender_of(Peer(pid, uid))
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        if ended.poll(0):
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        return sender
    finally:
        os.close(handle)


def _settle(answer: asyncio.Future[Sender], outcome: Outcome[Sender]) -> None:
    if answer.done():  # given up
        return
    if outcome.result is not None:
        answer.set_result(outcome.result)
    else:
        answer.set_exception(outcome.error or OSError("no result"))


def _bound(path: str, mode: int) -> socket.socket:
    """A socket at a path, in place of one at which nobody listens any more. Raises OSError."""
    _make_folder(Path(path).parent)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if _somebody_listens(path):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), path)
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(path)
        os.chmod(path, mode)  # nobody can connect before it listens
    except OSError:
        listening.close()
        raise
    return listening


def _make_folder(folder: Path) -> None:
    """Have a folder that all may pass through, whatever the umask: the socket's mode says who may report."""
    missing = [above for above in (folder, *folder.parents) if not above.exists()]
    for above in reversed(missing):
        above.mkdir(exist_ok=True)
        above.chmod(0o755)
    if not folder.is_dir():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))


def _somebody_listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(path) != errno.ECONNREFUSED


def _remedy(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another agent listens there; stop it or choose another path"
    if error.errno == errno.EEXIST:
        return "what is no socket, or no folder, is in the way; remove it or choose another path"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "not permitted; choose a path in a folder that the agent may write to"
    if error.errno in (errno.ENAMETOOLONG, None):  # Python's own error has no number
        return "too long; the kernel takes up to 107 bytes (unix(7))"
    return error.strerror or "cannot listen there"


def _is_loopback(remote: str | None) -> bool:
    try:
        address = ipaddress.ip_address(remote or "")
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _verdict(verdict: Verdict) -> web.Response:
    return web.Response(status=204) if verdict.status == 204 else _answer(verdict.status, *verdict.faults)


def _answer(status: int, *faults: str) -> web.Response:
    """Each fault in a line of its own, as JSON."""
    body = msgspec.json.encode({"errors": faults}) + b"\n"
    response = web.Response(status=status, body=body, content_type="application/json")
    if status in (429, 503):
        response.headers["Retry-After"] = "1"
    return response
