"""`clusterwatt export rules`: overrides, their mistakes, and what is written."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusterwatt import cli
from clusterwatt.rules import limits, render, shipped
from clusterwatt.rules.overrides import Overrides
from clusterwatt.rules.render import SUMS

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def no_promtool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


def export(folder: Path, text: str, *options: str) -> int:
    path = folder / "overrides.yaml"
    path.write_text(text, encoding="utf-8")
    return cli.main(["export", "rules", str(folder / "rules"), "--overrides", str(path), *options])


def rules(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The alerts that Prometheus would load, by name and severity."""
    found = {}
    for path in folder.glob("*.yaml"):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        for group in document.get("spec", document)["groups"]:
            for rule in group["rules"]:
                if "alert" in rule:
                    found[rule["alert"], rule["labels"]["severity"]] = rule
    return found


@pytest.mark.usefixtures("no_promtool")
def test_without_overrides_the_rules_are_those_of_the_repository(tmp_path: Path) -> None:
    assert cli.main(["export", "rules", str(tmp_path)]) == 0
    for folder, below in (("rules", ""), ("rules-off-by-default", "off-by-default")):
        for path in (REPOSITORY / "deploy/prometheus" / folder).glob("*.yaml"):
            written = (tmp_path / below / path.name).read_text(encoding="utf-8")
            assert written.split("\n", 1)[1] == path.read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_promtool")
def test_what_is_off_by_default_is_not_loaded(tmp_path: Path) -> None:
    off = {"TrainingLossDiverging", "SilentCorruptionSuspected", "GpuCorrectedEccSurge"} | {
        "GpuClocksLowUnderLoad",
        "BudgetBurnSlow",
    }
    assert cli.main(["export", "rules", str(tmp_path)]) == 0
    assert not off & {name for name, _ in rules(tmp_path)}
    assert {name for name, _ in rules(tmp_path / "off-by-default")} == off
    assert not off & {name for name, _ in rules(REPOSITORY / "deploy/prometheus/rules")}


@pytest.mark.usefixtures("no_promtool")
def test_a_site_changes_what_it_wants(tmp_path: Path) -> None:
    assert (
        export(
            tmp_path,
            """
interval: 30s
scrape_job: gpu-nodes
labels: {team: ml, cluster: "a, b"}
urls: {runbooks: https://wiki.example.com/r/, boards: https://grafana.example.com}
groups: {clusterwatt-fabric: {enabled: false}}
rules:
  GpuPowerBrake: {for: 0, severity: info, route: facility, share_ratio: 0.2}
  GpuThermalSlowdown:
    critical: {enabled: false}
  FabricPortDown: {enabled: true}
  BudgetBurnSlow: {enabled: true}
""",
        )
        == 0
    )
    found = rules(tmp_path / "rules")
    brake = found["GpuPowerBrake", "info"]
    assert brake["labels"] == {"severity": "info", "route": "facility", "team": "ml", "cluster": "a, b"}
    assert (brake["for"], "> 0.2" in brake["expr"]) == ("0m", True)
    assert brake["annotations"]["runbook_url"] == "https://wiki.example.com/r/GpuPowerBrake.md"
    assert brake["annotations"]["dashboard_url"].startswith("https://grafana.example.com/d/cw-gpu?")
    assert ("GpuThermalSlowdown", "warning") in found
    assert ("GpuThermalSlowdown", "critical") not in found
    assert {name for name, _ in found if name.startswith("Fabric")} == {"FabricPortDown"}
    assert ("BudgetBurnSlow", "info") in found
    assert 'up{job="gpu-nodes"}' in found["MonitoringBlind", "critical"]["expr"]
    for path in (tmp_path / "rules").rglob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        assert "interval: 30s\n" in text
        assert "localhost:3000" not in text
        assert "github.com" not in text
    on = yaml.safe_load((tmp_path / "rules/on-by-site.yaml").read_text(encoding="utf-8"))["groups"]
    assert [group["name"] for group in on] == ["clusterwatt-on-by-site"]


