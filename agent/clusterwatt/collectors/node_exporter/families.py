"""Families under node_exporter's names, made of rows of one table: each column is a family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from clusterwatt.readings.base import Failure
from clusterwatt.readings.node_exporter import NodeFamily

COUNTER, GAUGE, UNTYPED = "counter", "gauge", "untyped"

Column = tuple[str, str]
Row = tuple[tuple[str, ...], Sequence[float | None]]
Found = Iterator[NodeFamily | Failure]


def table(source: str, labels: tuple[str, ...], columns: Sequence[Column], rows: Iterable[Row]) -> Found:
    """One family for each column, given as name and kind, with a sample for each row that has a value in it.

    A row is its label values and its values; it may be shorter than there are columns.
    """
    samples: list[list[tuple[tuple[str, ...], float]]] = [[] for _ in columns]
    for key, values in rows:
        for column, value in zip(samples, values, strict=False):
            if value is not None:
                column.append((key, float(value)))
    for (name, kind), found in zip(columns, samples, strict=True):
        if found:
            yield NodeFamily(name, kind, f"From {source}.", labels, tuple(found))


def single(source: str, values: Iterable[tuple[str, str, float | None]]) -> Found:
    """Families of one sample without labels, given as name, kind and value."""
    for name, kind, value in values:
        yield from table(source, (), ((name, kind),), (((), (value,)),))
