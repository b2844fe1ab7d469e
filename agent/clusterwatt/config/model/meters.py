"""Section `meters`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from clusterwatt.config.model.section import Section


class Meters(Section, frozen=True):
    """What energy is multiplied by, and which GPU counts as idle.

    `pue`: energy of the site over energy of its computers; 1 leaves the site out of carbon and money.
    `idle_below_ratio`: a GPU that a job holds counts as idle when its activity over the last
    `idle_window_seconds` is under this share.
    `other_ratio`: energy of fans, network cards, disks and losses, as a share of that of GPU, CPU and memory;
    where the node has a power meter, that is used instead. 0: not estimated.
    """

    pue: Annotated[float, Meta(ge=1, le=10)] = 1.0
    idle_below_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.01
    idle_window_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    other_ratio: Annotated[float, Meta(ge=0, le=2)] = 0.0