@pytest.mark.usefixtures("no_promtool")
def test_what_an_earlier_export_left_is_removed_and_what_others_wrote_stays(tmp_path: Path) -> None:
    assert export(tmp_path, "rules: {BudgetBurnSlow: {enabled: true}}") == 0
    other = tmp_path / "rules" / "ours.yaml"
    other.write_text("groups: []\n")
    assert (tmp_path / "rules/on-by-site.yaml").exists()
    assert export(tmp_path, "groups: {storage: {enabled: false}}") == 0
    assert not (tmp_path / "rules/on-by-site.yaml").exists()
    assert not (tmp_path / "rules/storage.yaml").exists()
    assert other.exists()


JOB_RULES = {"GpuAllocatedIdle", "GpuAllocatedIdleLong", "JobLowGpuUtilization", "JobPartlyIdle"} | {
    *("TrainingStalled", "TrainingHungInCollective", "TrainingMetricsStale", "TrainingLossNonFinite"),
    *("TrainingThroughputDrop", "JobStragglerGpu"),
}


@pytest.mark.usefixtures("no_promtool")
def test_exemptions(tmp_path: Path) -> None:
    assert (
        export(
            tmp_path,
            """
exempt: {nodes: [login-.*], jobs: [probe.*], accounts: [staff]}
rules:
  JobLowGpuUtilization: {exempt: {users: [alice, bob]}}
  StorageHung: {exempt: {mountpoints: /scratch}}
""",
        )
        == 0
    )
    found = {name: rule["expr"] for (name, _), rule in rules(tmp_path / "rules").items()}
    assert {name for name, expr in found.items() if '{name=~"probe.*"}' in expr} == JOB_RULES
    assert {name for name, expr in found.items() if '{job_id=~"probe.*"}' in expr} == JOB_RULES
    assert {name for name, expr in found.items() if 'user=~"alice|bob"' in expr} == {"JobLowGpuUtilization"}
    assert {name for name, expr in found.items() if "mountpoint!~" in expr} == {"StorageHung"}
    assert {name for name, expr in found.items() if 'account!~"staff"' in expr} == {
        "BudgetBurnFast",
        "BudgetExhausted",
    }
    money = {rule.name for file in shipped.files() if file.name == SUMS for rule in file.rules}
    for name, expr in found.items():
        by_job = {"JobLowGpuUtilization", "Watchdog"}
        assert ('instance!~"login-.*"' in expr) == (name not in money | by_job), name
    assert found["FabricLinkFlapping"].count('instance!~"login-.*"') == 2  # in what is recorded, too


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rule: {}", "overrides.yaml:1:1: rule: unknown; did you mean rules?"),
        (
            "rules:\n  GpuAlocatedIdle: {}",
            "overrides.yaml:2:3: rules.GpuAlocatedIdle: unknown; did you mean GpuAllocatedIdle?",
        ),
        (
            "rules:\n  GpuAllocatedIdle:\n    idle: 0.5",
            "overrides.yaml:3:5: rules.GpuAllocatedIdle.idle: unknown; did you mean idle_ratio?",
        ),
        ("groups: {fabrik: {}}", "did you mean fabric?"),
        (
            "rules: {GpuThermalSlowdown: {share_ratio: 0.2}}",
            "share_ratio: the rule has several severities: put it below critical, warning, as critical: {sha",
        ),
        ("rules: {GpuAllocatedIdle: {idle_ratio: 98}}", "expected a number from 0 to 1, as 0.98, got 98"),
        (
            "rules: {GpuAllocatedIdle: {idle_ratio: high}}",
            'expected a number from 0 to 1, as 0.98, got "high"',
        ),
        ("rules: {GpuAllocatedIdle: {window: 60}}", "expected a duration, as 30m or 1h30m, got 60"),
        ("rules: {GpuAllocatedIdle: {guard: 1.5}}", "expected a whole number, got 1.5"),
        (
            "rules: {GpuAllocatedIdle: {for: soon}}",
            'expected a duration, as 5m; 0m to fire at once, got "soon"',
        ),
        (
            "rules: {GpuAllocatedIdle: {severity: high}}",
            'expected info, warning, critical or none, got "high"',
        ),
        (
            "rules: {GpuAllocatedIdle: {window: [1h]}}",
            "GpuAllocatedIdle.window: expected one value, got a list",
        ),
        ("interval: 1h", 'interval: expected a duration from 10s to 120s, got "1h"'),
        (
            "labels: {severity: low}",
            "1:20: labels.severity: the rules set this label themselves: choose another name",
        ),
        (
            "labels: {location: fra1}",
            "1:20: labels.location: the rules set this label themselves: choose another name",
        ),
        *(
            (f"labels: {{{name}: x}}", f"labels.{name}: the rules set")
            for name in ("gpu", "xid", "tag", "fstype")
        ),
        (
            "rules:\n  TrainingStalled: {minutes: 30}",
            "yaml:2:30: rules.TrainingStalled.minutes: the rule can never fire: expected at most 15, the",
        ),
        (
            "rules: {GpuAllocatedIdle: {guard: 90}}",
            "expected at most 60, the samples in a window of 1h, got 90",
        ),
        (
            "interval: 2m\nrules: {GpuAllocatedIdle: {guard: 50}}",
            "expected at most 30, the samples in a window of 1h, got 50",
        ),
        (
            "rules: {TrainingThroughputDrop: {minutes: 400}}",
            "at most 360, the samples in a history of 6h, got 400",
        ),
        ("rules: {GpuXidCritical: {age_seconds: 30}}", "at least 120, 2 intervals of evaluation, got 30"),
        ("rules: {GpuXidWarning: {age_seconds: 30}}", "at least 120, 2 intervals of evaluation, got 30"),
        (
            "rules: {JobLowGpuUtilization: {activity_ratio: 0.005}}",
            "expected activity_ratio above floor_ratio, which are 0.005 and 0.01, got 0.005",
        ),
        (
            "rules: {GpuThermalSlowdown: {critical: {severity: warning}}}",
            "rules.GpuThermalSlowdown: two rules of this name with severity warning: choose another, or",
        ),
        ("groups: {records: {enabled: false}}", "groups.records: alerts and boards stand on these records"),
        ("exempt: {nodes: ['node-(?=1)']}", "of Prometheus (RE2), which has no (?=, got"),
        ("exempt: {nodes: ['(a)\\1']}", "of Prometheus (RE2), which has no \\1, got"),
        ("rules: {GpuPowerBrake: {summary: x}}", "texts, labels and expressions of a rule stay as they are"),
        ("rules: {GpuPowerBrake: {share_ratio: -0.5}}", "expected a number from 0 to 1, as 0.05, got -0.5"),
        ("rules: {BudgetBurnFast: {factor: -0.5}}", "expected a number from 0, as 4, got -0.5"),
        ("exempt: {node: x}", "did you mean nodes?"),
        ("exempt: {nodes: '['}", "expected a regular expression"),
        ("urls: {boards: grafana}", "expected a URL"),
        (
            "rules: {GpuXidCritical: {exempt: {jobs: x}}}",
            "1:35: rules.GpuXidCritical.exempt.jobs: the rule knows no jobs; it can leave out nodes",
        ),
        (
            "rules: {BudgetBurnFast: {short_window: 2h}}",
            "1:40: rules.BudgetBurnFast.short_window: expected 1h or 6h or 1d, the windows that are recorded",
        ),
        (
            "rules: {GpuPowerBrake: {for: 1m, for: 2m}}",
            "1:34: rules.GpuPowerBrake.for: given twice, first on line 1: keep one",
        ),
        ("rules: [1]", "rules: expected names with values, as {Name: {for: 10m}}, got a list"),
        ("rules: {GpuPowerBrake: off}", 'expected names with values, as {enabled: false}, got "off"'),
        ("groups: {fabric: false}", "groups.fabric: expected names with values, as {enabled: false}"),
        ("rules: {Xyzzy: {}}", "rules.Xyzzy: unknown; `clusterwatt export rules --list` shows all"),
        ("labels: {a-b: low}", "labels.a-b: no name of a label: expected letters, digits and _"),
        ("labels: {team: ''}", 'labels.team: expected text on one line, without {{, got ""'),
        ("interval:", "interval: expected a duration from 10s to 120s, got nothing"),
        ("? [a]\n: b", "overrides.yaml:1:3: expected a name, got a list"),
        ("just text", "overrides.yaml:1:1: expected names with values, as {interval: 30s}, got "),
        ("prometheusrule: {namespace: My_Own}", "of small letters, digits and -, got"),
        ("a: b: c", "not valid YAML"),
    ],
)
@pytest.mark.usefixtures("no_promtool")
def test_a_mistake_is_told_with_its_place_and_what_was_expected(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(tmp_path, text) == 2
    said = capsys.readouterr().err
    assert says in said
    assert not (tmp_path / "rules").exists()


@pytest.mark.parametrize(
    "text",
    [
        "rules: {TrainingStalled: {minutes: 15}, GpuAllocatedIdle: {guard: 60}}",
        "rules: {TrainingStalled: {minutes: 30, window: 30m}}",
        "interval: 15s\nrules: {GpuXidCritical: {age_seconds: 30}, GpuAllocatedIdle: {guard: 240}}",
        "rules: {GpuAllocatedIdle: {age_seconds: 30}}",
        "rules: {GpuThermalSlowdown: {critical: {severity: warning}, warning: {severity: info}}}",
        "rules: {GpuThermalSlowdown: {critical: {severity: warning}, warning: {enabled: false}}}",
        "rules: {GpuThermalSlowdown: {critical: {severity: warning, enabled: false}}}",
        "exempt: {nodes: ['a[(?=]', '\\\\1', '(?i)a+?', '(?:x|y)']}",
        "labels: {team: ml, cluster: main, site: fra1}",
    ],
)
@pytest.mark.usefixtures("no_promtool")
def test_what_is_possible_is_taken(text: str, tmp_path: Path) -> None:
    assert export(tmp_path, text) == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "rules: {Watchdog: {enabled: false}}",
            "Watchdog is switched off: nobody is told when Prometheus or",
        ),
        (
            "groups: {monitor: {enabled: false}}",
            "Watchdog is switched off: nobody is told when Prometheus or",
        ),
        (
            "rules: {Watchdog: {route: ops}}",
            "rules.Watchdog.route: ops is told all the time, and nobody when",
        ),
        (
            "exempt: {jobs: [4711]}",
            "exempt.jobs: 4711 is a whole name, or a whole id, and ids are as slurm/4711",
        ),
        ("rules: {TrainingStalled: {exempt: {jobs: 4711}}}", "rules.TrainingStalled.exempt.jobs: 4711 is a"),
        ("rules: {TrainingStalled: {exempt: {jobs: [slurm/4711, 'probe-.*']}}}", ""),
        ("groups: {monitor: {enabled: false}}\nrules: {Watchdog: {enabled: true}}", ""),
    ],
)
@pytest.mark.usefixtures("no_promtool")
def test_what_is_hardly_meant_is_done_and_told(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(tmp_path, text) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "promtool" not in line]
    assert len(lines) == bool(says)
    if says:
        assert lines[0].startswith(f"clusterwatt: {tmp_path / 'overrides.yaml'}: warning: {says}")


