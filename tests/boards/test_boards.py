"""The boards are what is written, name only what there is, and are fit for Grafana 10 and later."""

from __future__ import annotations

import functools
import itertools
import json
import math
import operator
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboards import build, colours, links
from dashboards.boards import BOARDS as MADE
from dashboards.promql import expand

from tests.boards import written
from tests.boards.written import BOARDS, Json, known, panels, variables

ROOT = Path(__file__).resolve().parents[2]

# Core panels of each Grafana from 10 to 13.
KINDS = {"stat", "timeseries", "table", "bargauge", "status-history", "state-timeline", "row"}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
FIRST_SCREEN = (24, 20)
MADE_LABEL = re.compile(r', "(\w+)", "\$1", ')  # by label_replace
LINK = re.compile(r"/d/(?P<uid>[\w-]+)(?:\?(?P<query>.*))?")
OKABE_ITO = {
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#8E8E8E",
    "#FFB733",  # orange to write on in black
    *colours.NUMBERS.values(),
}


def test_the_files_are_what_the_boards_give() -> None:
    assert build.written() == {path.name: path.read_text() for path in written.FOLDER.glob("*.json")}


def test_the_same_boards_give_the_same_bytes() -> None:
    assert build.written() == build.written()


def test_check_names_a_file_that_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    assert build.main([]) == 0
    assert build.main(["--check"]) == 0
    (tmp_path / "job.json").write_text("{}")
    assert build.main(["--check"]) == 1
    assert str(tmp_path / "job.json") in capsys.readouterr().err


def test_there_are_the_eight_boards_under_uids_that_stay() -> None:
    assert {board["uid"] for board in BOARDS.values()} == {
        f"cw-{name}" for name in ("cluster", "job", "node", "gpu", "fabric", "storage", "energy", "fleet")
    }
    assert [board.name for board in MADE] == list(links.TITLES)


def test_every_name_and_label_of_an_expression_exists() -> None:
    series = known()
    for where, expression in written.expressions():
        for name in written.names(expression):
            assert name in series, where
        for name, label in written.labels_matched(expression):
            assert label in series[name], f"{where}: {name} has no label {label}"
        labels = frozenset().union(*(series[name] for name in written.names(expression)), {""})
        labels |= set(MADE_LABEL.findall(expression))
        missing = written.labels_grouped(expression) - labels
        assert not missing, f"{where}: no series in it has {missing}"


def test_the_test_would_notice_a_wrong_name_and_a_wrong_label() -> None:
    assert written.names('sum by (x) (clusterwatt_gpu_powr_watts{gpu="up"})') == {
        "clusterwatt_gpu_powr_watts"
    }
    assert list(written.labels_matched('clusterwatt_gpu_up{node="a", uuid=~"b"}')) == [
        ("clusterwatt_gpu_up", "node"),
        ("clusterwatt_gpu_up", "uuid"),
    ]
    assert written.labels_grouped("a * on (b, c) group_left (d) e") == {"b", "c", "d"}


def test_every_selector_is_one_clusters() -> None:
    for where, expression in written.expressions():
        if "variable cluster" in where:
            continue
        bare = written.TEXT.sub('""', expression)
        for found in written.SERIES.finditer(bare):
            matchers = written.MATCHERS.match(bare, found.end())
            inside = matchers["inside"] if matchers else ""
            assert "cluster=~" in inside, f"{where}: {found['name']}"


def test_shorthand_is_written_out() -> None:
    assert expand("rate(clusterwatt_gpu_energy_joules_total[$r])") == (
        'rate(clusterwatt_gpu_energy_joules_total{cluster=~"$cluster"}[$__rate_interval])'
    )
    assert expand('x{run=~"$run"}[$__range]') == 'x{run=~"$run"}[$__range]'
    assert all("$r]" not in text and "$ofjob" not in text for _, text in written.expressions())


