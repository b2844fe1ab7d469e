"""What each rule does in its scenarios, played by promtool; also at other scrape intervals and over gaps.

A restart of Prometheus is in tests/e2e/test_pending_alerts.py, two replicas are in tests/e2e/test_alerts.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusterwatt.rules import scenarios, shipped
from tests.rules import scrapes
from tests.rules.known import alerts

Scenario = dict[str, Any]
FOLDER = Path(__file__).parent / "scenarios"
FILES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
REFERENCE = scenarios.shipped(shipped.files())


def of_file(name: str) -> list[Scenario]:
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    tests: list[Scenario] = yaml.load(text, scenarios.LOADER)["tests"]
    return tests


def named(name: str) -> Scenario:
    return next(test for test in scenarios.scenarios() if test["name"] == name)


def played(promtool: Path, tests: list[Scenario]) -> list[str]:
    """What came out otherwise."""
    verdict = scenarios.run(REFERENCE, REFERENCE, promtool, tests, workers=1)
    assert verdict.checks > 0
    return [f"{outcome.scenario}: {outcome.text}" for outcome in verdict.different]


# The two longest files in halves, so that the work can be shared out evenly.
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("name", FILES)
def test_every_scenario_comes_out_as_it_says(name: str, half: int, promtool: Path) -> None:
    assert played(promtool, of_file(name)[half::2]) == []


def test_every_alert_fires_in_one_scenario_and_is_silent_in_another() -> None:
    fires: defaultdict[object, set[str]] = defaultdict(set)
    silent: defaultdict[object, set[str]] = defaultdict(set)
    for test in scenarios.scenarios():
        for check in test.get("alert_rule_test", ()):
            expected = check["exp_alerts"]
            (fires if expected else silent)[check["alertname"]].add(test["name"])
            for alert in expected:
                fires[check["alertname"], alert["exp_labels"]["severity"]].add(test["name"])
    for name, severity in alerts():
        assert fires[name, severity], f"{name} ({severity}) fires nowhere"
        assert silent[name] or name == "Watchdog", f"{name} is silent nowhere"


def test_names_of_scenarios_are_unique() -> None:
    names = [test["name"] for test in scenarios.scenarios()]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("case", ["G-14", "G-16", "G-26", "G-44"])
def test_cases_from_the_field_are_played(case: str) -> None:
    assert any(test["name"].startswith(f"{case}: ") for test in of_file("field-cases"))


def test_a_rule_that_is_wrong_is_noticed(promtool: Path) -> None:
    """A threshold moved, a `for` dropped, a clause dropped: each makes a scenario come out otherwise."""
    for name, old, new in (
        ("GpuThermalSlowdown", "> 0.1", "> 0.9"),
        ("FabricPortDown", "and on (instance, device, port) clusterwatt_rdma_port_expected == 1", ""),
        ("GpuMissing", "unless on (instance) last_over_time(clusterwatt_node_maintenance[6h]) == 1", ""),
        ("GpuMissing", 'unless on (instance) clusterwatt_driver_down_info{reason="released"}', ""),
        ("CollectorStale", 'unless on (instance) clusterwatt_driver_down_info{reason="released"}', ""),
        ("CollectorStale", '{collector!~"gpu|gpm|grid|price"}', ""),
    ):
        changed = tuple(
            {**alert, "expr": alert["expr"].replace(old, new)} if alert["alert"] == name else alert
            for alert in REFERENCE.alerts
        )
        assert changed != REFERENCE.alerts
        rules = scenarios.Rules(REFERENCE.records, changed, REFERENCE.interval)
        tests = [
            test
            for test in scenarios.scenarios()
            if any(check["alertname"] == name for check in test.get("alert_rule_test", ()))
        ]
        verdict = scenarios.run(rules, REFERENCE, promtool, tests)
        assert name in {outcome.alert for outcome in verdict.different}, name


SHARP = {
    "waste": ("one minute of work in the hour is enough", "exporter gap between two idle stretches"),
    "training": ("stall", "hang", "busy and drawing power", "NaN", "loss scale skip is not a NaN loss"),
    "gpu-health": ("XID 79, brand-new series", "uncorrectable at the first scrape"),
    "thermal-power": ("hardware heat, a quarter of the time", "one minute of heat"),
    "node-links": ("one recovery, 40 replays", "40 replays alone", "generation 3 of 5 in short bursts"),
    "fabric": ("flap", "one bounce at boot", "outage of two minutes", "two symbol errors a second"),
    "storage": ("mount stops answering", "one slow answer"),
    "money-power": ("19 of 20 kW; parts are not added to the node meter", "17 of 20 kW"),
    "monitor": (
        "exporter down; one in maintenance; the target of another job",
        "down for four minutes",
        "collector hangs",
    ),
}
SHARPEST = [name for names in SHARP.values() for name in names]


@pytest.mark.parametrize("every_s", [30, pytest.param(15, marks=pytest.mark.full)])
def test_rules_hold_at_shorter_scrape_intervals(every_s: int, promtool: Path) -> None:
    assert played(promtool, [scrapes.resampled(named(name), every_s) for name in SHARPEST]) == []


@pytest.mark.parametrize(
    "name", ["stall", "hardware heat, a quarter of the time", "flap", "one minute of heat", "collector hangs"]
)
def test_rules_hold_at_a_scrape_every_five_seconds(name: str, promtool: Path) -> None:
    assert played(promtool, [scrapes.resampled(named(name), 5)]) == []


@pytest.mark.full
@pytest.mark.parametrize("name", FILES)
def test_all_rules_hold_at_a_scrape_every_thirty_seconds(name: str, promtool: Path) -> None:
    assert played(promtool, [scrapes.resampled(test, 30) for test in of_file(name)]) == []


@pytest.mark.parametrize("missed", [7, pytest.param(22, marks=pytest.mark.full)])
def test_rules_hold_over_a_missed_scrape(missed: int, promtool: Path) -> None:
    """At the longest interval: two minutes without a sample, every half hour."""
    assert played(promtool, [scrapes.without(named(name), missed, 30) for name in SHARPEST]) == []


RESTARTED = (
    "idle from the start",
    "one minute of work in the hour is enough",
    "hang",
    "busy and drawing power",
    "NaN",
    "hardware heat, a quarter of the time",
    "one minute of heat",
    "work without allocation",
)


@pytest.mark.parametrize(
    "name",
    [
        *RESTARTED,
        *(pytest.param(name, marks=pytest.mark.full) for name in SHARPEST if name not in RESTARTED),
    ],
)
def test_rules_hold_over_a_restart_of_the_agent(name: str, promtool: Path) -> None:
    """One scrape is missed, and what the agent adds up begins anew."""
    assert (
        played(promtool, [scrapes.restarted(named(name), at=6), scrapes.restarted(named(name), at=41)]) == []
    )


OF_TARGETS = frozenset(
    alert["alert"] for alert in REFERENCE.alerts if 'up{job="clusterwatt"} == 0' in alert["expr"]
)


def shortest() -> list[Scenario]:
    """For each alert one scenario in which it fires and one in which it is silent; all of the records."""
    found: dict[object, Scenario] = {}
    for test in sorted(scenarios.scenarios(), key=scenarios.minutes):
        for check in test.get("alert_rule_test", ()):
            severities = {alert["exp_labels"]["severity"] for alert in check["exp_alerts"]} or {None}
            for severity in severities:
                found.setdefault((check["alertname"], severity), test)
    chosen = {test["name"]: test for test in (*found.values(), *of_file("records"))}
    return list(chosen.values())


@pytest.mark.parametrize(
    "tests", [shortest, pytest.param(scenarios.scenarios, marks=pytest.mark.full)], ids=["shortest", "all"]
)
def test_rules_hold_where_every_series_is_there_twice(
    tests: Callable[[], list[Scenario]], promtool: Path
) -> None:
    """A node under two scrape jobs, and a GPU whose index changed within the window.

    Series that are joined must be one of their kind: a pair fails the rule for the whole cluster.
    """
    assert played(promtool, [scrapes.twice(test, OF_TARGETS) for test in tests()]) == []


def test_the_shortest_scenarios_play_every_record() -> None:
    alerts = {check["alertname"] for test in shortest() for check in test.get("alert_rule_test", ())}
    queries = [check["expr"] for test in shortest() for check in test.get("promql_expr_test", ())]
    missing = {record["record"] for record in REFERENCE.records} - {
        rule.get("record") for rule in REFERENCE.for_alerts(alerts, queries)
    }
    assert not missing


def test_a_rule_that_fails_is_noticed_beside_one_that_differs(promtool: Path) -> None:
    """promtool checks nothing in a scenario in which a rule fails, and names only the rule."""
    joined = "clusterwatt_rdma_port_up * on (instance) clusterwatt_rdma_port_expected"
    changed = {"FabricPortDown": joined, "GpuThermalSlowdown": "vector(1)"}
    alerts = tuple(
        {**alert, "expr": changed.get(alert["alert"], alert["expr"])} for alert in REFERENCE.alerts
    )
    rules = scenarios.Rules(REFERENCE.records, alerts, REFERENCE.interval)
    names = ("port down; another one uncabled", "one minute of heat")
    verdict = scenarios.run(rules, REFERENCE, promtool, [named(name) for name in names], workers=1)
    assert {outcome.scenario for outcome in verdict.different} == set(names)
