"""The ground of all readings, and the one for an item that could not be read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec


class Reading(msgspec.Struct, frozen=True, array_like=True, tag=True, tag_field="reading"):
    """A fact. Encoded as a tagged array, because GPU readings cross a pipe once a second."""


R = TypeVar("R", bound=Reading)

ByType = Mapping[type[Reading], tuple[Any, ...]]


def by_type(readings: Iterable[Reading]) -> dict[type[Reading], tuple[Any, ...]]:
    """Readings in their order, parted by type."""
    parts: defaultdict[type[Reading], list[Reading]] = defaultdict(list)
    for reading in readings:
        parts[type(reading)].append(reading)
    return {kind: tuple(part) for kind, part in parts.items()}


def joined(groups: Iterable[Sequence[Reading]]) -> dict[type[Reading], tuple[Any, ...]]:
    """The same of readings that come in groups of one type; none of them is empty."""
    parts: defaultdict[type[Reading], list[Reading]] = defaultdict(list)
    for group in groups:
        parts[type(group[0])].extend(group)
    return {kind: tuple(part) for kind, part in parts.items()}


class Failure(Reading, frozen=True):
    """One item (a port, a disk, a GPU) that could not be read, while its neighbours could.

    `reason` is a short word from a closed set: it becomes a label value. `detail` is for the log only.
    `ongoing`: nothing was tried this time, because it has failed so often; it does not count as one more.
    """

    item: str
    reason: str
    detail: str = ""
    ongoing: bool = False
