"""The web configuration file of Prometheus' exporters: TLS, users, headers, rate limit.

The format is that of Prometheus' exporter toolkit (prometheus/exporter-toolkit, docs/web-configuration.md),
so that one file serves all exporters of a node. What Python's ssl cannot do is refused, never left out in
silence. The file holds secrets, so no message quotes what may be one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from clusterwatt.config import records
from clusterwatt.config.model import Section
from clusterwatt.config.problems import ConfigError, Problem, nearest, shown
from clusterwatt.config.records import Record
from clusterwatt.config.values import duration_seconds

Inline = Annotated[str, Meta(extra={"form": "inline PEM"})]
BcryptHash = Annotated[str, Meta(extra={"form": "bcrypt hash"})]
Duration = Annotated[str, Meta(extra={"form": "duration"})]

# Values of client_auth_type: does a client have to show a certificate? Those are missing that take one from
# anybody: Python's ssl always verifies.
CLIENT_AUTH: Mapping[str, bool | None] = {
    "NoClientCert": None,
    "VerifyClientCertIfGiven": False,
    "RequireAndVerifyClientCert": True,
}
UNVERIFIED = frozenset({"RequestClientCert", "RequireAnyClientCert", "RequireClientCert"})
VERSIONS = ("TLS12", "TLS13")
OLD_VERSIONS = frozenset({"TLS10", "TLS11"})

# Names of crypto/tls (https://pkg.go.dev/crypto/tls#CipherSuites) to those of OpenSSL (openssl-ciphers(1)).
SUITES: Mapping[str, str] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
# Of TLS 1.3, where neither Go nor Python's ssl lets anybody choose.
SUITES_13 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
CURVES: Mapping[str, str] = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}

# The headers that may be set, and what each may say; empty: anything.
HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": (),
    "Strict-Transport-Security": (),
}


class TlsServer(Section, frozen=True):
    """`tls_server_config`; file names are absolute once they are read."""

    cert: Inline = ""
    key: Inline = ""
    client_ca: Inline = ""
    cert_file: str = ""
    key_file: str = ""
    client_auth_type: str = "NoClientCert"
    client_ca_file: str = ""
    client_allowed_sans: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True
    curve_preferences: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it names."""
        return tuple(name for name in (self.cert_file, self.key_file, self.client_ca_file) if name)


class HttpServer(Section, frozen=True):
    """`http_server_config`. `http2` is accepted either way: clients agree on HTTP/1.1 (RFC 7301)."""

    http2: bool = True
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class RateLimit(Section, frozen=True):
    """`rate_limit`: a token bucket for all requests; an interval of 0 switches it off."""

    interval: Duration = "0"
    burst: Annotated[int, Meta(ge=0, le=1_000_000)] = 0

    @property
    def interval_seconds(self) -> float:
        """Time between two requests once the burst is used up; 0: no limit."""
        return duration_seconds(self.interval)


class Web(Section, frozen=True):
    """The whole file."""

    tls_server_config: TlsServer | None = None
    http_server_config: HttpServer = HttpServer()
    basic_auth_users: dict[str, BcryptHash] = msgspec.field(default_factory=dict)
    rate_limit: RateLimit = RateLimit()


def read(path: Path) -> Record[Web]:
    """Read a web configuration file. Raises ConfigError with all that is wrong, and none of its secrets."""
    try:
        record = records.read(path, Web)
    except ConfigError as error:
        raise ConfigError([_without_quotes(problem) for problem in error.problems]) from None
    record.settle(record.problem(where, text) for where, text in _wrong(record.content))
    tls = record.content.tls_server_config
    if tls is None:
        return record
    folder = path.absolute().parent
    at = {
        name: str(folder / file)
        for name in ("cert_file", "key_file", "client_ca_file")
        if (file := getattr(tls, name))
    }
    tls = msgspec.structs.replace(tls, **at)
    return record.holding(msgspec.structs.replace(record.content, tls_server_config=tls))


