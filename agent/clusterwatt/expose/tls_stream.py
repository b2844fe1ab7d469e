"""TLS between a connection of the gate and its socket.

asyncio has TLS of its own, but it keeps 256 KiB for each connection and a task for each handshake
(`asyncio.sslproto.SSLProtocol.max_size`), which a few hundred silent clients turn into much memory. Here a
connection costs what OpenSSL takes, from the first byte that it sends; the deadlines are those of the gate,
which takes a handshake for part of the request head.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any

MAX_READ_BYTES = 16_384  # a record of TLS holds no more
PLAIN_HTTP = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nTLS is spoken here: https://\n"

# Told of a handshake that failed: why, in OpenSSL's word, and the client's address.
Failed = Callable[[str, str], None]


class TlsProtocol(asyncio.Protocol):
    """Speaks TLS with the socket, and plain text with the protocol that it stands before.

    That protocol is told of the connection at once, and of its data when the handshake is done. `admit`
    decides on a client by its certificate, as `SSLObject.getpeercert` tells it.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        inner: asyncio.Protocol,
        *,
        admit: Callable[[object], bool],
        failed: Failed,
    ) -> None:
        self._context = context
        self._inner = inner
        self._admit = admit
        self._failed = failed
        self._tls: TlsTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._tls = TlsTransport(transport, self._context)
        self._inner.connection_made(self._tls)

    def data_received(self, data: bytes) -> None:
        """Go on with the handshake, or hand on what was sent."""
        assert self._tls is not None  # it is made first
        if self._tls.is_closing():
            return
        try:
            if not self._tls.shake_hands(data):
                return
            if self._tls.is_new and not self._tls.meet(self._admit):
                self._fail("certificate not in client_allowed_sans")
                return
            self._hand_on(self._tls)
        except ssl.SSLError as error:
            self._fail(error.reason or "unknown")

    def eof_received(self) -> bool:
        """Ask the protocol whether it still has something to say."""
        return bool(self._inner.eof_received())

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._inner.connection_lost(exc)

    def _hand_on(self, tls: TlsTransport) -> None:
        while not tls.is_closing():
            data = tls.read()
            if data is None:
                return
            if not data:  # the client has said that it sends no more
                if not self._inner.eof_received():
                    tls.close()
                return
            self._inner.data_received(data)

    def _fail(self, reason: str) -> None:
        assert self._tls is not None  # it is made first
        if self._tls.is_new:
            if reason == "HTTP_REQUEST":
                self._tls.say_plainly(PLAIN_HTTP)
            peer = self._tls.get_extra_info("peername")
            self._failed(reason, str(peer[0]) if peer else "")
        self._tls.abandon()


class TlsTransport(asyncio.Transport):
    """A transport whose text goes out encrypted over another."""

    def __init__(self, raw: asyncio.Transport, context: ssl.SSLContext) -> None:
        super().__init__()
        self._raw = raw
        self._context = context
        self._object: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._shaken = False
        self.is_new = True

    def shake_hands(self, data: bytes) -> bool:
        """Take in what the client sent; whether the handshake is done. Raises ssl.SSLError."""
        if self._object is None:
            self._object = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(data)
        if self._shaken:
            return True
        try:
            self._object.do_handshake()
            self._shaken = True
        except ssl.SSLWantReadError:
            pass
        finally:
            self._flush()
        return self._shaken

    def meet(self, admit: Callable[[object], bool]) -> bool:
        """Whether the client is one to talk to; asked once."""
        assert self._object is not None  # after the handshake
        if not admit(self._object.getpeercert()):
            return False
        self.is_new = False
        return True

    def read(self) -> bytes | None:
        """What the client sent; None: nothing more yet; empty: it sends no more. Raises ssl.SSLError."""
        assert self._object is not None  # after the handshake
        try:
            return self._object.read(MAX_READ_BYTES)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLZeroReturnError:
            return b""
        finally:
            self._flush()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, encrypted."""
        if self._object is None or not self._shaken or self.is_closing():
            return
        left = memoryview(data)
        try:
            while left:
                left = left[self._object.write(left) :]
        except ssl.SSLError:
            self.abandon()
        else:
            self._flush()

    def close(self) -> None:
        """Say that no more is sent, and end the connection when all has gone out."""
        if self.is_closing():
            return
        if self._object is not None and self._shaken:
            with contextlib.suppress(ssl.SSLError):  # no answer is waited for (RFC 8446, 6.1)
                self._object.unwrap()
            self._flush()
        self._raw.close()

    def abandon(self) -> None:
        """End the connection after what is on its way, an alert perhaps."""
        if not self.is_closing():
            self._flush()
            self._raw.close()

    def say_plainly(self, text: bytes) -> None:
        """Answer a client that speaks no TLS."""
        self._outgoing.read()
        self._raw.write(text)

    def can_write_eof(self) -> bool:
        """Never: TLS ends both ways at once."""
        return False

    def abort(self) -> None:
        """End the connection at once."""
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether it ends."""
        return self._raw.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the connection, beside that of the socket: `sslcontext`, `ssl_object`."""
        if name == "sslcontext":
            return self._context
        if name == "ssl_object":
            return self._object
        return self._raw.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Take in no more for now."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Go on taking in."""
        self._raw.resume_reading()

    def is_reading(self) -> bool:
        """Whether data are taken in."""
        return self._raw.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When the protocol is told to stop and to go on, in encrypted bytes."""
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Encrypted bytes that have not gone out."""
        return self._raw.get_write_buffer_size()

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and not self._raw.is_closing():
            self._raw.write(data)
