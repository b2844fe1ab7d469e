"""Panels of all types but tables: large numbers, lines, maps of cells, states over time, bars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dashboards import fields
from dashboards.board import Json, Panel, Query
from dashboards.colours import BLUE, DASHED_FROM, GREY, NUMBERS, SERIES, SKY, Steps
from dashboards.links import panel_links, says
from dashboards.promql import worst


def stats(
    title: str,
    about: str,
    size: tuple[int, int],
    *queries: Query,
    spark: bool = False,
    to: str = "",
) -> Panel:
    """Large numbers beside each other. `spark`: each with its course behind it."""
    numbers = [_to_be_read(query) for query in queries]
    overrides = [fields.override(letter, query, colour=False) for letter, query in fields.lettered(numbers)]
    body: Json = {
        "options": {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "graphMode": "area" if spark else "none",
            "colorMode": "value",
            "justifyMode": "center",
            "orientation": "vertical",
            "textMode": "value_and_name",
            "wideLayout": False,
            "showPercentChange": False,
            "percentChangeColorMode": "standard",
            "text": {"titleSize": 14, "valueSize": 26},
        },
        "fieldConfig": {
            "defaults": fields.defaults(queries[0].unit, ((NUMBERS[BLUE], None),)),
            "overrides": overrides,
        },
    }
    targets = fields.targets(queries, instant=not spark)
    return Panel("stat", title, about, *size, targets, body, links=panel_links(to))


def _to_be_read(query: Query) -> Query:
    """The query in the colours of large numbers."""
    steps = tuple((NUMBERS.get(colour, colour), value) for colour, value in query.steps)
    return replace(query, steps=steps, colour=NUMBERS.get(query.colour, query.colour))


def lines(
    title: str,
    about: str,
    size: tuple[int, int],
    *queries: Query,
    stacked: bool = False,
    limits: Steps = (),
    low: float | None = 0,
    high: float | None = None,
    log: bool = False,
    colours: Mapping[str, str] | None = None,
    to: str = "",
    bars: bool = False,
    every: str = "",
    time_from: str | None = None,
) -> Panel:
    """Courses over time. `limits`: lines at thresholds. `colours`: by a pattern of the name of the line."""
    unit = queries[0].unit
    # A single course from zero may have some body; of several, only the lines are told apart.
    body_of_line = 12 if len(queries) == 1 and not queries[0].many and low is not None else 0
    custom: Json = {
        "drawStyle": "bars" if bars else "line",
        "lineWidth": 1 if stacked or bars else 2,
        "fillOpacity": 70 if bars else 55 if stacked else body_of_line,
        "gradientMode": "none" if stacked or bars else "opacity",
        "lineInterpolation": "linear",
        "showPoints": "never",
        "spanNulls": False,
        "axisColorMode": "text",
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if limits else "off"},
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
    }
    if low is not None and not log:
        custom["axisSoftMin"] = low
    if high is not None:
        custom["axisSoftMax"] = high
    overrides = [
        fields.override(letter, query, default=SERIES[place % len(SERIES)], dashed=place >= DASHED_FROM)
        for place, (letter, query) in enumerate(fields.lettered(queries))
    ]
    overrides += [
        {"matcher": {"id": "byRegexp", "options": f"/{pattern}/"}, "properties": [fields.fixed(colour)]}
        for pattern, colour in (colours or {}).items()
    ]
    absent = queries[0].absent if len({query.absent for query in queries}) == 1 else ""
    defaults = fields.defaults(unit, limits or ((BLUE, None),), absent or fields.NOT_SUPPORTED)
    defaults["custom"] = custom
    defaults["color"] = {"mode": "shades", "fixedColor": SKY}
    if to:
        defaults["links"] = [{"title": says(to), "url": to}]
    body = {
        "fieldConfig": {"defaults": defaults, "overrides": overrides},
        "options": {
            "legend": {
                "showLegend": True,
                "displayMode": "list",
                "placement": "bottom",
                "calcs": [],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }
    targets = fields.targets(queries, instant=False, every=every)
    return Panel("timeseries", title, about, *size, targets, body, time_from=time_from)


def worst_of(
    title: str,
    about: str,
    size: tuple[int, int],
    by: str,
    expression: str,
    unit: str,
    *,
    colour: str = SKY,
    most: int = 8,
    lowest: bool = False,
    legend: str = "",
    absent: str = "",
    limits: Steps = (),
    high: float | None = None,
    to: str = "",
) -> Panel:
    """Courses of the few that are highest, or lowest, at the end of the range; `by`: labels that tell them apart."""
    legend = legend or " ".join(f"{{{{{each}}}}}" for each in by.split(", "))
    few = worst(most, by, expression, lowest=lowest)
    query = Query(few, legend, unit, many=True, colour=colour, absent=absent)
    return lines(title, about, size, query, limits=limits, high=high, to=to)


def daily(
    title: str, about: str, size: tuple[int, int], query: Query, *, colours: Mapping[str, str]
) -> Panel:
    """A stacked bar for each day, of a query that looks a day back."""
    return lines(title, about, size, query, stacked=True, bars=True, every="1d", colours=colours)


def cells(
    title: str,
    about: str,
    size: tuple[int, int],
    query: Query,
    *,
    low: float = 0,
    high: float = 1,
    to: str = "",
    scale: str = "continuous-blues",
) -> Panel:
    """A row for each series and a cell for each moment: depth of blue, or thresholds where there are any."""
    defaults = fields.defaults(query.unit, query.steps or ((BLUE, None),))
    defaults |= {"min": low, "max": high}
    defaults["color"] = {"mode": "thresholds" if query.steps else scale}
    defaults["custom"] = {"fillOpacity": 90, "lineWidth": 0}
    if to:
        defaults["links"] = [{"title": says(to), "url": to}]
    body: Json = {
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "rowHeight": 0.9,
            "colWidth": 0.95,
            "showValue": "never",
            "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
            "tooltip": {"mode": "single", "sort": "none"},
        },
    }
    targets = fields.targets((query,), instant=False)
    return replace(
        Panel("status-history", title, about, *size, targets, body), body={**body, "maxDataPoints": 60}
    )


def states(
    title: str,
    about: str,
    size: tuple[int, int],
    *queries: Query,
    texts: Mapping[str, tuple[str, str]],
    to: str = "",
) -> Panel:
    """What was the case when: a bar for each series. `texts`: word and colour by value."""
    defaults = fields.defaults("none", ((GREY, None),))
    mappings = [
        {"type": "value", "options": {value: {"text": word, "color": colour, "index": place}}}
        for place, (value, (word, colour)) in enumerate(texts.items())
    ]
    defaults["mappings"] = [*mappings, *defaults["mappings"]]
    defaults["custom"] = {"fillOpacity": 80, "lineWidth": 0}
    if to:
        defaults["links"] = [{"title": says(to), "url": to}]
    body = {
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "mergeValues": True,
            "showValue": "never",
            "rowHeight": 0.8,
            "alignValue": "left",
            "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
            "tooltip": {"mode": "single", "sort": "none"},
        },
    }
    return Panel("state-timeline", title, about, *size, fields.targets(queries, instant=False), body)


def bars(
    title: str,
    about: str,
    size: tuple[int, int],
    *queries: Query,
    steps: Steps = (),
    low: float = 0,
    high: float | None = None,
    colours: Mapping[str, str] | None = None,
    to: str = "",
) -> Panel:
    """A bar for each series, now."""
    defaults = fields.defaults(queries[0].unit, steps or ((BLUE, None),))
    defaults |= {"min": low}
    if high is not None:
        defaults["max"] = high
    if to:
        defaults["links"] = [{"title": says(to), "url": to}]
    overrides = (
        [fields.override(letter, query, colour=False) for letter, query in fields.lettered(queries)]
        if len(queries) > 1
        else []
    )
    overrides += [
        {"matcher": {"id": "byRegexp", "options": f"/{pattern}/"}, "properties": [fields.fixed(colour)]}
        for pattern, colour in (colours or {}).items()
    ]
    body = {
        "fieldConfig": {"defaults": defaults, "overrides": overrides},
        "options": {
            "displayMode": "basic",
            "text": {"titleSize": 12, "valueSize": 14},
            "orientation": "horizontal",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "showUnfilled": True,
            "valueMode": "text",
            "namePlacement": "left",
            "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
            "sizing": "manual",
            "minVizHeight": 14,
            "minVizWidth": 8,
            "maxVizHeight": 26,
        },
    }
    return Panel("bargauge", title, about, *size, fields.targets(queries, instant=True), body)
