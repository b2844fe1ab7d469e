"""Section `http`: the server of the page."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from clusterwatt.config.model.addresses import ListenAddress
from clusterwatt.config.model.section import Seconds, Section


class Http(Section, frozen=True):
    """The page.

    `listen`: address and port, as `127.0.0.1:10777`, `[::1]:10777`, or `:10777` for every address of the
    machine; on the loopback unless told otherwise. Port 0 takes any that is free.
    `header_timeout_seconds`: a client that has not sent its request by then, TLS handshake included, is cut
    off. `max_connections`: a further one takes the place of the one that has been silent for longest, and is
    closed at once where none is. `max_connections_per_client`: the same for one address, or one /64 of IPv6;
    the loopback is not held to it, a proxy there speaks for many.
    `web_config_file`: TLS, users, headers and a rate limit, in the format of Prometheus' exporters
    (docs/SECURITY.md); read again when it, a certificate or a key changes. Empty: none of these.
    """

    listen: ListenAddress = "127.0.0.1:10777"
    header_timeout_seconds: Seconds = 10.0
    max_connections: Annotated[int, Meta(ge=1, le=100_000)] = 512
    max_connections_per_client: Annotated[int, Meta(ge=1, le=100_000)] = 64
    web_config_file: str = ""
