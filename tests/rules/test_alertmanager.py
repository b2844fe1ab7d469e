"""The example for Alertmanager: it is valid, every alert is heard, and some keep silent beside others."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusterwatt.rules.overrides import ROUTES
from tests.rules.known import alerts

CONFIG = Path(__file__).parents[2] / "deploy/alertmanager/alertmanager.yaml"
DOCUMENT: dict[str, Any] = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))

# Labels that tell one thing of a kind from another, by what an alert is about.
NODE, JOB = {"cluster", "instance"}, {"cluster", "job_id"}
GPU, PORT = NODE | {"uuid"}, NODE | {"device", "port"}
FOR_OPERATORS = {name for (name, _), rule in alerts().items() if rule.route == "ops"}
# What the design of the rules says: source, targets, and the labels that have to agree.
SILENT_BESIDE = [
    ("MonitoringBlind", {"ExporterDown"}, {"cluster", "shard"}),
    ("NodeInMaintenance", FOR_OPERATORS - {"ExporterDown", "ExporterVanished"}, NODE),
    ("GpuMissing", {"GpuXidWarning", "GpuThermalSlowdown", "NvlinkDown", "JobStragglerGpu"}, NODE),
    (
        "GpuRecoveryActionRequired",
        {"GpuXidWarning", "GpuThermalSlowdown", "NvlinkDown", "JobStragglerGpu"},
        GPU,
    ),
    ("NvswitchFatalSxid", {"NvlinkDown", "NvlinkErrorsRising"}, NODE),
    ("TrainingHungInCollective", {"TrainingStalled", "JobLowGpuUtilization", "TrainingThroughputDrop"}, JOB),
    ("TrainingStalled", {"JobLowGpuUtilization", "TrainingThroughputDrop", "TrainingMetricsStale"}, JOB),
    ("JobPartlyIdle", {"GpuAllocatedIdle"}, JOB),
    ("GpuAllocatedIdleLong", {"GpuAllocatedIdle"}, GPU | JOB),
    ("GpuAllocatedIdleLong", {"JobPartlyIdle"}, JOB),
    ("BudgetExhausted", {"BudgetBurnFast", "BudgetBurnSlow"}, {"cluster", "account", "currency"}),
    ("FabricPortDown", {"FabricPortRateDegraded", "FabricPortErrorsRising", "FabricLinkFlapping"}, PORT),
    ("GpuThermalSlowdown", {"GpuThermalSlowdown"}, GPU),
    ("FilesystemFillForecast", {"FilesystemFillForecast"}, NODE | {"mountpoint"}),
    ("StorageHung", {"StorageHung"}, NODE),
]


def receivers(amtool: Path, **labels: str) -> set[str]:
    done = subprocess.run(
        [
            amtool,
            "config",
            "routes",
            "test",
            f"--config.file={CONFIG}",
            *(f"{k}={v}" for k, v in labels.items()),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.strip().split(","))


def test_amtool_finds_nothing_and_would(amtool: Path, tmp_path: Path) -> None:
    good = subprocess.run([amtool, "check-config", CONFIG], capture_output=True, text=True, check=False)
    assert good.returncode == 0, good.stderr
    bad = tmp_path / "alertmanager.yaml"
    bad.write_text(CONFIG.read_text().replace("receiver: owners", "receiver: no-such-one"))
    assert subprocess.run([amtool, "check-config", bad], capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize(
    ("name", "severity", "heard_by"),
    [
        ("GpuXidCritical", "critical", {"ops-pager"}),
        ("GpuXidWarning", "warning", {"ops-chat"}),
        ("GpuUtilizationSuspect", "info", {"ops-chat"}),
        ("FilesystemAlmostFull", "critical", {"ops-pager"}),
        ("FilesystemFillForecast", "warning", {"ops-chat"}),
        ("GpuAllocatedIdle", "warning", {"owners"}),
        ("TrainingLossNonFinite", "critical", {"owners"}),
        ("GpuAllocatedIdleLong", "critical", {"owners", "ops-chat"}),
        ("TrainingStalled", "critical", {"owners", "ops-pager"}),
        ("TrainingThroughputDrop", "warning", {"owners", "ops-chat"}),
        ("BudgetExhausted", "critical", {"finance"}),
        ("FeedPowerNearLimit", "critical", {"facility"}),
        ("Watchdog", "none", {"deadman"}),
        ("NodeInMaintenance", "none", {"nobody"}),
    ],
)
def test_who_hears_of_an_alert(name: str, severity: str, heard_by: set[str], amtool: Path) -> None:
    route = alerts()[name, severity].route
    assert receivers(amtool, alertname=name, severity=severity, route=route) == heard_by


def test_every_route_and_every_kind_of_receiver_is_there() -> None:
    assert {rule.route for rule in alerts().values()} == set(ROUTES)
    routed = set(re.findall(r'route=~?"([^"]+)"', CONFIG.read_text()))
    assert {part for text in routed for part in text.split("|")} == set(ROUTES)
    kinds = {kind for receiver in DOCUMENT["receivers"] for kind in receiver if kind != "name"}
    assert kinds == {"slack_configs", "email_configs", "pagerduty_configs", "webhook_configs"}


def test_secrets_are_read_from_files() -> None:
    text = CONFIG.read_text(encoding="utf-8")
    secret = re.compile(r"^\s*-?\s*\w*(?:password|token|key|secret|api_url|credentials)\w*:", re.M)
    assert not [line for line in secret.findall(text) if "_file" not in line]
    assert len(re.findall(r"_file: /etc/alertmanager/secrets/", text)) >= 6


def test_alertmanager_remembers_what_it_sent_for_longer_than_until_it_sends_it_again() -> None:
    repeated = [int(hours) for hours in re.findall(r"repeat_interval: (\d+)h", CONFIG.read_text())]
    compose = (CONFIG.parents[1] / "compose/compose.yaml").read_text(encoding="utf-8")
    readme = (CONFIG.parents[2] / "docs/runbooks/README.md").read_text(encoding="utf-8")
    for text in (compose, readme):
        kept = re.search(r"--data\.retention=(\d+)h", text)
        assert kept
        assert int(kept[1]) > max(repeated)


def silenced() -> list[tuple[str, set[str], set[str]]]:
    """The inhibitions as they are configured."""
    found = []
    for rule in DOCUMENT["inhibit_rules"]:
        (source,) = meant(rule["source_matchers"])
        found.append((source, meant(rule["target_matchers"]), set(rule.get("equal", ()))))
    return found


def meant(matchers: list[str]) -> set[str]:
    """The alerts that all of these matchers match, as far as the labels of a rule itself tell."""
    parts = [re.fullmatch(r'(\w+)(=~|!~|=)"(.*)"', matcher) for matcher in matchers]
    assert all(parts), matchers

    def all_match(labels: Mapping[str, str]) -> bool:
        return all(
            (re.fullmatch(part[3], labels[part[1]]) is None) == (part[2] == "!~")
            for part in parts
            if part and part[1] in labels
        )

    return {
        name
        for (name, severity), rule in alerts().items()
        if all_match({"alertname": name, "severity": severity, "route": rule.route})
    }


def test_what_keeps_silent_beside_what() -> None:
    def key(entry: tuple[str, set[str], set[str]]) -> str:
        return f"{entry[0]} {sorted(entry[1])}"

    assert sorted(silenced(), key=key) == sorted(SILENT_BESIDE, key=key)
    names = {name for name, _ in alerts()}
    for source, targets, _ in silenced():
        assert {source, *targets} <= names
    for name, severities in _two_severities().items():
        assert severities == {"warning", "critical"}
        assert name in {source for source, targets, _ in silenced() if source in targets}


def test_no_message_and_no_silence_is_of_two_clusters() -> None:
    assert [rule for rule in DOCUMENT["inhibit_rules"] if "cluster" not in rule["equal"]] == []

    def groups(route: dict[str, Any]) -> Iterator[list[str]]:
        if "group_by" in route:
            yield route["group_by"]
        for child in route.get("routes", ()):
            yield from groups(child)

    assert [labels for labels in groups(DOCUMENT["route"]) if "cluster" not in labels] == []


def test_a_node_that_cannot_be_read_is_silenced_only_when_all_are() -> None:
    assert [
        source for source, targets, _ in silenced() if targets & {"ExporterDown", "ExporterVanished"}
    ] == ["MonitoringBlind"]


def _two_severities() -> dict[str, set[str]]:
    by_name: dict[str, set[str]] = {}
    for name, severity in alerts():
        by_name.setdefault(name, set()).add(severity)
    return {name: severities for name, severities in by_name.items() if len(severities) > 1}