def test_every_guard_is_held_to_what_its_window_has() -> None:
    held = 0
    for rule in (rule for file in shipped.files() for rule in file.rules if rule.is_alert):
        for name in {"guard", "minutes"} & rule.numbers.keys():
            assert [told for told, _ in limits.broken(rule, {name: "10000"}, 60)] == [name], rule.name
            assert not list(limits.broken(rule, {name: rule.numbers[name]}, 60)), rule.name
            held += 1
    assert held > 5


@pytest.mark.usefixtures("no_promtool")
def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "rules:\n"
        "  GpuAllocatedIdle: {window: 2 hours, idle_ration: 0.9, for: soon}\n"
        "  GpuXidCritical: {exempt: {jobs: x}}\n"
        "  BudgetBurnFast: {short_window: 2h}\n"
        "interval: 1h\n"
        "lables: {}\n"
    )
    assert export(tmp_path, text) == 2
    told = [
        line.partition("overrides.yaml:")[2].split(": ")[:2] for line in capsys.readouterr().err.splitlines()
    ]
    assert told == [
        ["2:30", "rules.GpuAllocatedIdle.window"],
        ["2:39", "rules.GpuAllocatedIdle.idle_ration"],
        ["2:62", "rules.GpuAllocatedIdle.for"],
        ["3:29", "rules.GpuXidCritical.exempt.jobs"],
        ["4:34", "rules.BudgetBurnFast.short_window"],
        ["5:11", "interval"],
        ["6:1", "lables"],
    ]


