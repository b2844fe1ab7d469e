"""Yearly means of carbon intensity by zone: data/carbon_intensity.csv, whose sources NOTICE names.

`zone` is a country (ISO 3166-1 alpha-2, and XK), a state of the US (`US-TX`) or `WORLD`. Means of generation
in the zone, imports not included; rows of `owid-ember` are for the life cycle of the plants, rows of
`egrid2016` for what leaves the chimney, so the two kinds do not compare.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator, Mapping
from importlib import resources

import msgspec

WORLD = "WORLD"
OLD_YEARS = 5


class Row(msgspec.Struct, frozen=True):
    """A zone's mean over `year`, and who states it."""

    zone: str
    country: str
    grams_per_kwh: float
    year: int
    source: str


@functools.cache
def rows() -> Mapping[str, Row]:
    """The table by zone, read once."""
    text = resources.files("clusterwatt").joinpath("data/carbon_intensity.csv").read_text(encoding="utf-8")
    return {
        line["zone"]: Row(
            line["zone"],
            line["country_name"],
            float(line["gco2e_per_kwh"]),
            int(line["year"]),
            line["source"],
        )
        for line in csv.DictReader(text.splitlines())
    }


def cautions(row: Row, this_year: int) -> Iterator[str]:
    """What to know before a row is believed."""
    said = f"carbon intensity of {row.zone} ({row.country}, {row.source})"
    remedy = "set feeds.grid.grams_per_kwh or a service if you know better"
    if row.grams_per_kwh == 0:
        yield f"{said} is 0 in the table, which is hardly true: {remedy}"
    if this_year - row.year > OLD_YEARS:
        yield f"{said} is of {row.year}: {remedy}"
