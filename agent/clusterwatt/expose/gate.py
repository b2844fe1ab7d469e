"""What stands between the network and the HTTP server: bounds on clients that are slow, many or greedy.

aiohttp has no deadline for receiving a request and starts a task for each connection. So a connection gets
its HTTP server only when its whole request head is here, and only so many connections have one at a time.
Until then it costs a socket, a timer and a small buffer.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Protocol

import msgspec

from clusterwatt.clock import Clock, SystemClock
from clusterwatt.expose.tls_stream import TlsProtocol
from clusterwatt.log import ChangeLog
from clusterwatt.readings.agent import ConnectionsRefused

log = logging.getLogger(__name__)

EMPTY_LINES = b"\r\n"  # before a request they mean nothing (RFC 9112, 2.2)
END_OF_HEAD = re.compile(rb"\n(\r?)\n")
LONGEST_END = 3

# Why a connection is closed without an answer, and what the log says of it.
REFUSED = {
    "max_connections": "clients are turned away: http.max_connections are open; `ss -tn` shows whose",
    "max_connections_per_client": "a client is turned away: http.max_connections_per_client are open from "
    "its address; `ss -tn` shows whose",
    "no_descriptors": "clients are turned away: too few file descriptors; raise the limit (`ulimit -n`, "
    "LimitNOFILE= of systemd)",
    "busy": "clients are turned away: their requests waited too long for earlier ones to end",
}


class GateLimits(msgspec.Struct, frozen=True):
    """What a client may take.

    `head_s`: from its connection, or from the first byte of a further request, to the end of a request head.
    `waiting_s`: from there until it is served, `exchange_s`: from then until it has received the whole
    answer. `idle_s`: kept open without a request. `leaving_s`, `max_unwanted_bytes`: for how long and how
    much is read, and thrown away, after the last answer.
    `max_served`: connections with a request in work or kept open after one; each has a task or two.
    """

    head_s: float = 10.0
    waiting_s: float = 30.0
    exchange_s: float = 20.0
    idle_s: float = 75.0
    leaving_s: float = 3.0
    max_head_bytes: int = 16_384
    max_unwanted_bytes: int = 16 << 20
    max_connections: int = 512
    max_connections_per_client: int = 512
    max_served: int = 24


class Server(Protocol):
    """The protocol of asyncio, as far as an HTTP server implements it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server has a connection now."""

    def data_received(self, data: bytes) -> None:
        """The client sent something."""

    def pause_writing(self) -> None:
        """The client does not read as fast as it is written to."""

    def resume_writing(self) -> None:
        """The client has caught up."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""


class Security(Protocol):
    """How connections are encrypted, and who may have one."""

    @property
    def context(self) -> ssl.SSLContext | None:
        """What the next handshake is made with; None: there is none."""

    def admits(self, peer: object) -> bool:
        """Whether a client with this certificate may connect."""

    def handshake_failed(self, reason: str, client: str) -> None:
        """A client could not be talked to."""


class Gate:
    """All connections of one address, and who of them is served."""

    def __init__(
        self,
        make_server: Callable[[Connection], Server],
        limits: GateLimits,
        clock: Clock | None = None,
        said: Mapping[str, str] = REFUSED,
        security: Security | None = None,
    ) -> None:
        self.limits = limits
        self._security = security
        self.make_server = make_server
        self._log = ChangeLog(log, clock or SystemClock())
        self._said = said
        self._refused = dict.fromkeys(REFUSED, 0)
        self._open: set[Connection] = set()
        self._of_client: Counter[str] = Counter()
        self._silent: dict[Connection, None] = {}  # without a request so far; the longest first, as below
        self._served: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # a set that knows its order: the longest idle first
        self._waiting: dict[Connection, None] = {}

    def __call__(self) -> asyncio.Protocol:
        """A protocol for the next connection."""
        connection = Connection(self)
        security = self._security
        context = None if security is None else security.context
        if security is None or context is None:
            return connection
        return TlsProtocol(context, connection, admit=security.admits, failed=security.handshake_failed)

    def admits(self, address: object) -> bool:
        """Whether a client of this address (socket(7)) may connect; counts it when not.

        Where all places are taken, the one that has been silent for longest loses its own: who opens many
        connections and says nothing shuts nobody out.
        """
        client = client_of(address)
        if client and self._of_client[client] >= self.limits.max_connections_per_client:
            self.refuse("max_connections_per_client")
            return False
        if len(self._open) < self.limits.max_connections:
            return True
        self.refuse("max_connections")
        longest = next(iter(self._silent or self._idle), None)
        if longest is None:
            return False
        longest.abort()
        self.closed(longest)
        return True

    def refuse(self, reason: str) -> None:
        """Count a connection that is closed without an answer, and say so now and then."""
        self._refused[reason] += 1
        self._log.bad(reason, reason, self._said[reason])

    def refused(self) -> Iterator[ConnectionsRefused]:
        """Connections that were closed without an answer so far, by reason."""
        for reason, connections in self._refused.items():
            yield ConnectionsRefused(reason=reason, connections=float(connections))

    def opened(self, connection: Connection) -> bool:
        """Take in a connection; False when there are too many already."""
        if not self.admits(connection.address):
            return False
        self._open.add(connection)
        self._silent[connection] = None
        if client := client_of(connection.address):
            self._of_client[client] += 1
        return True

    def requested(self, connection: Connection) -> None:
        """Serve a connection whose request is here: now, or as soon as another one ends."""
        self._idle.pop(connection, None)
        self._silent.pop(connection, None)
        if connection in self._served or len(self._served) < self.limits.max_served:
            self._served.add(connection)
            connection.serve()
        else:
            self._waiting[connection] = None
            connection.wait()
            self._close_longest_idle()

    def answered(self, connection: Connection) -> None:
        """A connection has its answer and stays open for a further request."""
        self._idle[connection] = None
        if self._waiting:
            self._close_longest_idle()

    def closed(self, connection: Connection) -> None:
        """A connection has ended; its place goes to one that waits."""
        if connection not in self._open:
            return
        self._open.remove(connection)
        client = client_of(connection.address)
        if client and self._of_client[client] > 1:
            self._of_client[client] -= 1
        else:
            del self._of_client[client]
        self._give_up_place(connection)
        self._silent.pop(connection, None)

    def leaving(self, connection: Connection) -> None:
        """A connection has its last answer; its place goes to one that waits."""
        self._give_up_place(connection)
        self._silent[connection] = None

    def _give_up_place(self, connection: Connection) -> None:
        self._served.discard(connection)
        self._idle.pop(connection, None)
        self._waiting.pop(connection, None)
        if self._waiting and len(self._served) < self.limits.max_served:
            following = next(iter(self._waiting))
            del self._waiting[following]
            self.requested(following)

    def close(self) -> None:
        """End all connections."""
        for connection in tuple(self._open):
            connection.abort()

    def _close_longest_idle(self) -> None:
        if self._idle:
            connection = next(iter(self._idle))
            del self._idle[connection]
            connection.abort()