@pytest.mark.usefixtures("no_promtool")
def test_the_list_shows_default_and_effective_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "overrides.yaml"
    path.write_text("rules: {GpuAllocatedIdle: {window: 2h, severity: critical}}")
    assert cli.main(["export", "rules", "--list", "--overrides", str(path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["GpuAllocatedIdle", "warning", "window", "1h", "2h", "*"] in lines
    assert ["GpuAllocatedIdle", "warning", "guard", "50", "100", "*"] in lines
    assert ["GpuAllocatedIdle", "warning", "severity", "warning", "critical", "*"] in lines
    assert ["GpuAllocatedIdle", "warning", "idle_ratio", "0.98", "0.98"] in lines
    assert cli.main(["export", "rules", "--list", "--json", "--overrides", str(path)]) == 0
    values = json.loads(capsys.readouterr().out)
    assert {
        "rule": "GpuAllocatedIdle",
        "severity": "warning",
        "name": "guard",
        "default": "50",
        "value": "100",
    } in (values)


@pytest.mark.usefixtures("no_promtool")
def test_objects_for_the_operator_hold_the_same_groups(tmp_path: Path) -> None:
    text = "prometheusrule: {namespace: monitoring, labels: {release: prometheus}}\nlabels: {team: ml}"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert export(tmp_path / "a", text) == 0
    assert export(tmp_path / "b", text, "--format", "prometheusrule") == 0
    names = set()
    for path in (tmp_path / "a/rules").rglob("*.yaml"):
        plain = yaml.safe_load(path.read_text(encoding="utf-8"))
        wrapped = yaml.safe_load(
            (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_text(encoding="utf-8")
        )
        assert wrapped["spec"] == plain
        assert (wrapped["apiVersion"], wrapped["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
        assert wrapped["metadata"]["namespace"] == "monitoring"
        assert wrapped["metadata"]["labels"]["release"] == "prometheus"
        names.add(wrapped["metadata"]["name"])
    assert len(names) == len(shipped.files())


def test_promtool_finds_nothing_and_would(
    tmp_path: Path, promtool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", *(REPOSITORY / "deploy/prometheus").glob("rules*/*.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "FAILED" in done.stdout + done.stderr) == (0, False)
    everything = """
interval: 15s
labels: {team: ml}
exempt: {nodes: [a, 'b\\d'], jobs: [j], users: [u], accounts: [acc], mountpoints: [/s], ports: [p]}
groups: {off-by-default: {enabled: true}}
"""
    assert export(tmp_path, everything, "--promtool", str(promtool)) == 0
    assert export(tmp_path, everything, "--format", "prometheusrule", "--promtool", str(promtool)) == 0
    assert not (tmp_path / "rules/off-by-default/off-by-default.yaml").exists()


def test_the_scenarios_are_played_against_an_export(
    tmp_path: Path, promtool: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from clusterwatt.rules import scenarios

    told = {"down for four minutes", "blind", "hardware heat, most of the time", "17 of 20 kW"}
    some = [test for test in scenarios.scenarios() if test["name"] in told]
    monkeypatch.setattr(scenarios, "scenarios", lambda: some)
    text = """
scrape_job: gpu-nodes
labels: {team: ml}
urls: {runbooks: https://wiki.example.com}
exempt: {nodes: [login]}
groups: {money-power: {enabled: false}}
rules:
  MonitoringBlind: {severity: warning, route: facility}
  GpuThermalSlowdown: {critical: {share_ratio: 0.9}}
"""
    assert export(tmp_path, text) == 0
    arguments = ["rules", "test", str(tmp_path / "rules"), "--promtool", str(promtool)]
    capsys.readouterr()
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert "differs hardware heat, most of the time: GpuThermalSlowdown" in said
    assert "not loaded, not tested: FeedPowerNearLimit" in said
    assert (
        "\nSILENT  GpuThermalSlowdown (critical): fires in none of its scenarios (1) "
        "with share_ratio: 0.9 (shipped: 0.5)\n"
    ) in said
    assert " 0 failed, 1 differ where numbers are changed, 1 silent" in said
    assert cli.main([*arguments, "--strict"]) == 1
    broken = tmp_path / "rules/monitor.yaml"
    broken.write_text(broken.read_text().replace("for: 5m", "for: 0m").replace("> 0.2", "> 0.9"))
    capsys.readouterr()
    assert cli.main([*arguments, "--strict"]) == 1
    assert "blind: MonitoringBlind" in capsys.readouterr().out


def test_an_alert_that_fires_nowhere_any_more_is_told_and_one_that_fires_elsewhere_is_not(
    tmp_path: Path, promtool: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from clusterwatt.rules import scenarios

    told = {"stall", "5 of 8 links", "XID 79, brand-new series", "hardware heat, most of the time"}
    some = [test for test in scenarios.scenarios() if test["name"] in told]
    monkeypatch.setattr(scenarios, "scenarios", lambda: some)
    text = """
rules:
  TrainingStalled: {minutes: 15, for: 2h}
  GpuXidCritical: {age_seconds: 7200}
  GpuThermalSlowdown: {warning: {share_ratio: 0.2}}
"""
    assert export(tmp_path, text) == 0
    arguments = ["rules", "test", str(tmp_path / "rules"), "--promtool", str(promtool)]
    capsys.readouterr()
    assert cli.main(arguments) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("SILENT")]
    (line,) = lines
    assert line == (
        "SILENT  TrainingStalled (critical): fires in none of its scenarios (1) "
        "with minutes: 15 (shipped: 10), for: 2h (shipped: 5m)"
    )
    assert cli.main([*arguments, "--strict"]) == 1


def test_a_folder_without_rules_is_one_line(
    tmp_path: Path, promtool: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rules", "test", str(tmp_path), "--promtool", str(promtool)]) == 2
    assert cli.main(["rules", "test", str(tmp_path), "--promtool", "/nowhere/promtool"]) == 1
    assert capsys.readouterr().err.count("\n") == 2


def test_a_rule_is_found_however_it_is_written() -> None:
    """Every change of every alert comes through: the files are in the one form that is read."""
    for file in shipped.files():
        for rule in file.rules:
            if rule.is_alert:
                assert rule.text.count("    expr: ") == rule.text.count("    for: ") == 1
                assert f'"{shipped.RUNBOOKS}/{rule.name}.md"' in rule.text
                assert f'dashboard_url: "{shipped.BOARDS}/d/cw-' in rule.text
    assert render.render(shipped.files(), Overrides())


@pytest.mark.usefixtures("no_promtool")
def test_a_plain_file_in_place_of_the_folder_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.touch()
    assert cli.main(["export", "rules", str(path)]) == 1
    assert capsys.readouterr().err == f"clusterwatt: {path}: expected a folder, found a file\n"
