"""Series of what is a reading already: it is asked for at each time of a block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from clusterwatt.catalog import Metric
from clusterwatt.fleet.history.text import FAMILIES, Block, Lines, labels_of, value_of
from clusterwatt.readings.base import Reading

BY_READING: dict[type[Reading], list[Metric]] = defaultdict(list)
for _metric in FAMILIES.values():
    BY_READING[_metric.reading].append(_metric)


class Series(NamedTuple):
    """A series of a block, without the instance that it is of."""

    family: str
    labels: dict[str, str]
    lines: Lines


def sampled(block: Block, read: Callable[[float], Iterable[Reading]]) -> Iterator[Series]:
    """The series of what `read` gives at each Unix time; where it leaves one out there is no sample."""
    columns: dict[tuple[str, tuple[tuple[str, str], ...]], list[float | None]] = {}
    for index, time_s in enumerate(block.times):
        for reading in read(time_s):
            for metric in BY_READING.get(type(reading), ()):
                value = value_of(metric, reading)
                if value is not None and block.asks_for(metric.name):
                    key = (metric.name, tuple(labels_of(metric, reading).items()))
                    column = columns.setdefault(key, [])
                    column += [None] * (index - len(column))
                    column.append(value)
    for (family, labels), column in columns.items():
        rest = [None] * (len(block.times) - len(column))
        yield Series(family, dict(labels), block.lines([*column, *rest]))
