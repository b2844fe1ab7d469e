"""The boards as Grafana reads them: panels, targets, variables, and what an expression names."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clusterwatt.catalog import Metric
from clusterwatt.inventory import CATALOG
from clusterwatt.rules import shipped

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "dashboards" / "json"
BOARDS: Mapping[str, Json] = {
    path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))
}

TARGET_LABELS = frozenset({"instance", "job", "cluster"})
# Series that Prometheus makes itself. Alerts carry what their expressions do.
OWN: Mapping[str, frozenset[str]] = {
    "up": TARGET_LABELS,
    "scrape_duration_seconds": TARGET_LABELS,
    "ALERTS": TARGET_LABELS | {"alertname", "alertstate", "severity", "job_id"},
}
TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
SERIES = re.compile(
    r"(?<![\w:$])(?P<name>(?:[a-z_]+:)?clusterwatt_\w+(?::\w+)?|ALERTS|up|scrape_duration_seconds)(?![\w:])"
)
MATCHERS = re.compile(r"\{(?P<inside>[^}]*)\}")
MATCHED = re.compile(r"(?P<label>\w+)\s*(?:=~|!~|!=|=)")
GROUPING = re.compile(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\(\s*(?P<labels>[\w\s,]*)\)")
LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def panels(board: Json) -> Iterator[Json]:
    """All panels but rows, those in collapsed rows too."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def targets() -> Iterator[tuple[str, Json, Json]]:
    """Board, panel and target of every query."""
    for name, board in BOARDS.items():
        for panel in panels(board):
            for target in panel["targets"]:
                yield name, panel, target


def expressions() -> Iterator[tuple[str, str]]:
    """Where it stands and what it is, of every expression: panels, annotations, variables."""
    for name, panel, target in targets():
        yield f"{name}: {panel['title']} {target['refId']}", target["expr"]
    for name, board in BOARDS.items():
        for annotation in board["annotations"]["list"]:
            yield f"{name}: annotation {annotation['name']}", annotation["expr"]
        for variable in variables(board):
            if variable["type"] == "query":
                yield f"{name}: variable {variable['name']}", asked(variable["query"])


def variables(board: Json) -> list[Json]:
    found: list[Json] = board["templating"]["list"]
    return found


def asked(query: str) -> str:
    """The expression in the query of a variable."""
    inner = re.fullmatch(r"query_result\((?P<all>.*)\)|label_values\((?P<series>.*), \w+\)", query)
    assert inner, query
    return inner["all"] or inner["series"]


def names(expression: str) -> set[str]:
    """The series that are named in it."""
    return {found["name"] for found in SERIES.finditer(TEXT.sub('""', expression))}


def labels_matched(expression: str) -> Iterator[tuple[str, str]]:
    """Name of the series and label of each matcher."""
    bare = TEXT.sub('""', expression)
    for found in SERIES.finditer(bare):
        matchers = MATCHERS.match(bare, found.end())
        if matchers:
            for matched in MATCHED.finditer(matchers["inside"]):
                yield found["name"], matched["label"]


def labels_grouped(expression: str) -> set[str]:
    """The labels of all `by`, `on`, `group_left` and so on."""
    bare = TEXT.sub('""', expression)
    return {
        label.strip()
        for found in GROUPING.finditer(bare)
        for label in found["labels"].split(",")
        if label.strip()
    }


def labels_of_metric(metric: Metric) -> frozenset[str]:
    return TARGET_LABELS | set(metric.labels) | ({"le"} if metric.kind == "histogram" else set())


@functools.cache
def known() -> dict[str, frozenset[str]]:
    """Every series that may be named, with the labels that it may have."""
    found: dict[str, frozenset[str]] = dict(OWN)
    for metric in CATALOG:
        suffixes = {"summary": ("_sum", "_count"), "histogram": ("_sum", "_count", "_bucket")}.get(
            metric.kind, ("",)
        )
        # the collectors' times are a summary, and a histogram in the profile `full`
        for suffix in suffixes:
            name = metric.full_name + suffix
            found[name] = found.get(name, frozenset()) | labels_of_metric(metric)
    rules = [rule for file in shipped.files() for rule in file.rules if not rule.is_alert]
    for _ in range(3):  # recorded series stand on each other
        for rule in rules:
            found[rule.name] = _labels_of_recorded(rule.expression, found)
    return found


def _labels_of_recorded(expression: str, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """An outermost aggregation says it; else what the series in it have."""
    bare = re.sub(r"#.*", "", expression).strip()
    outer = re.match(r"(?:sum|avg|count|max|min|time\(\) - min) by \((?P<labels>[\w, ]*)\)", bare)
    if outer:
        return frozenset(outer["labels"].replace(" ", "").split(",")) | {"cluster"}
    if re.match(r"(?:sum|avg)\(", bare):
        return frozenset({"cluster"})
    return frozenset().union(*(known.get(name, frozenset()) for name in names(bare)))
