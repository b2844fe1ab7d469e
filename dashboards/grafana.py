"""Boards as Grafana reads them. The only importer of grafanalib.

grafanalib makes dashboards, variables, targets and the frame of a panel; its classes for single panel types
write shapes that Grafana 11 and later no longer take, so a panel's type and options are given as they stand in
Grafana's schema. What it writes and no Grafana since 10 reads is taken out again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attr
from grafanalib import core
from grafanalib._gen import DashboardEncoder

from dashboards.board import Annotation, Board, Json, Line, Panel, Target, Variable, uid
from dashboards.links import TITLES
from dashboards.promql import expand
from dashboards.variables import CLUSTER

SCHEMA = 39  # of Grafana 10.4; newer versions read it as it is
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "clusterwatt"

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
        targets=[_target(each) for each in panel.targets],
        transformations=list(panel.transformations),
        links=list(panel.links),
        timeFrom=panel.time_from,
        gridPos=core.GridPos(h=panel.height, w=panel.width, x=left, y=top),
        body=panel.body,
    )


def _target(target: Target) -> core.Target:
    return core.Target(
        expr=target.expression,
        legendFormat=target.legend,
        refId=target.letter,
        datasource=SOURCE,
        intervalFactor=1,
        instant=target.instant,
        format=target.form,
        interval=target.every,
    )


def _cleaned(board: Json) -> Json:
    board = _without(board, NOT_OF_A_BOARD)
    board["timepicker"] = {}
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
    variable = {
        name: value for name, value in _without(variable, NOT_OF_A_VARIABLE).items() if value is not None
    }
    default = variable["current"]["value"]
    variable["current"] = {"selected": True, "text": "All", "value": default} if default else {}
    if variable["type"] == "datasource":
        for name in ("datasource", "sort", "allValue"):
            variable.pop(name, None)
        variable["regex"] = ""
    else:
        variable["definition"] = variable["query"]
    return variable


def _without(given: Json, names: frozenset[str]) -> Json:
    return {name: value for name, value in given.items() if name not in names}
