"""Every query of every board, against a real Prometheus that scrapes a simulated cluster."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterwatt.rules import shipped
from tests.boards import written
from tests.boards.written import BOARDS, Json
from tests.e2e import servers
from tests.e2e.servers import Server, prometheus_with, until

pytestmark = pytest.mark.e2e

NODES = 12  # of which the last two are Kubernetes'
PROFILES = ["h100"] * (NODES - 1) + ["gb200"]  # one of a rack, which alone has an IMEX domain
EVERY_S = 2
RANGE_S = 40
WITHIN_S = 100.0  # on a busy machine

FAULTS = """
about: One of each family of events, soon.
faults:
- {fault: xid, node: node-0001, gpu: 0, code: 31, at: 25s}
- {fault: nvswitch_sxid, node: node-0001, code: 24007, at: 10s}
- {fault: row_remap_pending, node: node-0001, gpu: 1, at: 5s}
- {fault: recovery_action, node: node-0001, gpu: 1, code: 1, at: 5s}
- {fault: nvlink_down, node: node-0002, gpu: 0, amount: 1, at: 5s}
- {fault: throttled, node: node-0002, gpu: 3, amount: 0.5, at: 5s}
- {fault: port_flaps, node: node-0002, item: mlx5_2, at: 15s}
- {fault: port_errors, node: node-0002, item: mlx5_3, amount: 5, at: 5s}
- {fault: port_down, node: node-0004, item: mlx5_2, at: 5s}
- {fault: blocked, node: node-0003, at: 5s}
- {fault: collector_fails, node: node-0003, item: hwmon, at: 5s}
- {fault: loss_not_finite, job: pretrain-70b, at: 10s, lasts: 5m}
"""

A_DAY = "its bars stand at midnight, and this cluster is a minute old"
MAY_BE_EMPTY: Mapping[tuple[str, str], str] = {
    ("energy", "For nothing: energy of idle and of free GPUs, by day"): A_DAY,
    ("energy", "For nothing: money of idle and of free GPUs, by day"): A_DAY,
    ("fleet", "XIDs by class and day"): A_DAY,
    ("fleet", "GPU hours by state and day"): A_DAY,
    ("gpu", "Hottest of each day, 30 days"): A_DAY,
    ("gpu", "Corrected errors of each day, 30 days"): A_DAY,
    ("gpu", "Hours held back by heat each day, 30 days"): A_DAY,
    ("cluster", "Jobs that use their GPUs best, in the range"): "no job has held a GPU for an hour",
    ("storage", "Runs in a checkpoint now"): "no run has to be in one just now",
    ("fabric", "GPUs that are not in their NVLink domain"): "all are in theirs",
    ("fabric", "Ethernet: changes of carrier in an hour, the worst"): "no link of Ethernet comes or goes",
    ("job", "Alerts of this job, firing"): "alerts are not loaded here, recording rules are",
    ("job", "Pods and containers (profile full)"): "the job is of Slurm",
    ("cluster", "Firing alerts"): "alerts are not loaded here",
    ("fleet", "Firing alerts"): "alerts are not loaded here",
}
# Above so many a panel is a wall of lines, or its legend is cut off.
SERIES = {
    "timeseries": 20,
    "stat": 10,
    "bargauge": 15,
    "status-history": 20,
    "state-timeline": 24,
    "table": 250,
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "faults.yaml").write_text(FAULTS)
    made_of = ["--nodes", str(NODES), "--level", "full", "--every", str(EVERY_S)]
    made_of += ["--profile", ",".join(PROFILES)]
    with servers.fleet(folder, *made_of, "--scenario", str(folder / "faults.yaml")) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def store(
    fleet: Server, prometheus_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prometheus")
    rules = [
        {"record": rule.name, "expr": rule.expression}
        for file in shipped.files()
        for rule in file.rules
        if not rule.is_alert
    ]
    groups = [{"name": "recorded", "interval": f"{EVERY_S}s", "rules": rules}]
    (folder / "rules.json").write_text(json.dumps({"groups": groups}))
    config = (
        f"global: {{scrape_interval: {EVERY_S}s, scrape_timeout: {EVERY_S}s}}\n"
        "rule_files: [rules.json]\n"
        "scrape_configs:\n"
        f"- job_name: clusterwatt\n  http_sd_configs: [{{url: '{fleet.url}/sd', refresh_interval: 5s}}]\n"
        "  relabel_configs: [{target_label: cluster, replacement: alpha}]\n"
    )
    with prometheus_with(prometheus_program, folder, config) as store:
        yield store


def ask(store: Server, path: str, **parameters: Any) -> list[Json]:
    """The series that a query yields; AssertionError with what Prometheus says about it."""
    try:
        answer = json.loads(store.get(f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout_s=30))
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from None
    result = answer["data"]["result"]
    return (
        result
        if isinstance(result, list) and answer["data"]["resultType"] != "scalar"
        else [{"value": result}]
    )


class Chosen:
    """Values of the variables, each from its own query as Grafana would have it."""

    def __init__(self, store: Server, board: Json) -> None:
        self.values = {"cluster": ".*", "__rate_interval": f"{5 * EVERY_S}s", "__range": f"{RANGE_S}s"}
        for variable in written.variables(board):
            if variable["type"] == "query" and variable["includeAll"]:
                self.values[variable["name"]] = variable["allValue"]
            elif variable["type"] == "query":
                self.values[variable["name"]] = self._first(store, variable)

    def _first(self, store: Server, variable: Json) -> str:
        rows = [
            row["metric"] for row in ask(store, "query", query=self.filled(written.asked(variable["query"])))
        ]
        if not variable["regex"]:
            label = re.search(r", (\w+)\)$", variable["query"])
            assert label
            return min((row[label[1]] for row in rows), default="")
        pattern = re.compile(variable["regex"].strip("/").replace("(?<", "(?P<"))
        found = [
            pattern.search(",".join(f'{name}="{text}"' for name, text in sorted(row.items()))) for row in rows
        ]
        options = {match["text"]: match["value"] for match in found if match}
        first = min(options, default="")
        # of jobs, one that logs
        return options.get(next((text for text in options if text.startswith("pretrain")), first), "")

    def filled(self, text: str) -> str:
        return re.sub(r"\$(?:\{(\w+)\}|([a-z_]\w*))", lambda found: self.values[found[1] or found[2]], text)


def shown(store: Server, panel: Json, target: Json, chosen: Chosen, now_s: float) -> int:
    """How many series, or rows, have a value that can be drawn."""
    expression = chosen.filled(target["expr"])
    if target["instant"]:
        rows = ask(store, "query", query=expression, time=now_s)
        return sum(float(row["value"][1]) == float(row["value"][1]) for row in rows)
    step_s = 86_400 if target["interval"] == "1d" else EVERY_S
    start_s = now_s - RANGE_S
    if step_s > RANGE_S:
        start_s = now_s - now_s % step_s
    rows = ask(store, "query_range", query=expression, start=start_s, end=now_s, step=step_s)
    return sum(any(float(value) == float(value) for _, value in row["values"]) for row in rows)


def faults_of(store: Server, name: str) -> Iterator[str]:
    board = BOARDS[name]
    chosen, now_s = Chosen(store, board), time.time()
    for panel in written.panels(board):
        counts = []
        for target in panel["targets"]:
            try:
                counts.append(shown(store, panel, target, chosen, now_s))
            except AssertionError as error:
                yield f"{panel['title']} {target['refId']}: {error}"
        if not any(counts) and (name, panel["title"]) not in MAY_BE_EMPTY:
            yield f"{panel['title']}: empty"
        if sum(counts) > SERIES[panel["type"]] * (len(counts) if panel["type"] == "table" else 1):
            yield f"{panel['title']}: {sum(counts)} series"
    for annotation in board["annotations"]["list"]:
        try:
            ask(store, "query", query=chosen.filled(annotation["expr"]))
        except AssertionError as error:
            yield f"annotation {annotation['name']}: {error}"


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_of_the_board_has_its_data(name: str, store: Server) -> None:
    end_s = time.monotonic() + WITHIN_S
    while faults := list(faults_of(store, name)):
        if time.monotonic() > end_s:
            raise AssertionError("\n".join(faults))
        time.sleep(EVERY_S)


def test_a_port_that_is_down_is_0_on_the_map_though_it_has_no_rate(store: Server) -> None:
    board = BOARDS["fabric"]
    panel = next(panel for panel in written.panels(board) if panel["title"].startswith("Rails"))
    expression = Chosen(store, board).filled(panel["targets"][0]["expr"])

    def down() -> bool:
        rows = ask(store, "query", query=expression)
        return ("node-0004", "mlx5_2", "0") in {
            (row["metric"]["instance"], row["metric"]["device"], row["value"][1]) for row in rows
        }

    until(down, WITHIN_S, "the port is on the map")


def test_panels_that_may_be_empty_are_there() -> None:
    titles = {(name, panel["title"]) for name, board in BOARDS.items() for panel in written.panels(board)}
    assert MAY_BE_EMPTY.keys() <= titles
