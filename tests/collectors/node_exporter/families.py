"""Asks readings under node_exporter's names for one series, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.node_exporter import NodeFamily
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock


def files_of(root: Path) -> Files:
    return Files(root, FakeClock())


def values(readings: Iterable[Reading], name: str) -> dict[tuple[str, ...], float]:
    """Values of a family by its label values; empty when it is absent."""
    found = [reading for reading in readings if isinstance(reading, NodeFamily) and reading.name == name]
    assert len(found) <= 1, f"{name} comes {len(found)} times"
    return dict(found[0].samples) if found else {}


def failures(readings: Iterable[Reading]) -> set[str]:
    return {reading.item for reading in readings if isinstance(reading, Failure)}
