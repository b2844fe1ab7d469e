"""One unary gRPC call over a unix socket, on h2 (the form of calls: grpc/doc/PROTOCOL-HTTP2.md).

A connection for each call: a kubelet that restarts replaces its socket, and at one call in ten seconds a kept
connection would only be another thing that can be stale. Plain text; the socket's file mode is what protects
it.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from urllib.parse import unquote

from clusterwatt.clock import Clock

UNIMPLEMENTED = 12
RECEIVE_BYTES = 1 << 18
WINDOW_BYTES = 1 << 20
PREFIX_BYTES = 5  # a flag for compression, then the message's length
MAX_STATUS_TEXT = 200


class RpcError(OSError):
    """A call that was answered with a failure, or not in gRPC. `status`: gRPC's code, None without one."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(errno.EPROTO, text)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[1])


def call(path: str, method: str, clock: Clock, *, deadline_s: float, max_bytes: int) -> bytes:
    """The answer of `method`, as `/v1.PodResourcesLister/List`, to an empty request.

    Raises OSError: TimeoutError after the deadline, RpcError for any answer but a good one. Raises
    ImportError when h2 is not installed.
    """
    exchange = _Exchange(method, max_bytes)
    until_s = clock.monotonic_s() + deadline_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(deadline_s)
            connection.connect(path)
            connection.sendall(exchange.to_send())
            while not exchange.ended and (left_s := until_s - clock.monotonic_s()) > 0:
                connection.settimeout(left_s)
                exchange.receive(connection.recv(RECEIVE_BYTES))
                if not exchange.ended:  # the server may close at once behind its answer
                    connection.sendall(exchange.to_send())
        except RpcError:
            raise
        except TimeoutError:
            pass
        except OSError as error:
            raise OSError(error.errno or errno.EIO, error.strerror or str(error), path) from error
    if not exchange.ended:
        raise TimeoutError(errno.ETIMEDOUT, f"no answer within {deadline_s:g} s", path)
    return exchange.message()


class _Exchange:
    """One request and its answer, without the socket."""

    def __init__(self, method: str, max_bytes: int) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection
        from h2.settings import SettingCodes

        self.ended = False
        self._max_bytes = max_bytes
        self._body = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._connection = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._connection.initiate_connection()
        self._connection.update_settings(
            {SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES}
        )
        self._connection.increment_flow_control_window(WINDOW_BYTES)
        self._stream = self._connection.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        ]
        self._connection.send_headers(self._stream, headers)
        self._connection.send_data(self._stream, bytes(PREFIX_BYTES), end_stream=True)

    def to_send(self) -> bytes:
        return self._connection.data_to_send()

    def receive(self, received: bytes) -> None:
        """Take what came; nothing: the connection was closed. Raises RpcError."""
        from h2 import events
        from h2.exceptions import H2Error

        if not received:
            raise RpcError("the connection was closed before the answer was whole")
        try:
            for event in self._connection.receive_data(received):
                if isinstance(event, events.DataReceived):
                    self._take(event.data)
                    self._connection.acknowledge_received_data(event.flow_controlled_length, self._stream)
                elif isinstance(event, events.ResponseReceived | events.TrailersReceived):
                    self._take_headers(event.headers or ())
                elif isinstance(event, events.StreamEnded):
                    self.ended = True
                elif isinstance(event, events.StreamReset | events.ConnectionTerminated) and not self.ended:
                    raise RpcError(f"the call was broken off, HTTP/2 error {event.error_code}")
        except H2Error as error:
            raise RpcError(f"what answers does not speak HTTP/2: {error}") from error

    def message(self) -> bytes:
        """The answer, when the call has ended. Raises RpcError for any but a good one."""
        status = self._headers.get(b"grpc-status")
        if status is None or not status.isdigit():
            raise RpcError(f"not an answer in gRPC: HTTP status {_text(self._headers.get(b':status', b'?'))}")
        if int(status):
            text = unquote(_text(self._headers.get(b"grpc-message", b"")))[:MAX_STATUS_TEXT]
            raise RpcError(f"gRPC status {int(status)}: {text}", int(status))
        if (
            len(self._body) < PREFIX_BYTES
            or self._body[0]
            or len(self._body) - PREFIX_BYTES != self._length()
        ):
            raise RpcError("the answer is not one uncompressed message")
        return bytes(memoryview(self._body)[PREFIX_BYTES:])

    def _take(self, data: bytes | None) -> None:
        self._body += data or b""
        if len(self._body) >= PREFIX_BYTES and max(self._length(), len(self._body)) > self._max_bytes:
            raise RpcError(f"the answer has more than {self._max_bytes} bytes")

    def _take_headers(self, headers: Iterable[tuple[bytes | str, bytes | str]]) -> None:
        for name, value in headers:
            if isinstance(name, bytes) and isinstance(value, bytes):
                self._headers[name] = value

    def _length(self) -> int:
        return int.from_bytes(self._body[1:PREFIX_BYTES], "big")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