def test_legends_and_columns_name_labels_that_the_query_has() -> None:
    series = known()
    for name, panel, target in written.targets():
        labels = frozenset().union(*(series[each] for each in written.names(target["expr"])), {""})
        outer = re.match(r"(?:sum|max|min|avg|count|quantile) by \(([\w, ]*)\)", target["expr"])
        if outer and "group_left" not in target["expr"]:
            labels = frozenset(outer[1].split(", "))
        for label in written.LEGEND.findall(target["legendFormat"]):
            assert label in labels, f"{name}: {panel['title']}: {label}"


def test_tables_ask_for_aggregates_so_that_rows_can_be_joined() -> None:
    """A bare series has labels of the target and its own name, which differ from query to query."""
    before = r"(?:1000 \* |time\(\) - )?\(?"
    aggregated = re.compile(
        rf"{before}(?:(?:top|bottom)k\(|(?:max|min|sum|count|avg) by |count_over_time\(\(max by)"
    )
    for name, panel, target in written.targets():
        if panel["type"] == "table":
            assert aggregated.match(target["expr"]), (
                f"{name}: {panel['title']} {target['refId']}: {target['expr']}"
            )


@pytest.mark.parametrize("name", BOARDS)
def test_g10_a_board_works_by_import_and_by_provisioning(name: str) -> None:
    """No placeholder that only the import dialog fills in, no uid of a data source, no id of a dashboard."""
    board = BOARDS[name]
    text = json.dumps(board)
    assert "${DS_" not in text
    assert "__inputs" not in board
    assert board.get("id") is None
    sources = [variable for variable in variables(board) if variable["type"] == "datasource"]
    assert [(each["name"], each["query"], each["current"]) for each in sources] == [
        ("datasource", "prometheus", {})
    ]
    for place, source in _sources(board):
        assert source == SOURCE, place


def _sources(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "datasource":
                yield place, inner
            yield from _sources(inner, f"{place}/{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _sources(inner, f"{place}/{number}")


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_and_query_has_a_source_and_its_place(name: str) -> None:
    board = BOARDS[name]
    ids = [
        panel["id"]
        for panel in [*panels(board), *(each for each in board["panels"] if each["type"] == "row")]
    ]
    assert len(set(ids)) == len(ids)
    assert board["schemaVersion"] >= 36  # from there on nothing of what we write is migrated
    for panel in panels(board):
        assert panel["type"] in KINDS, panel["title"]
        assert panel["datasource"] == SOURCE
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted(set(letters)) != [], panel["title"]
        assert all(target["datasource"] == SOURCE and target["expr"] for target in panel["targets"])
        assert "maxDataPoints" not in panel or panel["maxDataPoints"] >= 50


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap_and_the_first_screen_holds_the_answers(name: str) -> None:
    board = BOARDS[name]
    first = [panel for panel in board["panels"] if panel["type"] != "row"]
    _apart(first)
    for row in board["panels"]:
        if row["type"] == "row":
            assert row["collapsed"]
            _apart(row["panels"])
    width, height = FIRST_SCREEN
    assert max(panel["gridPos"]["x"] + panel["gridPos"]["w"] for panel in first) == width
    assert max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in first) <= height


@pytest.mark.parametrize("name", BOARDS)
def test_rows_of_panels_leave_no_hole(name: str) -> None:
    for on_grid in _screens(BOARDS[name]):
        widths: dict[int, int] = {}
        for panel in on_grid:
            widths[panel["gridPos"]["y"]] = widths.get(panel["gridPos"]["y"], 0) + panel["gridPos"]["w"]
        assert set(widths.values()) == {24}, [panel["title"] for panel in on_grid]


def _screens(board: Json) -> Iterator[list[Json]]:
    yield [panel for panel in board["panels"] if panel["type"] != "row"]
    yield from (row["panels"] for row in board["panels"] if row["type"] == "row")


def _apart(on_grid: list[Json]) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in on_grid:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken.get((x, y))}"
                taken[x, y] = panel["title"]


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_says_what_it_shows_and_what_no_value_means(name: str) -> None:
    titles = [panel["title"] for panel in panels(BOARDS[name])]
    assert len(set(titles)) == len(titles)
    for panel in panels(BOARDS[name]):
        assert re.fullmatch(r"[^$]{20,}\.", panel["description"]), panel["title"]
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["noValue"], panel["title"]
        assert any(
            each["type"] == "special" and "null" in each["options"]["match"] for each in defaults["mappings"]
        )


