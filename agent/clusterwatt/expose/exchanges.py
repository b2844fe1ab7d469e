"""aiohttp's side of one connection behind the gate, and what all answers have in common."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus

from aiohttp import StreamReader, web

from clusterwatt.expose.gate import Connection

log = logging.getLogger(__name__)

STOP_WITHIN_S = 2.0
MAX_AHEAD_BYTES = 256 << 10  # of requests that come while an earlier one is in work

HEADERS: Mapping[str, str] = {
    "Server": "clusterwatt",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Exchanges(web.RequestHandler):
    """aiohttp's side of one connection, which tells the gate of each answer and clients nothing of errors."""

    __slots__ = ("_ahead_bytes", "_connection", "_headers", "_newest_body")

    def __init__(
        self, connection: Connection, runner: web.AppRunner, headers: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        assert runner.server is not None
        super().__init__(
            runner.server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # None is documented to switch it off
            keepalive_timeout=connection.limits.idle_s,
            lingering_time=1.0,
            max_line_size=connection.limits.max_head_bytes,
            max_field_size=connection.limits.max_head_bytes,
            auto_decompress=False,
        )
        self._connection = connection
        self._headers = headers
        self._ahead_bytes: int | None = None  # None: all that came has been answered
        self._newest_body: StreamReader | None = None

    def data_received(self, data: bytes) -> None:
        """Take in what comes; who sends many more requests before there is an answer to one is cut off.

        A body is not counted while it comes: aiohttp reads no more of it than somebody takes.
        """
        queued = len(self._messages)
        super().data_received(data)
        if len(self._messages) > queued:
            self._newest_body = self._messages[-1][1]
        elif self._newest_body is not None and not self._newest_body.is_eof():
            return
        if self._ahead_bytes is None:
            self._ahead_bytes = 0  # the first request; what came along with it was read at once
            return
        self._ahead_bytes += len(data)
        if self._ahead_bytes > MAX_AHEAD_BYTES:
            self._connection.abort()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the answer, with the headers that all have, and see it go out."""
        if isinstance(resp, web.HTTPException):
            allow = resp.headers.get("Allow")
            resp = plain(resp.status)
            if allow is not None:
                resp.headers["Allow"] = allow
        if request.body_exists or self._connection.sends_no_more:  # nobody here reads a body
            resp.force_close()
        for name, value in {**HEADERS, **self._headers()}.items():
            resp.headers.setdefault(name, value)
        resp, broken = await super().finish_response(request, resp, start_time)
        if not broken:
            try:
                await request.writer.drain()
            except ConnectionError:
                return resp, True
            if not self._messages:
                self._ahead_bytes = None
            if resp.keep_alive:
                self._connection.answered()
            else:  # aiohttp would wait for a body that nobody wants, or close over what has not been read
                self.transport = None
                self.force_close()
                self._connection.leave()
        return resp, broken

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that cannot be understood, or that a bug has ended."""
        if status >= 500:
            log.error("%s %s failed", request.method, request.rel_url.raw_path, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("part of the answer has gone out already")
        response = plain(status)
        response.force_close()
        return response


def plain(status: int, text: str = "") -> web.Response:
    """One line; by default what the status is called."""
    return web.Response(status=status, text=(text or HTTPStatus(status).phrase.lower()) + "\n")
