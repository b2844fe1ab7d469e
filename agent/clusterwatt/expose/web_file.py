"""The web configuration file in force: read at the start, and anew when it or a file that it names changes.

A mounted Secret is swapped by a symbolic link (Kubernetes documentation, "Mounted Secrets are updated
automatically"), a renewed certificate is written over the old one: either shows in the files' identities,
which are looked at every few seconds on a thread of their own. What cannot be used leaves the old in force.
A change is taken at the second look that finds it: half of a file may be valid, and without its users.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.config import web
from clusterwatt.config.problems import ConfigError, Problem
from clusterwatt.config.web import Web
from clusterwatt.expose import tls
from clusterwatt.expose.auth import Passwords, RateLimit
from clusterwatt.expose.press import Press
from clusterwatt.log import ChangeLog
from clusterwatt.readings.agent import WebFileState
from clusterwatt.readings.base import Reading

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0

Identity = tuple[tuple[int, ...] | None, ...]


class Rules(msgspec.Struct, frozen=True):
    """One version of the file, ready for use. `files`: what the files were when they were read."""

    web: Web
    context: ssl.SSLContext | None
    expiry_timestamp_seconds: float | None
    bcrypt: ModuleType | None
    files: Identity


def load(path: Path) -> Rules:
    """Read the file and the files that it names. Raises ConfigError with lines that hold no secret."""
    record = web.read(path)
    content = record.content
    files = _identity(path, content)  # before they are read: a later change is seen at the next look
    context, expiry_s, bcrypt = None, None, None
    server = content.tls_server_config
    if server is not None:
        try:
            context = tls.context(server)
            expiry_s = tls.expiry_timestamp_seconds(server.cert_file)
        except tls.TlsFault as fault:
            raise ConfigError([record.problem(f"tls_server_config.{fault.key}", str(fault))]) from None
        except (OSError, ValueError):
            raise ConfigError(
                [record.problem("tls_server_config.cert_file", "it changed while it was read")]
            ) from None
    if content.basic_auth_users:
        try:
            bcrypt = importlib.import_module("bcrypt")
        except ImportError:
            text = "needs the package bcrypt: pip install 'clusterwatt[auth]'"
            raise ConfigError([record.problem("basic_auth_users", text)]) from None
    return Rules(content, context, expiry_s, bcrypt, files)


def check(path: str) -> None:
    """Read the file once, where there is one. Raises ConfigError."""
    if path:
        load(Path(path))


class WebFile:
    """What is in force. Belongs to the event loop. Raises ConfigError when it cannot begin."""

    def __init__(self, path: str, clock: Clock, look_every_s: float = LOOK_EVERY_S) -> None:
        self._path = Path(path)
        self._clock = clock
        self._look_every_s = look_every_s
        self._log = ChangeLog(log, clock)
        self._rules = load(self._path)
        self._failed = False
        self._seen: Identity | None = None  # of a newer version, at the last look
        self._errors = 0
        self._passwords: Passwords | None = None
        self._rate: RateLimit | None = None
        self._looking: asyncio.Task[None] | None = None
        self._checks = Press("passwords")
        self._looks = Press("web-file")
        self._apply(None)
        if self.context is None and self._rules.web.basic_auth_users:
            log.warning("%s: without tls_server_config passwords are sent in clear", path)

    @property
    def context(self) -> ssl.SSLContext | None:
        """What the next handshake is made with; None: there is no TLS."""
        return self._rules.context

    @property
    def passwords(self) -> Passwords | None:
        """Who may ask; None: everybody."""
        return self._passwords

    @property
    def headers(self) -> Mapping[str, str]:
        """Further headers of all answers, or others in place of ours."""
        set_to = self._rules.web.http_server_config.headers
        return {name: value for name, value in set_to.items() if value}

    def may_ask(self) -> bool:
        """Whether there is room for one more request."""
        return self._rate is None or self._rate.take()

    def admits(self, peer: object) -> bool:
        """Whether a client with this certificate, as ssl tells it, may connect."""
        server = self._rules.web.tls_server_config
        return server is None or tls.is_allowed(peer, server.client_allowed_sans)

    def handshake_failed(self, reason: str, client: str) -> None:
        """Say so now and then; `reason` is one of OpenSSL's."""
        self._log.bad(f"handshake {reason}", reason, f"{client}: TLS handshake failed: {reason}")

    def readings(self) -> Iterator[Reading]:
        """The end of the certificate in force, and how often a newer one could not be used."""
        yield WebFileState(
            certificate_expiry_timestamp_seconds=self._rules.expiry_timestamp_seconds,
            reload_errors=float(self._errors),
        )

    def start(self) -> None:
        """Begin to look for changes."""
        self._looking = asyncio.get_running_loop().create_task(self._keep_looking())
        self._looking.add_done_callback(self._looks_no_more)

    async def stop(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        self._checks.stop()
        self._looks.stop()

    async def look(self) -> None:
        """Take what has changed into force, if it can be used and was the same at the last look already."""
        before, again = self._rules, self._failed
        try:
            found = await self._looks.do(lambda: _changed(self._path, before, again))
        except ConfigError as error:
            self._failed, self._seen = True, None
            self._errors += 1
            more = len(error.problems) - 1
            also = f" (and {more} more mistakes)" if more else ""
            said = f"{error.problems[0]}{also}"
            self._log.bad("reload", said, f"{said}; what was read before stays in force")
            return
        seen, self._seen = self._seen, None if found is None else found.files
        if found is None or found.files != seen:
            return
        self._failed, self._seen = False, None
        self._rules = found
        self._apply(before)
        self._log.good("reload", "the web configuration file can be used again")
        log.info("%s: changes are in force", self._path)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._look_every_s)
            await self.look()

    def _looks_no_more(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            text = "%s: changes are not seen any more, a bug; restart the agent to have them"
            log.error(text, self._path, exc_info=task.exception())

    def _apply(self, before: Rules | None) -> None:
        now = self._rules.web
        if before is None or now.basic_auth_users != before.web.basic_auth_users:
            self._passwords = None
            if self._rules.bcrypt is not None:
                self._passwords = Passwords(
                    now.basic_auth_users, self._rules.bcrypt, self._checks, self._clock
                )
        if before is None or now.rate_limit != before.web.rate_limit:
            limit = now.rate_limit
            interval_s = limit.interval_seconds
            self._rate = RateLimit(interval_s, limit.burst, self._clock) if interval_s else None


def _changed(path: Path, before: Rules, again: bool) -> Rules | None:
    """The files as they are now; None when they are as before. Raises ConfigError."""
    if not again and _identity(path, before.web) == before.files:
        return None
    found = load(path)
    if (found.context is None) != (before.context is None):
        text = "TLS is put on or off when the agent is restarted"
        raise ConfigError([Problem(str(path), "tls_server_config", text)])
    return found


def _identity(path: Path, content: Web) -> Identity:
    server = content.tls_server_config
    return tuple(_identity_of(file) for file in (str(path), *(server.files if server else ())))


def _identity_of(file: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