def test_absence_reads_not_supported_unless_a_panel_says_more() -> None:
    stats = [panel for board in BOARDS.values() for panel in panels(board) if panel["type"] == "stat"]
    assert all(panel["fieldConfig"]["defaults"]["noValue"] == "not supported" for panel in stats)


def test_colours_are_told_apart_by_the_colour_blind() -> None:
    for name, board in BOARDS.items():
        used = set(re.findall(r"#[0-9A-Fa-f]{6}", json.dumps(board)))
        assert used <= OKABE_ITO, name
        for panel in panels(board):
            steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            assert all(step["color"].startswith("#") for step in steps), f"{name}: {panel['title']}"


# Viénot, Brettel and Mollon 1999: linear RGB as people without red, and without green, cones see it.
SEEN_BY = {
    "protanope": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
    "deuteranope": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
}


def _lab(colour: str, seer: str) -> tuple[float, float, float]:
    """CIE Lab of the colour as it is seen."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    if seer in SEEN_BY:
        linear = [min(max(sum(map(operator.mul, row, linear)), 0.0), 1.0) for row in SEEN_BY[seer]]
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    x, y, z = (sum(map(operator.mul, row, linear)) for row in to_xyz)
    fx, fy, fz = (
        each ** (1 / 3) if each > 0.008856 else 7.787 * each + 16 / 116 for each in (x / 0.9505, y, z / 1.089)
    )
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("seer", [*SEEN_BY, "trichromat"])
def test_neighbouring_colours_differ_for_every_usual_colour_vision(seer: str) -> None:
    """Distance in CIE Lab: 2 is the least that is seen side by side, 10 is told apart at a glance."""
    lines = [*colours.SERIES, colours.GREY]
    status = [colours.BLUE, colours.ORANGE, colours.VERMILION]
    cells = [colours.AMBER, colours.VERMILION]
    numbers = list(colours.NUMBERS.values())
    for shown in (lines, status, cells, numbers, [*colours.STATES.values()]):
        for one, other in itertools.pairwise(shown):
            assert math.dist(_lab(one, seer), _lab(other, seer)) > 15, f"{one} beside {other}"


def _luminance(colour: str) -> float:
    """As WCAG 2.2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    red, green, blue = linear
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("background", ["#181B1F", "#FFFFFF"])  # panels of Grafana's two themes
def test_large_numbers_stand_out_from_both_backgrounds(background: str) -> None:
    """WCAG 2.2, 1.4.3: large text has a contrast of at least 3 to 1."""
    for name, board in BOARDS.items():
        for panel in panels(board):
            if panel["type"] != "stat":
                continue
            for colour in set(re.findall(r"#[0-9A-Fa-f]{6}", json.dumps(panel))):
                darker, lighter = sorted((_luminance(colour), _luminance(background)))
                contrast = (lighter + 0.05) / (darker + 0.05)
                assert contrast >= 3, f"{name}: {panel['title']}: {colour} has {contrast:.2f}"


def test_units_are_grafanas() -> None:
    from grafanalib import formatunits

    known_units = {value for key, value in vars(formatunits).items() if key.isupper()} | {
        "dateTimeAsIso",
        "sci",
    }
    for name, panel, _ in written.targets():
        units = [panel["fieldConfig"]["defaults"]["unit"]]
        units += [
            each["value"]
            for override in panel["fieldConfig"]["overrides"]
            for each in override["properties"]
            if each["id"] == "unit"
        ]
        assert set(units) <= known_units, f"{name}: {panel['title']}: {set(units) - known_units}"


