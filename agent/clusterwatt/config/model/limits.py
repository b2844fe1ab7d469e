"""Section `limits`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from clusterwatt.config.model.section import Section


class Limits(Section, frozen=True):
    """What goes on the page.

    `profile`: minimal, standard or full. `families`: single families on or off, by name.
    `max_series`: the last wall; series beyond it are dropped and counted.
    """

    profile: Literal["minimal", "standard", "full"] = "standard"
    families: dict[str, bool] = msgspec.field(default_factory=dict)
    max_series: Annotated[int, Meta(ge=1, le=1_000_000)] = 20_000
