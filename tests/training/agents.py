"""A server of plain sockets that takes reports as an agent does, and keeps them."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from clusterwatt.training.report import parse

WITHIN_S = 5.0


class Agent:
    """What an agent would have taken; answers with `status`."""

    def __init__(self) -> None:
        self.status = 204
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[dict[str, str]] = []
        self.came = threading.Condition()

    def wait_for(self, holds: Callable[[], object]) -> None:
        with self.came:
            assert self.came.wait_for(holds, WITHIN_S), self.bodies


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    agent: Agent


class TcpServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    agent: Agent


class Handler(BaseHTTPRequestHandler):
    server: UnixServer | TcpServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        agent = self.server.agent
        assert parse(body)  # what the agent itself would say
        with agent.came:
            agent.bodies.append(json.loads(body))
            agent.heads.append(dict(self.headers) | {"path": self.path})
            agent.came.notify_all()
        self.send_response(agent.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class serving:
    def __init__(self, server: UnixServer | TcpServer) -> None:
        self.server = server
        self.thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Agent:
        self.server.agent = Agent()
        self.thread.start()
        return self.server.agent

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