class Connection(asyncio.Protocol):
    """One connection: gathers a request head under a deadline, then stands aside."""

    _transport: asyncio.Transport

    def __init__(self, gate: Gate) -> None:
        self.limits = gate.limits
        self.address: object = None
        self._gate = gate
        self._server: Server | None = None
        self._serving = False
        self._waiting = False
        self._leaving = False
        self._unwanted_bytes = 0
        self.sends_no_more = False
        self._head = bytearray()
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = transport.get_extra_info("peername")
        transport.set_write_buffer_limits(
            high=0
        )  # "may write" then means that all of the answer has gone out
        if self._gate.opened(self):
            self._cut_off_in(self.limits.head_s)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Gather a head; what comes while a request is in work is its body and the server's affair."""
        if self._leaving:
            self._unwanted_bytes += len(data)
            if self._unwanted_bytes > self.limits.max_unwanted_bytes:
                self._transport.close()
            return
        if self._server is not None and self._serving:
            self._server.data_received(data)
            return
        if not self._head:
            data = data.lstrip(EMPTY_LINES)
            if not data:
                return
            self._cut_off_in(self.limits.head_s)
        searched = max(0, len(self._head) - LONGEST_END + 1)
        self._head += data
        if self._waiting:
            if len(self._head) > self.limits.max_head_bytes:
                self.abort()
        elif end := END_OF_HEAD.search(self._head, searched):
            if end.end() > self.limits.max_head_bytes:  # it came in one piece
                self._refuse(431, "header too large")
            elif end[1] and self._head[end.start() - 1 : end.start()] == b"\r":
                self._gate.requested(self)
            else:  # the server would wait for more
                self._refuse(400, "bad request")
        elif len(self._head) > self.limits.max_head_bytes:
            self._refuse(431, "header too large")

    def eof_received(self) -> bool:
        """Go on when the client sends no more but may still read the answer to its request."""
        self.sends_no_more = not self._leaving and (self._waiting or self._serving)
        return self.sends_no_more

    def wait(self) -> None:
        """Keep the request until others have ended."""
        self._waiting = True
        self._cut_off_in(self.limits.waiting_s, self._waited_too_long)

    def serve(self) -> None:
        """Hand the request over to the server."""
        self._serving, self._waiting = True, False
        self._cut_off_in(self.limits.exchange_s)
        if self._server is None:
            self._server = self._gate.make_server(self)
            self._server.connection_made(self._transport)
        head, self._head = bytes(self._head), bytearray()
        self._server.data_received(head)

    def answered(self) -> None:
        """The whole answer to a request has gone out, and the connection is to be kept."""
        if self.sends_no_more:
            self._transport.close()
        elif not self._transport.is_closing():
            self._serving = False
            self._cut_off_in(self.limits.idle_s)
            self._gate.answered(self)

    def leave(self) -> None:
        """The last answer has been written: end the connection when the client has ended its side, or soon.

        With bytes of the client unread the kernel would end it by a reset, which takes away from the client
        what it has not read of the answer (RFC 9112, 9.6).
        """
        if self.sends_no_more or self._transport.is_closing():
            self._transport.close()
            return
        self._leaving = True
        self._head.clear()
        self._cut_off_in(self.limits.leaving_s, self._transport.close)  # what is on its way still goes out
        self._gate.leaving(self)
        self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    def pause_writing(self) -> None:
        """Tell the server that the client reads too slowly."""
        if self._server is not None:
            self._server.pause_writing()

    def resume_writing(self) -> None:
        """Tell the server that the client has caught up."""
        if self._server is not None:
            self._server.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone, or was cut off."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self._server is not None:
            self._server.connection_lost(exc)
        self._gate.closed(self)

    def _refuse(self, status: int, text: str) -> None:
        """Answer what no server has to see, and leave."""
        body = f"{text}\n".encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + body)
        self.leave()

    def _waited_too_long(self) -> None:
        self._gate.refuse("busy")
        self.abort()

    def _cut_off_in(self, seconds: float, cut_off: Callable[[], None] | None = None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, cut_off or self.abort)


def client_of(address: object) -> str:
    """Whose connections are counted together: an address of IPv4, a /64 of IPv6; empty: not counted."""
    if not isinstance(address, tuple):  # a Unix socket has none
        return ""
    found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return "" if found.is_loopback else str(int(found) >> 64)
        found = found.ipv4_mapped
    return "" if found.is_loopback else str(found)
