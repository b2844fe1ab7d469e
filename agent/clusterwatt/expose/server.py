"""The agent's HTTP side: metrics, health, the live page. It shows the newest snapshot and asks no hardware.

A request is only a read: what it needs is made from the snapshot once, beside the event loop, and all further
requests get the same bytes. Clients are held to limits (`expose.gate`) and told nothing of what went wrong
inside.
"""

from __future__ import annotations

import asyncio
import errno
import gzip
import importlib.resources
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping

import msgspec
from aiohttp import hdrs, web

from clusterwatt.config.model import Http
from clusterwatt.expose import node_exporter
from clusterwatt.expose.auth import BusyError
from clusterwatt.expose.dcgm.page import DcgmPage
from clusterwatt.expose.doorway import Doorway, listening_sockets
from clusterwatt.expose.exchanges import STOP_WITHIN_S, Exchanges, plain
from clusterwatt.expose.gate import Gate, GateLimits
from clusterwatt.expose.history import History
from clusterwatt.expose.live.node import as_json, node_view
from clusterwatt.expose.negotiation import wants_gzip, wants_openmetrics
from clusterwatt.expose.own_names import is_own, own_names
from clusterwatt.expose.press import Edition, Press
from clusterwatt.expose.render import OPENMETRICS_TYPE, TEXT_TYPE, Page, Renderer
from clusterwatt.expose.training import PATH as REPORTS_PATH
from clusterwatt.expose.training import Reception, ReportSocket
from clusterwatt.expose.web_file import WebFile
from clusterwatt.readings.agent import ConnectionsRefused, SeriesCount, SeriesDropped
from clusterwatt.readings.base import Reading
from clusterwatt.readings.snapshot import Snapshot

log = logging.getLogger(__name__)

GZIP_LEVEL = 4
PROBES = frozenset({"/healthz", "/readyz"})  # answered to everybody, in one word
LIVE = frozenset({"/", "/api/v1/node"})  # the page says why when it is asked for by a name that is not ours
CHALLENGE = 'Basic realm="clusterwatt", charset="UTF-8"'

