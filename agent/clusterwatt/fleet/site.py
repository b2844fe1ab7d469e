"""What the fleet shows on its one port: the pages of every node below its name, discovery, and a list."""

from __future__ import annotations

import html
from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec
from aiohttp import web

from clusterwatt.config.model import Http
from clusterwatt.expose.doorway import Doorway, listening_sockets
from clusterwatt.expose.exchanges import STOP_WITHIN_S, Exchanges
from clusterwatt.expose.gate import Gate, GateLimits
from clusterwatt.expose.server import BoundAddress
from clusterwatt.fleet.node import FleetNode
from clusterwatt.readings.gpu_measured import GpuUp
from clusterwatt.readings.work import GpuAllocated, GpuState, JobInfo

JOB = "clusterwatt"  # the scrape job that rules and boards ask for

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FleetSite:
    """All pages. `absent`, `dead`: numbers of nodes that have left, and that do not answer, each time."""

    def __init__(
        self,
        nodes: Sequence[FleetNode],
        absent: Callable[[], frozenset[int]],
        dead: Callable[[], frozenset[int]],
    ) -> None:
        self._nodes = nodes
        self._absent, self._dead = absent, dead
        self._by_name = {node.name: node for node in nodes}
        self._runner: web.AppRunner | None = None
        self._gate: Gate | None = None
        self._doorway: Doorway | None = None

        @web.middleware
        async def answering(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._answering(request, handler)

        self.app = web.Application(client_max_size=1024, middlewares=[answering])
        self.app.add_routes([web.get("/", self._index), web.get("/sd", self._discovery)])
        for node in nodes:
            self.app.router.add_get(f"/{node.name}", _to_folder)
            self.app.add_subapp(f"/{node.name}/", node.site.app)

    async def start(self, listen: str) -> BoundAddress:
        """Listen. Raises OSError."""
        http = Http(listen=listen)
        runner = web.AppRunner(self.app, shutdown_timeout=STOP_WITHIN_S)
        await runner.setup()
        # Whoever scrapes keeps a connection to each node.
        most = 2 * len(self._nodes) + 24
        limits = GateLimits(
            head_s=http.header_timeout_seconds,
            max_connections=max(http.max_connections, 2 * most),
            max_served=most,
        )
        self._gate = Gate(lambda connection: Exchanges(connection, runner), limits)
        try:
            self._doorway = Doorway(await listening_sockets(listen), self._gate)
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        return BoundAddress(*self._doorway.address)

    async def stop(self) -> None:
        """Listen no more, end all connections."""
        if self._doorway is not None:
            self._doorway.close()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._gate is not None:
            self._gate.close()
        for node in self._nodes:
            await node.site.stop()

    async def _answering(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass on, but for nodes that have left or are dead: their connections end without an answer."""
        node = self._by_name.get(request.path.partition("/")[2].partition("/")[0])
        if node is not None and (node.number in self._dead() or node.number in self._absent()):
            if request.transport is not None:
                request.transport.abort()
            raise web.HTTPServiceUnavailable
        return await handler(request)

    async def _discovery(self, request: web.Request) -> web.Response:
        """Targets for `http_sd_configs` of Prometheus, which asks again each minute.

        https://prometheus.io/docs/prometheus/latest/http_sd/
        """
        absent = self._absent()
        targets = [
            {
                "targets": [request.host],
                "labels": {
                    "instance": node.name,
                    "job": JOB,
                    "__metrics_path__": f"/{node.name}/metrics",
                },
            }
            for node in self._nodes
            if node.number not in absent
        ]
        return web.Response(body=msgspec.json.encode(targets), content_type="application/json")

    async def _index(self, _: web.Request) -> web.Response:
        rows = "".join(self._rows())
        return web.Response(text=PAGE.format(rows=rows, count=len(self._nodes)), content_type="text/html")

    def _rows(self) -> Iterator[str]:
        dead, absent = self._dead(), self._absent()
        for node in self._nodes:
            gone = "left" if node.number in absent else "silent" if node.number in dead else ""
            yield _row(node, gone)


def _row(node: FleetNode, gone: str) -> str:
    snapshot = node.snapshot
    up = sum(1 for gpu in snapshot.of(GpuUp) if gpu.up)
    held = len({allocated.uuid for allocated in snapshot.of(GpuAllocated)})
    jobs = ", ".join(sorted({job.name for job in snapshot.of(JobInfo)})) or "-"
    state = gone or ("up" if snapshot.of(GpuState) else "starting")
    cells = (state, f"{up}", f"{held}", jobs)
    name = html.escape(node.name)
    return f'<tr><td><a href="{name}/">{name}</a></td>{_cells(cells)}</tr>\n'


def _cells(texts: Sequence[str]) -> str:
    return "".join(f"<td>{html.escape(text)}</td>" for text in texts)


async def _to_folder(request: web.Request) -> web.Response:
    """The page of a node lies in its folder: without the slash its files would not be found."""
    return web.Response(status=308, headers={"Location": f"{request.path}/"})


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Simulated cluster</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;margin:2rem}}
td,th{{text-align:left;padding:0 1.5rem 0 0}}</style>
</head><body><h1>Simulated cluster</h1>
<p>{count} nodes. Every value is simulated. Targets for Prometheus: <a href="sd">sd</a>.</p>
<table><tr><th>Node</th><th>State</th><th>GPUs up</th><th>GPUs held</th><th>Jobs</th></tr>
{rows}</table></body></html>
"""
