"""A small HTTP server on the loopback that answers what a test tells it."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


def body(content: bytes, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """An answer with a body."""

    def send(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers:
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    return send


class Web:
    """Answers `self.answer`, and keeps the headers of every request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answer: Answer = body(b"")
        self.requests: list[tuple[str, dict[str, str]]] = []


@contextlib.contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Web]:
    """A server while the context lasts; over TLS when there is a context for it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            with contextlib.suppress(OSError):  # a client that has had enough
                web.answer(self)

        def do_POST(self) -> None:
            self.do_GET()

        def handle(self) -> None:
            with contextlib.suppress(OSError):  # a client that does not trust us
                super().handle()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    web = Web(f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
