"""The house style: panels, variables, links and colours of all boards. The only importer of grafanalib.

grafanalib makes dashboards, variables, targets and the frame of a panel; its classes for single panel types
write shapes that Grafana 11 and later no longer take, so a panel's type and options are given as they stand in
Grafana's schema. What it writes and no Grafana since 10 reads is taken out again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import attr
from grafanalib import core
from grafanalib._gen import DashboardEncoder

from dashboards.promql import expand

Json = dict[str, Any]
Steps = Sequence[tuple[str, float | None]]

SCHEMA = 39  # of Grafana 10.4; newer versions read it as it is
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "clusterwatt"

# Okabe and Ito: told apart by people with any of the usual colour visions.
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"),
)
GREY = "#8E8E8E"
SERIES = (SKY, ORANGE, GREEN, PINK, BLUE, VERMILION, YELLOW)
DASHED_FROM = 3  # lines that are told apart by their dashes as well
STATES = {"active": BLUE, "idle": ORANGE, "free": GREY, "missing": VERMILION}
SEVERITIES = {"critical": VERMILION, "warning": ORANGE, "info": SKY}

NOT_SUPPORTED = "not supported"
NONE = "none"
FULL = "Needs the series profile `full` (`limits.profile`)."

# Grafana 12.2 asks for the second where older versions ask for the first.
HIDDEN = [
    {"id": "custom.hidden", "value": True},
    {"id": "custom.hideFrom", "value": {"viz": True, "legend": True, "tooltip": True}},
]

# Units are named as Grafana names them.
RATIO, COUNT, WATT, KWH, CELSIUS, BYTES, BYTES_S, BITS_S = (
    *("percentunit", "none", "watt", "kwatth", "celsius", "bytes", "Bps", "bps"),
)
SECONDS, HOURS, DAYS, HERTZ, GRAMS, PER_S, MONEY = "s", "h", "d", "hertz", "massg", "cps", "currency: "


def good_above(warning: float, critical: float) -> Steps:
    """Vermilion below the second number, orange below the first, blue from there on."""
    return ((VERMILION, None), (ORANGE, critical), (BLUE, warning))


def good_below(warning: float, critical: float | None = None) -> Steps:
    """Blue, orange from the first number on, vermilion from the second on."""
    steps: Steps = ((BLUE, None), (ORANGE, warning))
    return steps if critical is None else (*steps, (VERMILION, critical))


def bad_from(number: float = 1) -> Steps:
    """Blue, and vermilion from a number on: what must not be at all."""
    return ((BLUE, None), (VERMILION, number))


@dataclass(frozen=True)
class Query:
    """A query and how what it yields is shown. `name`: legend, or title of the column.

    `steps`: thresholds. `many`: it yields several lines, which get shades of one colour. `axis`: on the right.
    `absent`: what stands where there is no value.
    """

    expression: str
    name: str = ""
    unit: str = ""
    steps: Steps = ()
    many: bool = False
    right: bool = False
    absent: str = ""
    width: int = 0
    texts: Mapping[str, str] = field(default_factory=dict)
    colour: str = ""
    dashed: bool = False
    decimals: int | None = None
    link: str = ""
    bar: bool = False


@dataclass(frozen=True)
class Panel:
    """A panel without its place. `body` is what its type has beyond queries: options, fieldConfig, ..."""

    kind: str
    title: str
    about: str
    width: int
    height: int
    targets: tuple[core.Target, ...]
    body: Json
    transformations: tuple[Json, ...] = ()
    links: tuple[Json, ...] = ()
    time_from: str | None = None


Line = Sequence[Panel]  # panels beside each other
Fold = tuple[str, Sequence[Line]]  # a collapsed row


@dataclass(frozen=True)
class Variable:
    """A variable of a board. `every`: All can be chosen, and is at first."""

    name: str
    label: str
    query: str
    regex: str = ""
    every: bool = True
    multi: bool = False
    kind: str = "query"
    on_range: bool = False
    sort: int = 1


@dataclass(frozen=True)
class Annotation:
    """Events that can be shown over the lines. `from_value`: the value is the time, in milliseconds."""

    name: str
    expression: str
    text: str
    colour: str
    on: bool = False
    from_value: bool = False


@dataclass(frozen=True)
class Board:
    """One dashboard: `first` is the first screen, `folds` the rows below it."""

    name: str
    title: str
    about: str
    variables: Sequence[Variable]
    first: Sequence[Line]
    folds: Sequence[Fold]
    annotations: Sequence[Annotation] = ()
    since: str = "now-3h"
    refresh: str = "30s"

    @property
    def uid(self) -> str:
        """What links name it by, the same for ever."""
        return uid(self.name)


def uid(board: str) -> str:
    """The identifier of a board by its short name."""
    return f"cw-{board}"


# ------------------------------------------------------------------------------------------------ variables

CLUSTER = Variable("cluster", "cluster", "label_values(clusterwatt_build_info, cluster)")
NODE = Variable(
    "instance", "node", "label_values(clusterwatt_build_info{$cluster}, instance)", every=False, sort=7
)
NODES = replace(NODE, every=True, multi=True)
GPU = Variable(
    "uuid",
    "GPU",
    'query_result(label_join(clusterwatt_gpu_info{$cluster, instance=~"$instance"}, "text", " / ", "gpu", "name"))',
    r'/text="(?<text>[^"]+)".*uuid="(?<value>[^"]+)"/',
    every=False,
    sort=3,
)
JOB = Variable(
    "job_id",
    "job",
    "query_result(topk(200, label_join(max by (job_id, name) (clusterwatt_job_info{$cluster}) * on (job_id) group_left () "
    'min by (job_id) (clusterwatt_job_start_timestamp_seconds{$cluster}), "text", " / ", "name", "job_id")))',
    r'/job_id="(?<value>[^"]+)".*text="(?<text>[^"]+)"/',
    every=False,
    on_range=True,
    sort=0,
)
RUN = Variable(
    "run", "run", 'label_values(clusterwatt_training_info{$cluster, job_id="$job_id"}, run)', multi=True
)
USER = Variable("user", "user", "label_values(clusterwatt_job_info{$cluster}, user)", multi=True)
ACCOUNT = Variable(
    "account", "account", 'label_values(clusterwatt_job_info{$cluster, user=~"$user"}, account)', multi=True
)

# Which variables each board has beyond datasource and cluster: links pass what both ends have.
HAS: Mapping[str, tuple[Variable, ...]] = {
    "cluster": (USER, ACCOUNT),
    "job": (JOB, RUN),
    "node": (NODE,),
    "gpu": (NODE, GPU),
    "fabric": (NODES,),
    "storage": (NODES,),
    "energy": (USER, ACCOUNT),
    "fleet": (),
}
TITLES = {
    "cluster": "Cluster",
    "job": "Job",
    "node": "Node",
    "gpu": "GPU",
    "fabric": "Fabric",
    "storage": "Storage",
    "energy": "Energy, carbon, cost",
    "fleet": "Fleet health",
}


def link(board: str, **values: str) -> str:
    """Address of another board with range, source and cluster of this one, and further variables."""
    parts = ["${__url_time_range}", "${datasource:queryparam}", "${cluster:queryparam}"]
    parts += [f"var-{name}={value}" for name, value in values.items()]
    return f"/d/{uid(board)}?{'&'.join(parts)}"


def cell(name: str) -> str:
    """The value of a column in the same row, for a link."""
    return f'${{__data.fields["{name}"]}}'


def label(name: str) -> str:
    """The value of a label of a line, for a link."""
    return f"${{__field.labels.{name}}}"


TO_JOB = link("job", job_id=cell("Job"))
TO_NODE = link("node", instance=cell("Node"))
TO_GPU = link("gpu", instance=cell("Node"), uuid=cell("uuid"))


# ---------------------------------------------------------------------------------------------------- panels


def stats(
    title: str,
    about: str,
    size: tuple[int, int],
    *queries: Query,
    spark: bool = False,
    to: str = "",
    text: str = "value",
) -> Panel:
    """Large numbers beside each other. `spark`: each with its course behind it. `text`: value or name."""
    overrides = [_override(letter, query, colour=False) for letter, query in _lettered(queries)]
    body: Json = {
        "options": {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "graphMode": "area" if spark else "none",
            "colorMode": "value",
            "justifyMode": "center",
            "orientation": "vertical",
            "textMode": {"value": "value_and_name", "name": "name"}[text],
            "wideLayout": False,
            "text": {"titleSize": 14, "valueSize": 26},
        },
        "fieldConfig": {"defaults": _defaults(queries[0].unit, ((BLUE, None),)), "overrides": overrides},
    }
    targets = _targets(queries, instant=not spark)
    return Panel("stat", title, about, *size, targets, body, links=_panel_links(to))


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
    table: bool = False,
) -> Panel:
    """Courses over time. `limits`: lines at thresholds. `colours`: by a pattern of the name of the line."""
    unit = queries[0].unit
    custom: Json = {
        "drawStyle": "bars" if bars else "line",
        "lineWidth": 1,
        "fillOpacity": 70 if bars else 55 if stacked else 0,
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
        _override(letter, query, default=SERIES[place % len(SERIES)], dashed=place >= DASHED_FROM)
        for place, (letter, query) in enumerate(_lettered(queries))
    ]
    overrides += [
        {"matcher": {"id": "byRegexp", "options": f"/{pattern}/"}, "properties": [_fixed(colour)]}
        for pattern, colour in (colours or {}).items()
    ]
    defaults = _defaults(unit, limits or ((BLUE, None),))
    defaults["custom"] = custom
    defaults["color"] = {"mode": "shades", "fixedColor": SKY}
    if to:
        defaults["links"] = [{"title": _says(to), "url": to}]
    body = {
        "fieldConfig": {"defaults": defaults, "overrides": overrides},
        "options": {
            "legend": {
                "showLegend": True,
                "displayMode": "table" if table else "list",
                "placement": "right" if table else "bottom",
                "calcs": ["lastNotNull"] if table else [],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }
    targets = _targets(queries, instant=False, every=every)
    return Panel("timeseries", title, about, *size, targets, body, time_from=time_from)


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
    hidden: Iterable[str] = (),
    absent: str = NOT_SUPPORTED,
    order: Sequence[str] = (),
    widths: Mapping[str, int] | None = None,
) -> Panel:
    """Rows by labels. `keys`: title of the column of each label that is shown, in their order.

    `links`: address by title of a column. `only`: rows that have a value in this column.
    """
    links = links or {}
    lettered = list(_lettered(queries))
    values = {f"Value #{letter}" if len(lettered) > 1 else "Value": query for letter, query in lettered}
    names = {**keys, **{column: query.name for column, query in values.items() if query.name}}
    unnamed = [column for column, query in values.items() if not query.name]
    hide = dict.fromkeys(["Time", "__name__", "cluster", *hidden, *unnamed], True)
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
        {"matcher": {"id": "byName", "options": name}, "properties": [_linked(address)]}
        for name, address in links.items()
        if name in keys.values()
    ]
    overrides += [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "custom.width", "value": width}]}
        for name, width in (widths or {}).items()
    ]
    if "uuid" in keys.values():  # links need it, people do not
        overrides.append(
            {
                "matcher": {"id": "byName", "options": "uuid"},
                "properties": HIDDEN,
            }
        )
    defaults = _defaults("none", ((GREY, None),), absent)
    nobody = {"type": "special", "options": {"match": "empty", "result": {"text": "-", "index": 98}}}
    defaults["mappings"].insert(0, nobody)
    defaults["custom"] = {
        "align": "auto",
        "cellOptions": {"type": "auto"},
        "filterable": False,
        "minWidth": 60,
    }
    body = {
        "fieldConfig": {"defaults": defaults, "overrides": overrides},
        "options": {
            "showHeader": True,
            "cellHeight": "sm",
            "footer": {"show": False, "reducer": ["sum"], "fields": ""},
            "sortBy": [{"displayName": sort, "desc": not rising}] if sort else [],
        },
    }
    targets = _targets(queries, instant=True, form="table")
    return Panel("table", title, about, *size, targets, body, tuple(transformations))


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
    defaults = _defaults(query.unit, query.steps or ((BLUE, None),))
    defaults |= {"min": low, "max": high}
    defaults["color"] = {"mode": "thresholds" if query.steps else scale}
    defaults["custom"] = {"fillOpacity": 90, "lineWidth": 0}
    if to:
        defaults["links"] = [{"title": _says(to), "url": to}]
    body: Json = {
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "rowHeight": 0.9,
            "colWidth": 0.95,
            "showValue": "never",
            "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "single", "sort": "none"},
        },
    }
    targets = _targets((query,), instant=False)
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
    defaults = _defaults("none", ((GREY, None),))
    mappings = [
        {"type": "value", "options": {value: {"text": word, "color": colour, "index": place}}}
        for place, (value, (word, colour)) in enumerate(texts.items())
    ]
    defaults["mappings"] = [*mappings, *defaults["mappings"]]
    defaults["custom"] = {"fillOpacity": 80, "lineWidth": 0}
    if to:
        defaults["links"] = [{"title": _says(to), "url": to}]
    body = {
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "mergeValues": True,
            "showValue": "never",
            "rowHeight": 0.8,
            "alignValue": "left",
            "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "single", "sort": "none"},
        },
    }
    return Panel("state-timeline", title, about, *size, _targets(queries, instant=False), body)


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
    defaults = _defaults(queries[0].unit, steps or ((BLUE, None),))
    defaults |= {"min": low}
    if high is not None:
        defaults["max"] = high
    if to:
        defaults["links"] = [{"title": _says(to), "url": to}]
    overrides = (
        [_override(letter, query, colour=False) for letter, query in _lettered(queries)]
        if len(queries) > 1
        else []
    )
    overrides += [
        {"matcher": {"id": "byRegexp", "options": f"/{pattern}/"}, "properties": [_fixed(colour)]}
        for pattern, colour in (colours or {}).items()
    ]
    body = {
        "fieldConfig": {"defaults": defaults, "overrides": overrides},
        "options": {
            "displayMode": "basic",
            "orientation": "horizontal",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "showUnfilled": True,
            "valueMode": "text",
            "namePlacement": "left",
            "sizing": "manual",
            "minVizHeight": 14,
            "minVizWidth": 8,
            "maxVizHeight": 26,
        },
    }
    return Panel("bargauge", title, about, *size, _targets(queries, instant=True), body)


# ------------------------------------------------------------------------------------------- parts of a panel


def _lettered(queries: Sequence[Query]) -> Iterable[tuple[str, Query]]:
    return zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", queries, strict=False)


def _targets(
    queries: Sequence[Query], *, instant: bool, form: str = "time_series", every: str = ""
) -> tuple[core.Target, ...]:
    return tuple(
        core.Target(
            expr=expand(query.expression),
            legendFormat=query.name or "__auto",
            refId=letter,
            datasource=SOURCE,
            intervalFactor=1,
            instant=instant,
            format=form,
            interval=every,
        )
        for letter, query in _lettered(queries)
    )


def _absent(text: str) -> Json:
    return {
        "type": "special",
        "options": {"match": "null+nan", "result": {"text": text, "color": GREY, "index": 99}},
    }


def _steps(steps: Steps) -> Json:
    return {"mode": "absolute", "steps": [{"color": colour, "value": value} for colour, value in steps]}


def _fixed(colour: str) -> Json:
    return {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}


def _unit(unit: str) -> Json:
    """Money has its currency in the name of its series: two decimals, no sign."""
    return {"decimals": 2, "unit": "short"} if unit == MONEY else {"unit": unit or "none"}


def _defaults(unit: str, steps: Steps, absent: str = NOT_SUPPORTED) -> Json:
    return {
        **_unit(unit),
        "thresholds": _steps(steps),
        "color": {"mode": "thresholds"},
        "mappings": [_absent(absent)],
        "noValue": absent,
    }


def _mappings(query: Query, absent: str = NOT_SUPPORTED) -> list[Json]:
    words = [
        {"type": "value", "options": {value: {"text": word, "index": place}}}
        for place, (value, word) in enumerate(query.texts.items())
    ]
    return [*words, _absent(query.absent or absent)]


def _override(
    letter: str, query: Query, *, default: str = "", dashed: bool = False, colour: bool = True
) -> Json:
    """What one query of a panel has of its own."""
    properties: list[Json] = [{"id": name, "value": value} for name, value in _unit(query.unit).items()]
    if query.decimals is not None:
        properties.append({"id": "decimals", "value": query.decimals})
    if query.steps:
        properties.append({"id": "thresholds", "value": _steps(query.steps)})
    if query.texts or query.absent:
        properties.append({"id": "mappings", "value": _mappings(query)})
    if query.absent:
        properties.append({"id": "noValue", "value": query.absent})
    if colour:
        mode = "shades" if query.many else "fixed"
        properties.append({"id": "color", "value": {"mode": mode, "fixedColor": query.colour or default}})
        if query.dashed or (dashed and not query.many and not query.colour):
            properties.append({"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}})
    elif query.colour:
        properties.append(_fixed(query.colour))
    if query.right:
        properties.append({"id": "custom.axisPlacement", "value": "right"})
    if query.link:
        properties.append(_linked(query.link))
    return {"matcher": {"id": "byFrameRefID", "options": letter}, "properties": properties}


def _column(query: Query, address: str, absent: str) -> Json:
    properties: list[Json] = [{"id": name, "value": value} for name, value in _unit(query.unit).items()]
    properties.append({"id": "mappings", "value": _mappings(query, absent)})
    if query.decimals is not None:
        properties.append({"id": "decimals", "value": query.decimals})
    if query.steps:
        properties.append({"id": "thresholds", "value": _steps(query.steps)})
        properties.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
    if query.bar:
        gauge = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
        properties += [
            {"id": "custom.cellOptions", "value": gauge},
            {"id": "min", "value": 0},
            {"id": "max", "value": 1},
        ]
        properties.append({"id": "thresholds", "value": _steps(query.steps or ((BLUE, None),))})
    if query.width:
        properties.append({"id": "custom.width", "value": query.width})
    if address:
        properties.append(_linked(address))
    return {"matcher": {"id": "byName", "options": query.name}, "properties": properties}


def _says(address: str) -> str:
    found = re.match(r"/d/cw-(\w+)", address)
    assert found, address
    return f"Open: {TITLES[found[1]]}"


def _linked(address: str) -> Json:
    return {"id": "links", "value": [{"title": _says(address), "url": address, "targetBlank": False}]}


def _panel_links(address: str) -> tuple[Json, ...]:
    return ({"title": _says(address), "url": address, "targetBlank": False},) if address else ()


# ---------------------------------------------------------------------------------------------------- boards

# What grafanalib writes for a Grafana before 8, or writes empty.
NOT_OF_A_PANEL = frozenset(
    [
        "cacheTimeout",
        "editable",
        "error",
        "height",
        "hideTimeOverride",
        "minSpan",
        "span",
        "timeShift",
        "repeat",
        "repeatDirection",
        "maxPerRow",
    ]
)
NOT_OF_A_BOARD = frozenset(["__inputs", "gnetId", "hideControls", "rows", "sharedCrosshair", "style"])
NOT_OF_A_VARIABLE = frozenset(["useTags", "tagsQuery", "tagValuesQuery", "auto", "auto_min", "auto_count"])
NOT_OF_A_TARGET = frozenset(["intervalFactor", "metric", "query", "step", "target"])


@attr.s
class _Modern(core.Panel):  # type: ignore[misc] # grafanalib has no types
    """A panel in Grafana's own words: what is in `body` goes out as it is."""

    kind: str = attr.ib(default="")
    body: Json = attr.ib(factory=dict)

    def to_json_data(self) -> Json:
        written: Json = {**self.panel_json({}), "type": self.kind, **self.body}
        return written


