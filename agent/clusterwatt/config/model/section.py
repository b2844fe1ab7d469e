"""What sections are made of: their type, and the kinds of values that several of them have."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Tick = Annotated[float, Meta(ge=0.1, le=3_600)]

# Text with a form of its own: `config.values` checks what `extra` names.
NotEmpty = Annotated[str, Meta(min_length=1)]
Pattern = Annotated[str, Meta(extra={"form": "pattern"})]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group of settings; a key that it does not know is an error."""


class Collector(Section, frozen=True):
    """`enabled`, and how often it reads: each `every_seconds`."""

    enabled: bool = True
    every_seconds: Tick = 1.0
