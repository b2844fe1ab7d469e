"""Collectors: one small file each, its metrics as data and `collect()` over injected files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from clusterwatt.readings.base import Reading


class Collector(Protocol):
    """Reads one source. Knows no HTTP, no jobs, no configuration file; its time is injected.

    `collect` yields readings, and a `Failure` for each item that could not be read while others could. What
    it raises costs the whole pass.
    """

    name: str

    def collect(self) -> Iterable[Reading]:
        """Read the source once; may block, runs on the collector's own thread."""
        ...


@runtime_checkable
class Closing(Protocol):
    """A collector that holds more than memory."""

    def close(self) -> None:
        """Let go of it; called on the collector's own thread, after which it is not used again."""
        ...
