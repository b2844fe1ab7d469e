"""What stands between the network and the HTTP server: bounds on clients that are slow, many or greedy.

aiohttp has no deadline for receiving a request and starts a task for each connection. So a connection gets
its HTTP server only when its whole request head is here, and only so many connections have one at a time.
Until then it costs a socket, a timer and a small buffer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

END_OF_HEAD = b"\r\n\r\n"


class GateLimits(msgspec.Struct, frozen=True):
    """What a client may take.

    `head_s`: from its connection, or from the first byte of a further request, to the end of a request head.
    `exchange_s`: from there until it has received the whole answer. `idle_s`: kept open without a request.
    `max_served`: connections with a request in work or kept open after one; each has a task or two.
    """

    head_s: float = 10.0
    exchange_s: float = 20.0
    idle_s: float = 75.0
    max_head_bytes: int = 16_384
    max_connections: int = 512
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


class Gate:
    """All connections of one address, and who of them is served."""

    def __init__(self, make_server: Callable[[Connection], Server], limits: GateLimits) -> None:
        self.limits = limits
        self.make_server = make_server
        self._open: set[Connection] = set()
        self._served: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # a set that knows its order: the longest idle first
        self._waiting: dict[Connection, None] = {}

    def __call__(self) -> Connection:
        """A protocol for the next connection."""
        return Connection(self)

    def opened(self, connection: Connection) -> bool:
        """Take in a connection; False when there are too many already."""
        if len(self._open) >= self.limits.max_connections:
            return False
        self._open.add(connection)
        return True

    def requested(self, connection: Connection) -> None:
        """Serve a connection whose request is here: now, or as soon as another one ends."""
        self._idle.pop(connection, None)
        if connection in self._served or len(self._served) < self.limits.max_served:
            self._served.add(connection)
            connection.serve()
        else:
            self._waiting[connection] = None
            self._close_longest_idle()

    def answered(self, connection: Connection) -> None:
        """A connection has its answer and stays open for a further request."""
        self._idle[connection] = None
        if self._waiting:
            self._close_longest_idle()

    def closed(self, connection: Connection) -> None:
        """A connection has ended; its place goes to one that waits."""
        self._open.discard(connection)
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
        self._gate = gate
        self._server: Server | None = None
        self._serving = False
        self._head = bytearray()
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(
            high=0
        )  # "may write" then means that all of the answer has gone out
        if self._gate.opened(self):
            self._cut_off_in(self.limits.head_s)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Gather a head; what comes while a request is in work is its body and the server's affair."""
        if self._server is not None and self._serving:
            self._server.data_received(data)
            return
        if not self._head:
            self._cut_off_in(self.limits.head_s)
        searched = max(0, len(self._head) - len(END_OF_HEAD))
        self._head += data
        if self._head.find(END_OF_HEAD, searched) >= 0:
            self._gate.requested(self)
        elif len(self._head) > self.limits.max_head_bytes:
            self._transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
                b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 17\r\nConnection: close\r\n\r\n"
                b"header too large\n"
            )
            self._transport.close()

    def serve(self) -> None:
        """Hand the request over to the server."""
        self._serving = True
        self._cut_off_in(self.limits.exchange_s)
        if self._server is None:
            self._server = self._gate.make_server(self)
            self._server.connection_made(self._transport)
        head, self._head = bytes(self._head), bytearray()
        self._server.data_received(head)

    def answered(self) -> None:
        """The whole answer to a request has gone out, and the connection is to be kept."""
        if not self._transport.is_closing():
            self._serving = False
            self._cut_off_in(self.limits.idle_s)
            self._gate.answered(self)

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

    def _cut_off_in(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)
