"""Addresses as settings write them: their kinds, and what is right in them."""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from typing import Annotated

from msgspec import Meta

ListenAddress = Annotated[str, Meta(extra={"form": "listen address"})]
HttpAddress = Annotated[str, Meta(extra={"form": "http address"})]


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[::1]:port` or `:port`; an empty host stands for every address.

    Raises ValueError, which says what is wrong.
    """
    if "://" in text:
        raise ValueError("leave out http:// and what follows the port")
    host, colon, digits = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", digits) or int(digits) > 65_535:
        raise ValueError("there is no port from 0 to 65535 behind the last colon")
    if host.startswith("[") and host.endswith("]"):
        return str(ipaddress.IPv6Address(host[1:-1])), int(digits)
    if ":" in host:
        raise ValueError("an IPv6 address stands in brackets, as in [::1]:10777")
    if re.fullmatch(r"[0-9.]+", host):
        return str(ipaddress.IPv4Address(host)), int(digits)
    if host and not re.fullmatch(r"(?!-)[A-Za-z0-9_.-]{1,253}", host):
        raise ValueError("the host is neither an address nor a name")
    return host, int(digits)


def http_address(text: str) -> str:
    """Check an http or https address; empty is right too. Raises ValueError, which says what is wrong."""
    if not text:
        return text
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("it begins with http:// or https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("no user or password in it: they would be seen; a header from a file can hold them")
    if re.search(r"[^!-~]", text):
        raise ValueError("spaces and letters beyond ASCII are written with %")
    parts.port  # noqa: B018 - raises ValueError when it is none
    return text
