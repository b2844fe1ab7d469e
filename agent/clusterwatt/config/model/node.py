"""Section `node`, and what the node is called."""

from __future__ import annotations

import os
import platform
from typing import Annotated

import msgspec
from msgspec import Meta

from clusterwatt.config.model.section import NotEmpty, Section


def node_name() -> str:
    """What the node is called. A pod's host name is its own: there NODE_NAME says it, from spec.nodeName."""
    return os.environ.get("NODE_NAME") or platform.node()


class Node(Section, frozen=True):
    """The machine itself.

    `root`: where its file system is mounted, `/` unless the agent runs in a container.
    `gpus_expected`: how many GPUs it should show; 0: as Slurm says (workloads.slurm_node), else the most that
    NVIDIA's driver could have on the PCI bus.
    `gpus_expected_from_bus`: whether the bus is asked; false where the agent may see a part of them only, as
    in a container that was given two of eight.
    `power_feed_ratios`: the share of its power that comes from each feed, as `{A: 0.5, B: 0.5}`.
    `power_feed_capacity_watts`: what each feed can carry, the same on all nodes of the feed.
    """

    root: NotEmpty = "/"
    gpus_expected: Annotated[int, Meta(ge=0, le=1_024)] = 0
    gpus_expected_from_bus: bool = True
    power_feed_ratios: dict[str, Annotated[float, Meta(gt=0, le=1)]] = msgspec.field(default_factory=dict)
    power_feed_capacity_watts: dict[str, Annotated[float, Meta(gt=0, le=1e9)]] = msgspec.field(
        default_factory=dict
    )
