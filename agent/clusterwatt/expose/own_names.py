"""The names under which a browser may ask this machine for the live page's readings.

A web page can have a name of its own resolve to this machine or to its loopback (DNS rebinding), and then
reads what the agent answers. What the browser says in Host is the page's name, not ours.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from clusterwatt import plain_file

MAX_FILE_BYTES = 1 << 20


def own_names(
    node_name: str, hosts: Path = Path("/etc/hosts"), resolver: Path = Path("/etc/resolv.conf")
) -> frozenset[str]:
    """What this machine is called: by itself, by hosts(5), and in the domains of resolv.conf(5).

    Names are not looked up: that could take long, and the answer would be the network's.
    """
    called = {name.lower().rstrip(".") for name in (node_name, socket.gethostname())} - {""}
    called |= {name.partition(".")[0] for name in called}
    names = {"localhost", *called}
    for _, *aliases in _lines(hosts):
        if called & set(aliases):
            names.update(aliases)
    for key, *domains in _lines(resolver):
        if key in {"search", "domain"}:
            names.update(f"{name}.{domain.strip('.')}" for name in called for domain in domains)
    return frozenset(names)


def is_own(host: str, names: frozenset[str]) -> bool:
    """Whether a Host header (RFC 9110, 7.2) holds an address or one of the names."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if name in names:
        return True
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return False


def _lines(path: Path) -> Iterator[list[str]]:
    """The words of each line, in lower case, without comments; none of a file that cannot be read."""
    with contextlib.suppress(OSError), plain_file.opened(path) as file:
        for line in file.read(MAX_FILE_BYTES).decode("latin-1").lower().splitlines():
            if words := line.partition("#")[0].split():
                yield words
