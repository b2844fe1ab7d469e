"""A deadline for a whole answer over HTTP: its status line, its headers and its body."""

from __future__ import annotations

import http.client
import io
import socket
from typing import Any

from clusterwatt.clock import Clock


class _Deadline(io.RawIOBase):
    """What a socket sends until a deadline; its own timeout begins anew with each byte that comes."""

    def __init__(self, sock: socket.socket, clock: Clock, until_s: float) -> None:
        self._sock = sock
        self._file = sock.makefile("rb", buffering=0)  # the socket stays open as long as this is
        self._clock = clock
        self._until_s = until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left_s = self._until_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(left_s)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def answers_until(clock: Clock, until_s: float) -> type[http.client.HTTPResponse]:
    """The kind of answers that are read, from their first line on, until a time of the monotonic clock.

    It is set as `response_class` of a connection. Raises TimeoutError from whatever reads of it.
    """

    class Answer(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
            super().__init__(sock, *args, **kwargs)
            self.fp.close()
            self.fp = io.BufferedReader(_Deadline(sock, clock, until_s))

    return Answer
