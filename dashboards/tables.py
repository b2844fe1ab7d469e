"""Tables: rows by labels, a column for each query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboards import fields
from dashboards.board import Json, Panel, Query
from dashboards.colours import AMBER, BLUE, GREY, NOTHING, ORANGE, SEVERITIES, SKY
from dashboards.links import linked
from dashboards.promql import with_short_job

# Grafana 12.2 asks for the second where older versions ask for the first.
HIDDEN = [
    {"id": "custom.hidden", "value": True},
    {"id": "custom.hideFrom", "value": {"viz": True, "legend": True, "tooltip": True}},
]
LINKS_ONLY = ("uuid", "job_id")  # columns that links need and people do not
# A cell has a colour only where something is amiss: the eye finds it, and text stays legible in both themes.
BACKGROUND = {"type": "color-background", "mode": "basic"}
CELLS = {BLUE: NOTHING, ORANGE: AMBER, SKY: NOTHING}

# Who a job is: the short id for people, the whole one for links.
OF_JOB = {"name": "Name", "short": "Job", "job_id": "job_id", "user": "User", "account": "Account"}


def who(jobs: str) -> Query:
    """The labels of `OF_JOB` for a table. `jobs`: series of clusterwatt_job_info."""
    return Query(f"max by (job_id, short, name, user, account) ({with_short_job(jobs)})")


def table(
    title: str,
    about: str,
    size: tuple[int, int],
    *queries: Query,
    keys: Mapping[str, str],
    links: Mapping[str, str] | None = None,
    sort: str = "",
    only: str = "",
    rising: bool = False,
    absent: str = fields.NOT_SUPPORTED,
    order: Sequence[str] = (),
    widths: Mapping[str, int] | None = None,
) -> Panel:
    """Rows by labels. `keys`: title of the column of each label that is shown, in their order.

    `links`: address by title of a column. `only`: rows that have a value in this column.
    """
    links = links or {}
    letters = list(fields.lettered(queries))
    values = {f"Value #{letter}" if len(letters) > 1 else "Value": query for letter, query in letters}
    names = {**keys, **{column: query.name for column, query in values.items() if query.name}}
    unnamed = [column for column, query in values.items() if not query.name]
    hide = dict.fromkeys(["Time", "__name__", "cluster", *unnamed], True)
    titles = {title: column for column, title in names.items()}
    sequence = [titles[name] for name in order] or list(names)
    sequence += [column for column in names if column not in sequence]
    transformations: list[Json] = [{"id": "merge", "options": {}}]
    if only:
        keep = {"fieldName": titles[only], "config": {"id": "isNotNull", "options": {}}}
        transformations.append(
            {"id": "filterByValue", "options": {"filters": [keep], "type": "include", "match": "all"}}
        )
    index = {column: place for place, column in enumerate(sequence)}
    transformations.append(
        {"id": "organize", "options": {"excludeByName": hide, "renameByName": names, "indexByName": index}}
    )
    overrides = [_column(query, links.get(query.name, ""), absent) for query in queries if query.name]
    overrides += [
        {"matcher": {"id": "byName", "options": name}, "properties": [linked(address)]}
        for name, address in links.items()
        if name in keys.values()
    ]
    overrides += [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "custom.width", "value": width}]}
        for name, width in (widths or {}).items()
    ]
    if "severity" in keys:
        overrides.append(_severity(keys["severity"]))
    overrides += [
        {"matcher": {"id": "byName", "options": name}, "properties": HIDDEN}
        for name in LINKS_ONLY
        if name in keys.values()
    ]
    defaults = fields.defaults("none", ((GREY, None),), absent)
    nobody = {"type": "special", "options": {"match": "empty", "result": {"text": "-", "index": 98}}}
    defaults["mappings"].insert(0, nobody)
    defaults["custom"] = {
        "align": "auto",
        "cellOptions": {"type": "auto"},
        "filterable": False,
        "inspect": False,
        "minWidth": 60,
    }
    body = {
        "fieldConfig": {"defaults": defaults, "overrides": overrides},
        "options": {
            "showHeader": True,
            "cellHeight": "sm",
            "frameIndex": 0,
            "sortBy": [{"displayName": sort, "desc": not rising}] if sort else [],
        },
    }
    targets = fields.targets(queries, instant=True, form="table")
    return Panel("table", title, about, *size, targets, body, tuple(transformations))


def newest_first(
    title: str, about: str, size: tuple[int, int], when: str, *queries: Query, keys: Mapping[str, str]
) -> Panel:
    """What happened. `when`: a query of Unix times, by the labels of `keys`."""
    at = Query(f"1000 * {when}", "When", "dateTimeAsIso")
    return table(
        title,
        about,
        size,
        at,
        *queries,
        keys=keys,
        sort="When",
        absent=fields.NONE,
        widths={"When": 170},
        order=("When",),
    )


def _severity(title: str) -> Json:
    words = {
        word: {"text": word, "color": CELLS.get(colour, colour), "index": place}
        for place, (word, colour) in enumerate(SEVERITIES.items())
    }
    properties: list[Json] = [
        {"id": "mappings", "value": [{"type": "value", "options": words}]},
        {"id": "custom.cellOptions", "value": BACKGROUND},
        {"id": "color", "value": {"mode": "fixed", "fixedColor": NOTHING}},
    ]
    return {"matcher": {"id": "byName", "options": title}, "properties": properties}


def _column(query: Query, address: str, absent: str) -> Json:
    properties: list[Json] = [
        {"id": name, "value": value} for name, value in fields.unit_of(query.unit).items()
    ]
    words = fields.mappings(query, absent)
    words[-1]["options"]["result"]["color"] = NOTHING
    properties.append({"id": "mappings", "value": words})
    if query.decimals is not None:
        properties.append({"id": "decimals", "value": query.decimals})
    if query.steps:
        steps = [(CELLS.get(colour, colour), value) for colour, value in query.steps]
        properties.append({"id": "thresholds", "value": fields.thresholds(steps)})
        properties.append({"id": "custom.cellOptions", "value": BACKGROUND})
    if query.bar:
        gauge = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
        properties += [
            {"id": "custom.cellOptions", "value": gauge},
            {"id": "min", "value": 0},
            {"id": "max", "value": 1},
        ]
        properties.append({"id": "thresholds", "value": fields.thresholds(query.steps or ((BLUE, None),))})
    if address:
        properties.append(linked(address))
    return {"matcher": {"id": "byName", "options": query.name}, "properties": properties}
