"""What each accelerator can do at most: data/accelerators.yaml, where its sources stand.

Read when the first GPU is seen, not at the start: a node without one never needs it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import msgspec

from clusterwatt.tables import table

# A vGPU has a slice of a board's time: `GRID T4-16Q`, `NVIDIA A40-48C`, `GRID A100-4-20C`.
VGPU = re.compile(r"-\d+[ABCQ]$")
TERA = 1e12


class Row(msgspec.Struct, frozen=True):
    """A row of the table; a rate that nobody states is None. `match`, `exclude`: patterns for the name."""

    id: str
    match: str
    exclude: str | None
    dense_tflops: Mapping[str, float | None]


class Document(msgspec.Struct, frozen=True):
    """The part of the file that is used."""

    accelerators: tuple[Row, ...]


@functools.cache
def rows() -> tuple[Row, ...]:
    """The rows in the order in which they are to be tried, read once."""
    return msgspec.convert(table("accelerators"), Document).accelerators


@functools.lru_cache(maxsize=64)
def row_of(name: str) -> Row | None:
    """The row for a product name as the driver states it; None for an unknown model and for a vGPU."""
    if VGPU.search(name):
        return None
    for row in rows():
        if re.search(row.match, name) and not (row.exclude and re.search(row.exclude, name)):
            return row
    return None


@functools.lru_cache(maxsize=64)
def peak_flops(name: str) -> Mapping[str, float]:
    """Dense peak by precision, in FLOP per second; without those that nobody states."""
    row = row_of(name)
    stated = {} if row is None else row.dense_tflops
    return {precision: tflops * TERA for precision, tflops in stated.items() if tflops is not None}
