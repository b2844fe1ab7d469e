"""Prometheus on the past of a simulated cluster, with the recording rules evaluated for it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from clusterwatt.fleet.history.backfill import Span, backfill
from clusterwatt.fleet.node import FleetSettings
from clusterwatt.rules import expression
from tests.e2e.servers import Server, prometheus_with, until

RULES = Path(__file__).parents[2] / "deploy/prometheus/rules"
STEP_S = 60
PATIENCE_S = 900.0
UNTIL_S = 1_700_056_800  # a full hour


@dataclass(frozen=True)
class Programs:
    """Prometheus and its tool."""

    promtool: Path
    prometheus: Path


@dataclass(frozen=True)
class Rule:
    """A rule of the shipped files. `name` is that of the alert or of the series."""

    group: str
    name: str
    expression: str
    hold_s: float
    is_alert: bool


@dataclass(frozen=True)
class Past:
    """Where a history lies, and how it was made."""

    tsdb: Path
    span: Span
    samples: int
    written_s: float
    blocks_s: float


def settings(nodes: int, *, gpus: int = 8, seed: int = 1) -> FleetSettings:
    return FleetSettings(nodes=nodes, gpus=gpus, profiles=("h100",), seed=seed, every_s=1.0, level="standard")


def written(folder: Path, programs: Programs, nodes: int, hours: int, *, healthy: bool) -> Past:
    """A history as blocks of Prometheus; the text is gone again, file by file."""
    span = Span(UNTIL_S - hours * 3_600, UNTIL_S, STEP_S)
    samples, written_s, blocks_s = 0, 0.0, 0.0
    tsdb = folder / "tsdb"
    for file in backfill(settings(nodes), span, folder / "text", healthy=healthy):
        samples += file.samples
        written_s += file.took_s
        began_s = time.monotonic()
        call([programs.promtool, "tsdb", "create-blocks-from", "openmetrics", file.path, tsdb])
        blocks_s += time.monotonic() - began_s
        file.path.unlink()
    return Past(tsdb, span, samples, written_s, blocks_s)


def call(command: Sequence[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def serving(past: Past, programs: Programs, *rules: Path) -> Iterator[Server]:
    """A Prometheus on the past, which scrapes nothing. A series is there until the next step, no longer."""
    config = json.dumps({"rule_files": [str(path) for path in rules]})
    options = ("--storage.tsdb.retention.time=100y", "--query.timeout=10m")
    lookback = f"--query.lookback-delta={STEP_S * 3 // 2}s"
    with prometheus_with(programs.prometheus, past.tsdb.parent, config, *options, lookback) as server:
        yield server


def merge(store: Server, past: Past) -> None:
    """Wait until the blocks of the same hours are one, as those that Prometheus makes itself are."""
    hours = len(list(past.span.blocks()))

    def merged() -> bool:
        blocks = store.page().value("prometheus_tsdb_blocks_loaded")
        return blocks is not None and blocks <= hours

    until(merged, PATIENCE_S, "blocks of the same hours are merged")


def shipped() -> list[Rule]:
    """All rules that are loaded where a site says nothing."""
    found = []
    for path in sorted(RULES.glob("*.yaml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                hold = expression.seconds(rule["for"]) if rule.get("for", "0m") != "0m" else 0
                name = rule.get("alert") or rule["record"]
                found.append(Rule(group["name"], name, rule["expr"], hold, "alert" in rule))
    return found


def levels(rules: Sequence[Rule]) -> list[list[Rule]]:
    """Recording rules in turns: those of a turn stand on series of earlier turns alone."""
    rest = {rule.name: rule for rule in rules if not rule.is_alert}
    found = []
    while rest:
        turn = [
            rule
            for rule in rest.values()
            if not expression.recorded(expression.plain(rule.expression)) & rest.keys() - {rule.name}
        ]
        assert turn, f"in a circle: {sorted(rest)}"
        found.append(turn)
        for rule in turn:
            del rest[rule.name]
    return found


def record(past: Past, programs: Programs, from_s: int) -> None:
    """Evaluate the recording rules for the past. promtool's rules do not see each other: turn by turn."""
    folder = past.tsdb.parent
    for turn in levels(shipped()):
        rules = [{"record": rule.name, "expr": rule.expression} for rule in turn]
        file, blocks = folder / "turn.yaml", folder / "recorded"
        file.write_text(yaml.safe_dump({"groups": [{"name": "turn", "rules": rules}]}))
        with serving(past, programs) as store:
            call(
                [
                    *(programs.promtool, "tsdb", "create-blocks-from", "rules"),
                    *(f"--url={store.url}", f"--start={from_s}", f"--end={past.span.until_s - STEP_S}"),
                    *(f"--eval-interval={STEP_S}s", f"--output-dir={blocks}", file),
                ]
            )
        for block in blocks.iterdir():
            shutil.move(block, past.tsdb / block.name)
        blocks.rmdir()


def ask(store: Server, path: str, **parameters: object) -> list[dict[str, Any]]:
    text = store.get(f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout_s=PATIENCE_S)
    answer: list[dict[str, Any]] = json.loads(text)["data"]["result"]
    return answer


def raised(store: Server, rule: Rule, span: Span, from_s: int) -> Iterator[Mapping[str, str]]:
    """The labels of each alert that lasted as long as the rule asks for."""
    rows = ask(
        store, "query_range", query=rule.expression, start=from_s, end=span.until_s - STEP_S, step=STEP_S
    )
    for row in rows:
        since_s = last_s = float("-inf")
        for time_s, _ in row["values"]:
            since_s = time_s if time_s - last_s > STEP_S else since_s
            last_s = time_s
            if time_s - since_s >= rule.hold_s:
                yield row["metric"]
                break


def evaluation_s(store: Server, rules: Sequence[Rule], at_s: int) -> tuple[float, float]:
    """Seconds that one evaluation of all rules takes: of the wall, and of the CPUs of Prometheus.

    As Prometheus does it where it is worst: all groups at once, the rules of a group one after another.
    Results are counted: Prometheus writes none of its own rules as JSON, and nobody has to read it.
    """
    groups: dict[str, list[Rule]] = {}
    for rule in rules:
        groups.setdefault(rule.group, []).append(rule)

    def evaluate(group: Sequence[Rule]) -> None:
        for rule in group:
            ask(store, "query", query=f"count(\n{rule.expression}\n)", time=at_s)

    process = psutil.Process(store.process.pid)
    began_s, cpu_before = time.monotonic(), process.cpu_times()
    with ThreadPoolExecutor(len(groups)) as pool:
        list(pool.map(evaluate, groups.values()))
    cpu = process.cpu_times()
    return time.monotonic() - began_s, cpu.user + cpu.system - cpu_before.user - cpu_before.system
