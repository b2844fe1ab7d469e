"""Listening sockets, and accepting from them without a storm when descriptors run out.

asyncio's own server logs each accept that fails and tries again a hundred times a round
(`BaseSelectorEventLoop._accept_connection`), which fills the log and stops everything else in the loop.
"""

from __future__ import annotations

import asyncio
import errno
import socket

from clusterwatt import descriptors
from clusterwatt.config.model import listen_address
from clusterwatt.expose.gate import Gate

BACKLOG = 128
AT_ONCE = 64  # accepted before others in the loop have their turn
PAUSE_S = 1.0
OUT_OF_RESOURCES = descriptors.EXHAUSTED | {errno.ENOBUFS, errno.ENOMEM}


class Doorway:
    """Lets connections through to the gate."""

    def __init__(self, sockets: list[socket.socket], gate: Gate) -> None:
        self._sockets = sockets
        self._gate = gate
        self._entering: set[asyncio.Task[None]] = set()
        self._open = True
        for listening in sockets:
            listening.setblocking(False)
            listening.listen(BACKLOG)
            self._watch(listening)

    @property
    def address(self) -> tuple[str, int]:
        """Where the first of the sockets listens, with its real port."""
        host, port = self._sockets[0].getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Listen no more; may be called again."""
        self._open = False
        for listening in self._sockets:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        self._sockets = []

    def _watch(self, listening: socket.socket) -> None:
        if self._open:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(AT_ONCE):
            try:
                client, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:  # of this one connection (accept(2))
                    continue
                self._gate.refuse("no_descriptors")
                loop.remove_reader(listening)  # who comes now waits in the kernel's queue
                loop.call_later(PAUSE_S, self._watch, listening)
                return
            if not descriptors.may_serve(client.fileno()):
                self._gate.refuse("no_descriptors")
                client.close()
            elif not self._gate.admits(address):
                client.close()
            else:
                client.setblocking(False)
                task = loop.create_task(self._enter(client))
                self._entering.add(task)
                task.add_done_callback(self._entering.discard)

    async def _enter(self, client: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._gate, client)
        except OSError:  # it has gone in the meantime
            client.close()


async def listening_sockets(listen: str) -> list[socket.socket]:
    """Bound sockets for `host:port`; one for all addresses when there is no host. Raises OSError."""
    host, port = listen_address(listen)
    if not host:
        return [_everywhere(port)]
    loop = asyncio.get_running_loop()
    # asyncio resolves and binds; it is not to accept.
    server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    sockets = [bound.dup() for bound in server.sockets]
    server.close()
    return sockets


def _everywhere(port: int) -> socket.socket:
    """One socket for IPv6 and IPv4: with one each, port 0 would give two ports."""
    try:
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    except (OSError, ValueError) as error:  # ValueError: the platform cannot do both on one socket
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise
        return socket.create_server(("", port))  # IPv6 is switched off