STATIC: Mapping[str, str] = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class BoundAddress(msgspec.Struct, frozen=True):
    """Where the server listens: the real port, also when any was asked for."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"{self.scheme}://{self}"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Site:
    """Everything that the agent shows.

    `publish` is called once a tick, by one caller, in the event loop. `ready` and `alive` ask nobody and
    return at once.
    """

    def __init__(
        self,
        renderer: Renderer,
        history: History,
        *,
        node_name: str,
        ready: Callable[[], tuple[bool, str]],
        alive: Callable[[], bool],
        dcgm: DcgmPage | None = None,
    ) -> None:
        self._renderer = renderer
        self._dcgm = dcgm
        self._make_dcgm: Callable[[], bytes] | None = None
        self._history = history
        self._node_name = node_name
        self._own_names = own_names(node_name)
        self._ready = ready
        self._alive = alive
        self._press = Press()
        self._edition: Edition | None = None
        self._first_page: asyncio.Task[None] | None = None
        self._shown = False
        self._node_exporter_series: int | None = None
        self._on_publish: list[Callable[[Snapshot], None]] = []
        self._series = 0
        self._dropped: Counter[str] = Counter()
        self._runner: web.AppRunner | None = None
        self._gate: Gate | None = None
        self._doorway: Doorway | None = None
        self._reception: Reception | None = None
        self._report_socket: ReportSocket | None = None
        self._web_file: WebFile | None = None

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path in LIVE and self._is_asked_as_another(request):
                return plain(403, "ask by an address or a name of this machine, or set TLS or users")
            return await self._guarded(request, handler)

        self.app = web.Application(client_max_size=1024, middlewares=[guard])
        self.app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/dcgm/metrics", self._dcgm_metrics),
                web.get("/node/metrics", self._node_exporter),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/api/v1/node", self._node),
                web.post(REPORTS_PATH, self._report),
                web.get("/", _file("index.html")),
                *(web.get(f"/{name}", _file(name)) for name in STATIC if name != "index.html"),
            ]
        )

    def use(self, renderer: Renderer, dcgm: DcgmPage | None = None) -> None:
        """Render the next snapshots with other renderers."""
        self._renderer, self._dcgm = renderer, dcgm

    def use_node_exporter_names(self, max_series: int | None) -> None:
        """Show /node/metrics, with at most so many series; None: do not."""
        self._node_exporter_series = max_series

    def use_reports(self, reception: Reception | None, report_socket: ReportSocket | None) -> None:
        """Take reports of training processes over HTTP, and at a socket; to be said before the start."""
        self._reception, self._report_socket = reception, report_socket

    def use_web_file(self, web_file: WebFile | None) -> None:
        """Have TLS, users and limits of a web configuration file; to be said before the start."""
        self._web_file = web_file

    def on_publish(self, call: Callable[[Snapshot], None]) -> None:
        """Have `call` called with each snapshot that is shown, for the first time when its page is there."""
        self._on_publish.append(call)

    def publish(self, snapshot: Snapshot) -> None:
        """Show this snapshot from now on."""
        self._edition = Edition(snapshot, self._press)
        self._make_dcgm = None if self._dcgm is None else self._dcgm.take(snapshot)
        self._history.append(snapshot)
        if self._shown:
            self._tell(snapshot)
        elif self._first_page is None:
            self._first_page = asyncio.get_running_loop().create_task(self._show_first(self._edition))

    async def page(self, *, openmetrics: bool = False) -> Page:
        """The metrics page of the newest snapshot. Raises LookupError before there is one."""
        edition = self._edition
        if edition is None:
            raise LookupError("nothing has been published yet")
        renderer = self._renderer
        page = await edition.get(
            ("metrics", openmetrics), lambda: renderer.render(edition.snapshot, openmetrics=openmetrics)
        )
        if not edition.counted:
            edition.counted = True
            self._series = page.series
            self._dropped.update(page.dropped)
        return page

    def readings(self) -> Iterator[Reading]:
        """What the site says about itself: series shown and dropped, connections turned away."""
        if self._shown:
            yield SeriesCount(series=float(self._series))
        for table, dropped in self._dropped.items():
            yield SeriesDropped(table=table, dropped=float(dropped))
        refused: Counter[str] = Counter()
        for gate in (self._gate, self._report_socket):
            for reading in () if gate is None else gate.refused():
                refused[reading.reason] += int(reading.connections)
        for reason, connections in refused.items():
            yield ConnectionsRefused(reason=reason, connections=float(connections))
        if self._web_file is not None:
            yield from self._web_file.readings()

    async def start(self, http: Http) -> BoundAddress:
        """Listen. Raises OSError with one line that names the address and the remedy."""
        runner = web.AppRunner(self.app, shutdown_timeout=STOP_WITHIN_S)
        await runner.setup()
        web_file = self._web_file
        gate = Gate(
            lambda connection: Exchanges(connection, runner, self._headers),
            GateLimits(
                head_s=http.header_timeout_seconds,
                max_connections=http.max_connections,
                max_connections_per_client=http.max_connections_per_client,
            ),
            security=web_file,
        )
        try:
            self._doorway = Doorway(await listening_sockets(http.listen), gate)
        except OSError as error:
            await runner.cleanup()
            raise OSError(f"http.listen: {http.listen}: {_remedy(error)}") from None
        self._runner, self._gate = runner, gate
        if web_file is not None:
            web_file.start()
        if self._report_socket is not None:
            try:
                await self._report_socket.start()
            except OSError:
                await self.stop()
                raise
        scheme = "http" if web_file is None or web_file.context is None else "https"
        return BoundAddress(*self._doorway.address, scheme)

    async def stop(self) -> None:
        """Stop listening, let answers that are on their way go out for two seconds, end all connections."""
        if self._report_socket is not None:
            await self._report_socket.stop()
        if self._web_file is not None:
            await self._web_file.stop()
        if self._reception is not None:
            self._reception.stop()
        if self._doorway is not None:
            self._doorway.close()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._gate is not None:
            self._gate.close()
        if self._first_page is not None:
            self._first_page.cancel()
        self._press.stop()

    async def _show_first(self, edition: Edition) -> None:
        try:
            await self.page()
        except Exception:
            log.exception("the first page cannot be rendered; the next snapshot is tried")
            self._first_page = None
        else:
            self._shown = True
            self._tell(edition.snapshot)

    def _tell(self, snapshot: Snapshot) -> None:
        for call in self._on_publish:
            call(snapshot)

    def _headers(self) -> Mapping[str, str]:
        return {} if self._web_file is None else self._web_file.headers

    def _is_asked_as_another(self, request: web.Request) -> bool:
        """Whether the name in Host may be a web page's own, which a certificate or password would stop."""
        rules = self._web_file
        if rules is not None and (rules.passwords is not None or rules.context is not None):
            return False
        host = request.headers.get(hdrs.HOST)  # browsers always say one
        return host is not None and not is_own(host, self._own_names)

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The answer for those who may have it. Others learn of no path whether it exists."""
        rules = self._web_file
        probe = request.path in PROBES and request.method in (hdrs.METH_GET, hdrs.METH_HEAD)
        if rules is None or (probe and rules.passwords is None):
            return await handler(request)
        if probe:
            status = (await handler(request)).status
            return plain(status, "ok" if status == 200 else "")
        if not rules.may_ask():
            return _later(429)
        if rules.passwords is not None:
            try:
                said = request.headers.getall(hdrs.AUTHORIZATION, ())
                fits = await rules.passwords.fits(said, request.remote or "")
            except BusyError:
                return _later(503)
            if not fits:
                refusal = plain(401)
                refusal.headers["WWW-Authenticate"] = CHALLENGE
                return refusal
        return await handler(request)

    async def _metrics(self, request: web.Request) -> web.Response:
        """The newest page. None at all when ticks have stopped: old values must not look like new ones."""
        if self._edition is None or not self._alive():
            return plain(503, "no current readings")
        openmetrics = wants_openmetrics(request.headers.get("Accept", ""))
        edition = self._edition
        page = await self.page(openmetrics=openmetrics)
        return await _exposition(request, edition, "metrics", page, openmetrics=openmetrics)

    async def _node_exporter(self, request: web.Request) -> web.Response:
        """The same machine in the words of node_exporter, while that is switched on."""
        max_series = self._node_exporter_series
        if max_series is None:
            return plain(404)
        edition = self._edition
        if edition is None or not self._alive():
            return plain(503, "no current readings")
        openmetrics = wants_openmetrics(request.headers.get("Accept", ""))
        page = await edition.get(
            ("node/metrics", openmetrics),
            lambda: node_exporter.render(edition.snapshot, max_series, openmetrics=openmetrics),
        )
        return await _exposition(request, edition, "node/metrics", page, openmetrics=openmetrics)

    async def _dcgm_metrics(self, request: web.Request) -> web.Response:
        """The newest snapshot under the names of dcgm-exporter; always in the text format, as it writes."""
        if self._dcgm is None:
            return plain(404)
        edition, make = self._edition, self._make_dcgm
        if edition is None or make is None or not self._alive():
            return plain(503, "no current readings")
        body = await edition.get("dcgm", make)
        response = await _answer(request, edition, "dcgm", body)
        response.headers["Content-Type"] = TEXT_TYPE
        response.headers["Vary"] = "Accept-Encoding"
        return response

    async def _node(self, request: web.Request) -> web.Response:
        edition = self._edition
        if edition is None:
            return plain(503, "no current readings")
        curves = self._history.curves()

        def make() -> bytes:
            return as_json(node_view(self._node_name, edition.snapshot, curves))

        response = await _answer(request, edition, "node", await edition.get("node", make))
        response.headers["Content-Type"] = "application/json"
        response.headers["Vary"] = "Accept-Encoding"
        return response

    async def _report(self, request: web.Request) -> web.Response:
        """A report of a training process, where those are taken."""
        return plain(404) if self._reception is None else await self._reception.over_http(request)

    async def _healthz(self, _: web.Request) -> web.Response:
        return plain(200, "ok") if self._alive() else plain(503, "ticks have stopped")

    async def _readyz(self, _: web.Request) -> web.Response:
        if not self._shown:
            return plain(503, "the first page is not there yet")
        ready, said = self._ready()
        return plain(200 if ready else 503, said)


def _later(status: int) -> web.Response:
    response = plain(status)
    response.headers["Retry-After"] = "1"
    return response


def _file(name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler for one of the files of the page, which is read now."""
    content = (importlib.resources.files(__package__) / "static" / name).read_bytes()

    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=content, headers={"Content-Type": STATIC[name], "Cache-Control": "no-cache"})

    return handle