def as_json(board: Board) -> str:
    """The board as Grafana reads it; the same board gives the same bytes."""
    dashboard = core.Dashboard(
        title=f"clusterwatt / {board.title}",
        uid=board.uid,
        description=board.about,
        schemaVersion=SCHEMA,
        version=1,
        graphTooltip=1,  # shared crosshair
        refresh=board.refresh,
        time=core.Time(board.since, "now"),
        timezone="browser",
        tags=[TAG],
        links=[_board_link(name) for name in TITLES if name != board.name],
        templating=core.Templating(list=[_source(), *map(_template, (CLUSTER, *board.variables))]),
        annotations=core.Annotations(list=[_annotation(each) for each in board.annotations]),
        panels=_placed(board),
    ).auto_panel_ids()
    written = json.loads(json.dumps(dashboard.to_json_data(), cls=DashboardEncoder))
    return json.dumps(_cleaned(written), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _board_link(name: str) -> Json:
    made: Json = core.DashboardLink(
        title=TITLES[name],
        type="link",
        uri=f"/d/{uid(name)}",
        keepTime=True,
        includeVars=True,
        icon="dashboard",
    ).to_json_data()
    return made


def _source() -> core.Template:
    return core.Template(name="datasource", label="data source", type="datasource", query="prometheus")


def _template(variable: Variable) -> core.Template:
    query = variable.query.replace("$cluster", 'cluster=~"$cluster"')
    return core.Template(
        name=variable.name,
        label=variable.label,
        query=query,
        dataSource=SOURCE,
        regex=variable.regex,
        includeAll=variable.every,
        allValue=".*" if variable.every else None,
        default="$__all" if variable.every else None,
        multi=variable.multi,
        refresh=2 if variable.on_range else 1,
        sort=variable.sort,
    )


def _annotation(each: Annotation) -> Json:
    expression = expand(each.expression)
    return {
        "name": each.name,
        "datasource": SOURCE,
        "enable": each.on,
        "hide": False,
        "iconColor": each.colour,
        "expr": expression,
        "step": "60s",
        "target": {"refId": "Anno", "expr": expression, "interval": "60s"},
        "titleFormat": each.name,
        "textFormat": each.text,
        "tagKeys": "",
        "useValueForTime": each.from_value,
    }


def _placed(board: Board) -> list[core.Panel]:
    made, top = _lines_from(board.first, 0)
    for title, rows in board.folds:
        inside, below = _lines_from(rows, top + 1)
        made.append(
            core.RowPanel(
                title=title, collapsed=True, panels=inside, gridPos=core.GridPos(h=1, w=24, x=0, y=top)
            )
        )
        top += 1
        assert below >= top, title
    return made


def _lines_from(rows: Sequence[Line], top: int) -> tuple[list[core.Panel], int]:
    made = []
    for row in rows:
        left = 0
        for panel in row:
            made.append(_made(panel, left, top))
            left += panel.width
        top += max(panel.height for panel in row)
    return made, top


def _made(panel: Panel, left: int, top: int) -> core.Panel:
    make: Any = _Modern  # a checker does not see the fields of a base without types
    return make(
        kind=panel.kind,
        title=panel.title,
        description=panel.about,
        dataSource=SOURCE,
        maxDataPoints=None,
        targets=list(panel.targets),
        transformations=list(panel.transformations),
        links=list(panel.links),
        timeFrom=panel.time_from,
        gridPos=core.GridPos(h=panel.height, w=panel.width, x=left, y=top),
        body=panel.body,
    )


def _cleaned(board: Json) -> Json:
    board = _without(board, NOT_OF_A_BOARD)
    board["panels"] = [_cleaned_panel(panel) for panel in board["panels"]]
    board["templating"]["list"] = [_cleaned_variable(each) for each in board["templating"]["list"]]
    return board


def _cleaned_panel(panel: Json) -> Json:
    panel = _without(panel, NOT_OF_A_PANEL)
    panel = {name: value for name, value in panel.items() if value is not None}
    if panel["type"] == "row":
        for name in (
            "datasource",
            "fieldConfig",
            "links",
            "maxDataPoints",
            "targets",
            "transformations",
            "transparent",
        ):
            panel.pop(name, None)
        panel["panels"] = [_cleaned_panel(inner) for inner in panel["panels"]]
    else:
        panel["targets"] = [
            {**_without(target, NOT_OF_A_TARGET), "range": not target["instant"], "editorMode": "code"}
            for target in panel["targets"]
        ]
    return panel


def _cleaned_variable(variable: Json) -> Json:
    variable = _without(variable, NOT_OF_A_VARIABLE)
    default = variable["current"]["value"]
    variable["current"] = {"selected": True, "text": "All", "value": default} if default else {}
    if variable["type"] == "datasource":
        for name in ("datasource", "sort", "allValue"):
            variable.pop(name)
        variable["regex"] = ""
    else:
        variable["definition"] = variable["query"]
    return variable


def _without(given: Json, names: frozenset[str]) -> Json:
    return {name: value for name, value in given.items() if name not in names}
