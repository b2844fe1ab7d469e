"""Reads objects from the Kubernetes API over HTTPS (kubernetes.io/docs/reference/using-api/api-concepts).

Only GET. Lists are taken from the server's watch cache (`resourceVersion=0`), which costs etcd nothing and
may be a moment old. The token is read anew for each request, since kubelets replace it every hour, and goes
over TLS only. Redirects are not followed.
"""

from __future__ import annotations

import errno
import http.client
import os
import ssl
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from clusterwatt import __version__, plain_file
from clusterwatt.clock import Clock
from clusterwatt.config.model import Kubernetes as Settings
from clusterwatt.http_deadline import answers_until

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
MAX_ANSWER_BYTES = 64 << 20
MAX_TOKEN_BYTES = 1 << 16
CHUNK_BYTES = 1 << 16
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

T = TypeVar("T")


class ApiError(OSError):
    """An answer that is not the object. `status`: of HTTP; None when what came could not be read."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(errno.EPROTO, text)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[1])


class Address(msgspec.Struct, frozen=True):
    """Where the API is, and the files that prove who asks and who answers."""

    url: str
    token_file: str
    ca_file: str


def address(settings: Settings, environ: Mapping[str, str], account: str = SERVICE_ACCOUNT) -> Address | None:
    """The API of the settings, else of the cluster in which the agent runs; None when there is neither.

    `account`: the folder of the pod's service account.
    """
    url, token_file, ca_file = settings.api_url, settings.token_file, settings.ca_file
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    in_cluster = bool(host) and os.path.exists(f"{account}/token")
    if in_cluster:
        token_file, ca_file = token_file or f"{account}/token", ca_file or f"{account}/ca.crt"
        port = environ.get("KUBERNETES_SERVICE_PORT", "443")
        url = url or f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return Address(url, token_file, ca_file) if url else None


class Api:
    """Asks one API server, with a connection for each request."""

    @classmethod
    def known(
        cls, settings: Settings, environ: Mapping[str, str], clock: Clock, deadline_s: float
    ) -> Api | None:
        """The server that settings or surroundings name; None when neither does."""
        where = address(settings, environ)
        return None if where is None else cls(where, clock, deadline_s)

    def __init__(self, where: Address, clock: Clock, deadline_s: float) -> None:
        self.url = where.url
        self._address = where
        self._clock = clock
        self._deadline_s = deadline_s

    def get(self, path: str, kind: type[T], query: Mapping[str, str] | None = None, *, accept: str = "") -> T:
        """The object at a path. Raises OSError: ApiError, or what the network or a file says."""
        target = path + (f"?{urlencode(query)}" if query else "")
        body = self._exchange(target, accept or "application/json")
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(f"the answer to {path} cannot be read: {error}") from error

    def listed(self, path: str, kind: type[T], selector: str) -> T:
        """A list from the server's watch cache; from its store where it has dropped that version."""
        query = {"fieldSelector": selector, "resourceVersion": "0"}
        try:
            return self.get(path, kind, query)
        except ApiError as error:
            if error.status != http.client.GONE:
                raise
        del query["resourceVersion"]
        return self.get(path, kind, query)

    def _exchange(self, target: str, accept: str) -> bytes:
        parts = urlsplit(self.url)
        headers = {"Accept": accept, "User-Agent": f"clusterwatt/{__version__}"}
        until_s = self._clock.monotonic_s() + self._deadline_s
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            if self._address.ca_file:
                plain_file.check(self._address.ca_file)
            trusted = ssl.create_default_context(cafile=self._address.ca_file or None)
            # Python 3.13 asks for extensions that RFC 5280 demands and many clusters' certificates lack.
            trusted.verify_flags &= ~ssl.VERIFY_X509_STRICT
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=self._deadline_s, context=trusted
            )
            if self._address.token_file:
                headers["Authorization"] = f"Bearer {_token(self._address.token_file)}"
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._deadline_s)
        connection.response_class = answers_until(self._clock, until_s)
        try:
            connection.request("GET", parts.path.rstrip("/") + target, headers=headers)
            with connection.getresponse() as response:
                if response.status != http.client.OK:
                    raise ApiError(f"HTTP status {response.status} for {target}", response.status)
                return _body(response, lambda: self._clock.monotonic_s() > until_s)
        except TimeoutError:
            text = f"no answer from {self.url} within {self._deadline_s:g} s"
            raise TimeoutError(errno.ETIMEDOUT, text) from None
        except http.client.HTTPException as error:
            raise ApiError(f"what answers at {self.url} does not speak HTTP") from error
        finally:
            connection.close()


def _body(response: http.client.HTTPResponse, late: Callable[[], bool]) -> bytes:
    body = bytearray()
    while chunk := response.read1(CHUNK_BYTES):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise ApiError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
        if late():
            raise TimeoutError
    return bytes(body)


def _token(path: str) -> str:
    token = plain_file.content(path, MAX_TOKEN_BYTES).decode("latin-1").strip()
    if not token.isprintable():
        raise ApiError(f"{path} does not hold a token")
    return token