async def _exposition(
    request: web.Request, edition: Edition, name: str, page: Page, *, openmetrics: bool
) -> web.Response:
    response = await _answer(request, edition, (name, openmetrics), page.body)
    response.headers["Content-Type"] = OPENMETRICS_TYPE if openmetrics else TEXT_TYPE
    response.headers["Vary"] = "Accept, Accept-Encoding"
    return response


async def _answer(request: web.Request, edition: Edition, name: Hashable, body: bytes) -> web.Response:
    """The body, packed once for all when the client asks for that."""
    if not wants_gzip(request.headers.get("Accept-Encoding", "")):
        return web.Response(body=body)
    packed = await edition.get((name, "gzip"), lambda: gzip.compress(body, GZIP_LEVEL, mtime=0))
    return web.Response(body=packed, headers={"Content-Encoding": "gzip"})


def _remedy(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the name is not known on this machine; give an address of it"
    if error.errno == errno.EADDRINUSE:
        return "another process listens there; stop it (`ss -ltnp` names it) or choose another port"
    if error.errno in (errno.EADDRNOTAVAIL, None):  # since 3.12 asyncio raises one of its own, without number
        return "this machine has no such address; `:PORT` listens on all that it has"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "not permitted; choose a port above 1023"
    return error.strerror or "cannot listen there"
