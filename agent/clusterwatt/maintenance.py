"""The maintenance flag: a file by which people say that somebody works on the node.

Alert rules leave out a node in maintenance; nothing else changes. The file outlives a reboot, which
maintenance often brings. Empty, as `touch` makes it, it stands until it is removed; with a Unix time in it,
until then.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from clusterwatt import plain_file, whole_file

MAX_BYTES = 64


class Maintenance(msgspec.Struct, frozen=True):
    """Whether the node is in maintenance, and until when it was said to be; None: until told otherwise.

    `understood`: the flag says when it ends, or is empty.
    """

    on: bool
    until_s: float | None = None
    understood: bool = True


OFF = Maintenance(on=False)


def look(path: Path, now_s: float) -> Maintenance:
    """What the flag says at a Unix time. A flag that is there and cannot be understood says that it is.

    Raises OSError when it cannot be read.
    """
    try:
        text = plain_file.content(path, MAX_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return OFF
    try:
        until_s = float(text) if text else None
    except ValueError:
        until_s = None
    if until_s is not None and not math.isfinite(until_s):
        until_s = None
    if until_s is not None and until_s <= now_s:
        return OFF
    return Maintenance(on=True, until_s=until_s, understood=until_s is not None or not text)


def switch_on(path: Path, until_s: float | None) -> None:
    """Set the flag, whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_file.write(path, "" if until_s is None else f"{until_s:.0f}\n")


def switch_off(path: Path) -> None:
    """Take the flag away; nothing happens when there is none. Raises OSError."""
    path.unlink(missing_ok=True)
