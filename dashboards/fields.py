"""What panels of all types have: queries with letters, units, thresholds, words for values, overrides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dashboards.board import Json, Query, Target
from dashboards.colours import GREY, Steps
from dashboards.links import linked
from dashboards.promql import expand
from dashboards.units import MONEY

NOT_SUPPORTED = "not supported"
NONE = "none"
NOT_ASKED = "not asked for"
FULL = "Needs the series profile `full` (`limits.profile`)."


def lettered(queries: Sequence[Query]) -> Iterable[tuple[str, Query]]:
    """Queries with the letters that Grafana knows them by."""
    return zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", queries, strict=False)


def targets(
    queries: Sequence[Query], *, instant: bool, form: str = "time_series", every: str = ""
) -> tuple[Target, ...]:
    """The queries as a panel asks them."""
    return tuple(
        Target(letter, expand(query.expression), query.name or "__auto", instant, form, every)
        for letter, query in lettered(queries)
    )


def _absent(text: str) -> Json:
    return {
        "type": "special",
        "options": {"match": "null+nan", "result": {"text": text, "color": GREY, "index": 99}},
    }


def thresholds(steps: Steps) -> Json:
    """Colours by value."""
    return {"mode": "absolute", "steps": [{"color": colour, "value": value} for colour, value in steps]}


def fixed(colour: str) -> Json:
    """One colour whatever the value."""
    return {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}


def unit_of(unit: str) -> Json:
    """A unit as properties. Money has its currency in the name of its series: two decimals, no sign."""
    return {"decimals": 2, "unit": "short"} if unit == MONEY else {"unit": unit or "none"}


def defaults(unit: str, steps: Steps, absent: str = NOT_SUPPORTED) -> Json:
    """What holds for all values of a panel. `absent`: what stands where there is none."""
    return {
        **unit_of(unit),
        "thresholds": thresholds(steps),
        "color": {"mode": "thresholds"},
        "mappings": [_absent(absent)],
        "noValue": absent,
    }


def mappings(query: Query, absent: str = NOT_SUPPORTED) -> list[Json]:
    """Words for values, and for no value."""
    words = [
        {"type": "value", "options": {value: {"text": word, "index": place}}}
        for place, (value, word) in enumerate(query.texts.items())
    ]
    return [*words, _absent(query.absent or absent)]


def override(
    letter: str, query: Query, *, default: str = "", dashed: bool = False, colour: bool = True
) -> Json:
    """What one query of a panel has of its own."""
    properties: list[Json] = [{"id": name, "value": value} for name, value in unit_of(query.unit).items()]
    if query.decimals is not None:
        properties.append({"id": "decimals", "value": query.decimals})
    if query.steps:
        properties.append({"id": "thresholds", "value": thresholds(query.steps)})
    if query.texts or query.absent:
        properties.append({"id": "mappings", "value": mappings(query)})
    if query.absent:
        properties.append({"id": "noValue", "value": query.absent})
    if colour:
        mode = "shades" if query.many else "fixed"
        properties.append({"id": "color", "value": {"mode": mode, "fixedColor": query.colour or default}})
        if query.dashed or (dashed and not query.many and not query.colour):
            properties.append({"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}})
    elif query.colour:
        properties.append(fixed(query.colour))
    if query.band:
        properties += [
            {"id": "custom.fillBelowTo", "value": query.band},
            {"id": "custom.fillOpacity", "value": 25},
        ]
    if query.right:
        properties.append({"id": "custom.axisPlacement", "value": "right"})
    if query.link:
        properties.append(linked(query.link))
    return {"matcher": {"id": "byFrameRefID", "options": letter}, "properties": properties}
