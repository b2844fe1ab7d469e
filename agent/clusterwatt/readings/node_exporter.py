"""Families under node_exporter's names, for its own page only."""

from __future__ import annotations

from clusterwatt.readings.base import Reading


class NodeFamily(Reading, frozen=True):
    """A family as node_exporter has it. kind: counter, gauge, untyped. A sample: label values and value."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    samples: tuple[tuple[tuple[str, ...], float], ...]


class MountSource(Reading, frozen=True):
    """The device, export or name that is mounted at a mount point."""

    mountpoint: str
    fstype: str
    device: str
