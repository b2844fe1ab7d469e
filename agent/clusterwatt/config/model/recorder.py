"""Section `recorder`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from clusterwatt.config.model.places import state_folder
from clusterwatt.config.model.section import NotEmpty, Section


class Recorder(Section, frozen=True):
    """The flight recorder: the last `keep_seconds` of every GPU and port at full rate, in memory.

    It is frozen to a file in `directory` when a GPU is lost or hangs, at a fault of driver or hardware (XID),
    and on SIGUSR2. The oldest files go when there are more than `max_bundles` or they hold more than
    `max_bytes`.
    """

    enabled: bool = True
    keep_seconds: Annotated[float, Meta(ge=60, le=86_400)] = 900.0
    directory: NotEmpty = msgspec.field(default_factory=lambda: str(state_folder() / "flight"))
    max_bundles: Annotated[int, Meta(ge=1, le=1_000)] = 10
    max_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 40)] = 64 << 20