@pytest.mark.parametrize("name", BOARDS)
def test_links_lead_to_boards_and_keep_range_source_and_variables(name: str) -> None:
    by_uid = {board["uid"]: board for board in BOARDS.values()}
    links = BOARDS[name]["links"]
    assert len(links) == len(BOARDS) - 1
    for link in links:
        assert (link["keepTime"], link["includeVars"]) == (True, True)
        found = LINK.fullmatch(link["url"])
        assert found
        assert found["uid"] in by_uid.keys() - {BOARDS[name]["uid"]}
    inner = list(_urls(BOARDS[name]["panels"]))
    for url in inner:
        found = LINK.fullmatch(url)
        assert found, url
        assert found["uid"] in by_uid, url
        passed = set(found["query"].split("&"))
        assert {"${__url_time_range}", "${datasource:queryparam}", "${cluster:queryparam}"} <= passed
        has = {variable["name"] for variable in variables(by_uid[found["uid"]])}
        for part in passed:
            if part.startswith("var-"):
                assert part.removeprefix("var-").split("=")[0] in has, url
        for variable in re.findall(r"\$\{(\w+)(?::queryparam)?\}", found["query"]):
            own = {each["name"] for each in variables(BOARDS[name])}
            assert variable.startswith("__") or variable in own, f"{url}: no variable {variable} here"
    assert inner


def test_columns_that_links_stand_on_are_there() -> None:
    for name, board in BOARDS.items():
        for panel in panels(board):
            if panel["type"] != "table":
                continue
            organised = panel["transformations"][-1]["options"]
            columns = set(organised["renameByName"].values())
            for url in _urls(panel):
                for column in re.findall(r'__data\.fields\["([^"]+)"\]', url):
                    assert column in columns, f"{name}: {panel['title']}: {column}"


def test_boards_are_reached_from_each_other() -> None:
    """Both ways: what leads to a board is on another, and the list of boards leads back."""
    reached = {LINK.fullmatch(url)["uid"] for board in BOARDS.values() for url in _urls(board["panels"])}  # type: ignore[index] # held above
    assert {"cw-job", "cw-node", "cw-gpu", "cw-fabric", "cw-fleet", "cw-energy"} <= reached


def _urls(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("url"), str):
            yield value["url"]
        for inner in value.values():
            yield from _urls(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _urls(inner)


@pytest.mark.parametrize("name", BOARDS)
def test_variables_are_cheap_chained_and_used(name: str) -> None:
    """They come from identities, which are there without load; All is one pattern."""
    board = BOARDS[name]
    before: set[str] = set()
    text = json.dumps([board["panels"], board["annotations"], variables(board)])
    for variable in variables(board):
        if variable["type"] == "query":
            for series in written.names(written.asked(variable["query"])):
                assert series.endswith("_info") or series == "clusterwatt_job_start_timestamp_seconds"
            used = set(re.findall(r"\$(\w+)", variable["query"]))
            assert used <= before, f"{variable['name']} stands before {used - before}"
            assert variable["name"] == "cluster" or "cluster" in used
            assert not variable["includeAll"] or variable["allValue"] == ".*"
        assert re.search(rf"\$\{{?{variable['name']}\b", text), f"{variable['name']} is not used"
        before.add(variable["name"])
    multi = {
        variable["name"]
        for variable in variables(board)
        if variable.get("multi") or variable.get("includeAll")
    }
    for each in multi:
        assert not re.search(rf'[^~]"\${each}"', text.replace('\\"', '"').replace(f'=~"${each}"', "")), each


def test_annotations_are_toggles_and_few_are_on() -> None:
    for name, board in BOARDS.items():
        annotations = board["annotations"]["list"]
        assert sum(each["enable"] for each in annotations) <= 4, name
        assert all(not each["hide"] and each["target"]["expr"] == each["expr"] for each in annotations)


def test_rules_are_the_ones_that_boards_stand_on(promtool: Path, tmp_path: Path) -> None:
    """Every expression is PromQL, by Prometheus' own parser."""
    window = {"$__rate_interval": "1m", "$__range": "1h"}
    rules = []
    for number, (_, expression) in enumerate(written.expressions()):
        filled = functools.reduce(lambda text, pair: text.replace(*pair), window.items(), expression)
        rules.append({"record": f"board:expression:{number}", "expr": filled})
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"groups": [{"name": "boards", "rules": rules}]}))
    ended = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
