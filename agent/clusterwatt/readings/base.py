"""The ground of all readings, and the one for an item that could not be read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import is_
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


class Joiner:
    """Parts readings by type that come in groups of one type, of which most are those of the last time."""

    def __init__(self) -> None:
        self._last: dict[type[Reading], tuple[list[Sequence[Reading]], tuple[Any, ...]]] = {}

    def by_type(self, groups: Iterable[Sequence[Reading]]) -> dict[type[Reading], tuple[Any, ...]]:
        """As `by_type`. What consists of the same groups is the same tuple; none of them is empty."""
        parts: defaultdict[type[Reading], list[Sequence[Reading]]] = defaultdict(list)
        for group in groups:
            parts[type(group[0])].append(group)
        last, self._last = self._last, {}
        for kind, part in parts.items():
            before, joined = last.get(kind, ([], ()))
            if len(before) != len(part) or not all(map(is_, before, part)):
                joined = tuple(chain.from_iterable(part))
            self._last[kind] = part, joined
        return {kind: joined for kind, (_, joined) in self._last.items()}


class Failure(Reading, frozen=True):
    """One item (a port, a disk, a GPU) that could not be read, while its neighbours could.

    `reason` is a short word from a closed set: it becomes a label value. `detail` is for the log only.
    `ongoing`: nothing was tried this time, because it has failed so often; it does not count as one more.
    """

    item: str
    reason: str
    detail: str = ""
    ongoing: bool = False
