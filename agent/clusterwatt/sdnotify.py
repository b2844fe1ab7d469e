"""Word to systemd: ready, alive, stopping (sd_notify(3)). One datagram; nothing happens outside systemd."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(message: str) -> None:
    """Send a state such as `READY=1` to the socket that systemd names; errors are not ours to handle."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # the abstract name space
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(message.encode(), address)