def _wrong(web: Web) -> Iterator[tuple[str, str]]:
    """What the types do not say: the path, and what is wrong there."""
    if web.tls_server_config is not None:
        for name, text in _wrong_tls(web.tls_server_config):
            yield f"tls_server_config.{name}".rstrip("."), text
    for name, value in web.http_server_config.headers.items():
        path = f"http_server_config.headers.{name}"
        if name not in HEADERS:
            yield path, f"this header cannot be set; known here: {', '.join(HEADERS)}"
        elif value and HEADERS[name] and value.lower() not in HEADERS[name]:
            yield path, f"expected {' or '.join(HEADERS[name])}"
    limit = web.rate_limit
    if limit.interval_seconds and not limit.burst:
        yield "rate_limit.burst", "missing: with 0 no request would ever be answered"
    if any(":" in name for name in web.basic_auth_users):
        # The name is not told: without the space behind a colon it ends with the password.
        yield "basic_auth_users", "a name holds a colon; a space belongs between `name:` and the hash"


def _wrong_tls(tls: TlsServer) -> Iterator[tuple[str, str]]:
    for name in ("cert_file", "key_file"):
        if not getattr(tls, name):
            yield name, "missing: without it there is no TLS; leave tls_server_config out for none"
    yield from _wrong_clients(tls)
    for name in ("min_version", "max_version"):
        version = getattr(tls, name)
        if version in OLD_VERSIONS:
            yield name, f"{version} is broken (RFC 8996) and not spoken here; expected TLS12 or TLS13"
        elif version not in VERSIONS:
            yield name, _unknown(version, VERSIONS)
    if (tls.min_version, tls.max_version) == ("TLS13", "TLS12"):
        yield "max_version", "below min_version: no version is left"
    for index, suite in enumerate(tls.cipher_suites):
        if suite not in SUITES and suite not in SUITES_13:
            yield f"cipher_suites[{index}]", _unknown(suite, [*SUITES, *SUITES_13])
    if tls.cipher_suites and tls.min_version == "TLS12" and SUITES_13.issuperset(tls.cipher_suites):
        yield "cipher_suites", "names none of TLS 1.2: add one, or set min_version: TLS13"
    for index, curve in enumerate(tls.curve_preferences):
        if curve not in CURVES:
            yield f"curve_preferences[{index}]", _unknown(curve, CURVES)
    if len(tls.curve_preferences) > 1:
        yield "curve_preferences", "Python's ssl takes one curve: keep the first, or leave it out for all"


def _wrong_clients(tls: TlsServer) -> Iterator[tuple[str, str]]:
    kind = tls.client_auth_type
    if kind in UNVERIFIED:
        text = f"{kind} takes certificates that nobody vouches for, which Python's ssl does not"
        yield "client_auth_type", f"{text}; expected RequireAndVerifyClientCert or VerifyClientCertIfGiven"
    elif kind not in CLIENT_AUTH:
        yield "client_auth_type", _unknown(kind, CLIENT_AUTH)
    elif CLIENT_AUTH[kind] is None and tls.client_ca_file:
        yield "client_auth_type", "client_ca_file is set, so expected RequireAndVerifyClientCert"
    elif CLIENT_AUTH[kind] is not None and not tls.client_ca_file:
        yield "client_auth_type", f"{kind} needs client_ca_file, the certificates that vouch for clients"
    if tls.client_allowed_sans and not CLIENT_AUTH.get(kind):
        yield "client_allowed_sans", "needs client_auth_type: RequireAndVerifyClientCert"


def _unknown(name: str, known: Collection[str]) -> str:
    meant = nearest(name, known)
    hint = f"did you mean {meant}?" if meant else f"known here: {', '.join(known)}"
    return f'unknown: "{shown(name)}"; {hint}'


def _without_quotes(problem: Problem) -> Problem:
    """What the parser of YAML says of a mistake may quote the text at it."""
    if problem.text.startswith("not valid YAML"):
        text = "not valid YAML (what stands there is not shown, it may be a secret)"
        return msgspec.structs.replace(problem, text=text)
    return problem
