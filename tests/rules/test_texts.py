"""What people read: the texts of alerts, their runbooks, and whether both speak of what there is."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusterwatt.inventory import CATALOG
from clusterwatt.rules import expression, scenarios, shipped
from clusterwatt.rules import promtool as tool
from clusterwatt.rules.shipped import Rule
from tests.rules.known import alerts

REPOSITORY = Path(__file__).parents[2]
RUNBOOKS = REPOSITORY / "docs/runbooks"
EXPECTED = Path(__file__).parent / "expected/annotations.yaml"
BOARDS = {"cluster", "job", "node", "gpu", "fabric", "storage", "energy", "fleet"}
NAMES = sorted({name for name, _ in alerts()})

LABELS = {metric.full_name: set(metric.labels) | {"instance", "job"} for metric in CATALOG} | {
    "up": {"instance", "job"}
}
SERIES = re.compile(r"(?<![\w:])(?P<name>clusterwatt_\w+|up)(?![\w:(])(?:\{(?P<matchers>[^}]*)\})?")
MATCHER = re.compile(r'(?P<label>\w+)\s*(?P<sign>=~|!~|!=|=)\s*"(?P<value>[^"]*)"')


def unknown(query: str) -> Iterator[str]:
    """Names and labels in a query that no family has."""
    for found in SERIES.finditer(expression.plain(query)):
        name = re.sub(r"_(sum|count|bucket)$", "", found["name"])
        if name not in LABELS and found["name"] not in LABELS:
            yield found["name"]
            continue
        known = LABELS.get(found["name"]) or LABELS[name]
        for matcher in MATCHER.finditer(found["matchers"] or ""):
            if matcher["label"] not in known:
                yield f"{found['name']}{{{matcher['label']}}}"
    records = {rule.name for file in shipped.files() for rule in file.rules if not rule.is_alert}
    yield from expression.recorded(query) - records


ALL = [rule for file in shipped.files() for rule in file.rules]


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: f"{rule.name} {rule.severity}".strip())
def test_every_name_and_label_of_a_rule_exists(rule: Rule) -> None:
    assert list(unknown(rule.expression)) == []
    joined = re.findall(r"\b(?:on|by|without|group_left) \(([^)]*)\)", expression.plain(rule.expression))
    somewhere = set().union(*LABELS.values())
    assert {label.strip() for part in joined for label in part.split(",") if label.strip()} <= somewhere


def test_what_does_not_exist_is_noticed() -> None:
    assert list(
        unknown('clusterwatt_gpu_upp == 0 and clusterwatt_gpu_up{gpus="1"} or job:clusterwatt_x:y')
    ) == [
        "clusterwatt_gpu_upp",
        "clusterwatt_gpu_up{gpus}",
        "job:clusterwatt_x:y",
    ]


def texts_by_alert() -> dict[tuple[str, str], dict[str, str]]:
    return {
        (name, severity): yaml.safe_load(rule.text)[0]["annotations"]
        for (name, severity), rule in alerts().items()
    }


@pytest.mark.parametrize(("name", "severity"), list(alerts()))
def test_an_alert_says_what_where_and_what_next(name: str, severity: str) -> None:
    texts = texts_by_alert()[name, severity]
    assert texts.keys() == {"summary", "description", "runbook_url", "dashboard_url"}
    board = re.search(r"/d/cw-(\w+)", texts["dashboard_url"])
    assert board
    assert board[1] in BOARDS
    # A number that a site can change must not stand in a text, which would go on saying the shipped one.
    words = set(
        re.findall(r"[\d.]+\d|\d", re.sub(r"\{\{.*?\}\}", "", texts["summary"] + texts["description"]))
    )
    assert not words & set(alerts()[name, severity].numbers.values())


def firing() -> dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any], dict[str, str]]]:
    """For each alert the shortest scenario in which it fires, the check of it, and its labels there."""
    found: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {}
    for test in sorted(scenarios.scenarios(), key=scenarios.minutes):
        for check in test.get("alert_rule_test", ()):
            for alert in check["exp_alerts"]:
                key = check["alertname"], alert["exp_labels"]["severity"]
                found.setdefault(key, (test, check, alert["exp_labels"]))
    return found


OWNER = (
    '{job="clusterwatt", instance="n1", job_id="J1", scheduler="slurm", name="train", user="alice", '
    'account="physics"}'
)


def test_texts_are_those_that_were_read_and_approved(
    promtool: Path, tmp_path: Path, update_golden: bool
) -> None:
    """Each alert once, as it arrives; `--update-golden` writes them anew."""
    reference = scenarios.shipped(shipped.files())
    told = {} if update_golden else yaml.safe_load(EXPECTED.read_text(encoding="utf-8"))
    got = {}
    files = []
    for at, ((name, severity), (test, check, _)) in enumerate(firing().items()):
        label = f"{name} {severity}"
        needed = reference.for_alerts([name])
        texts = texts_by_alert()
        with_texts = [
            {**rule, "annotations": texts[name, rule["labels"]["severity"]]} if "alert" in rule else rule
            for rule in needed
        ]
        series = [*test["input_series"], {"series": f"clusterwatt_job_info{OWNER}", "values": "1x1000"}]
        expected = [
            {**alert, "exp_annotations": told.get(f"{name} {alert['exp_labels']['severity']}", {})}
            for alert in check["exp_alerts"]
        ]
        # Where several fire at once their texts differ by the GPU: one of them is enough to read.
        case = {
            "interval": "1m",
            "input_series": series,
            "alert_rule_test": [{**check, "exp_alerts": expected}],
        }
        rules = {"groups": [{"name": "all", "interval": "1m", "rules": with_texts}]}
        (tmp_path / f"{at}-rules.yaml").write_text(yaml.dump(rules, Dumper=scenarios.DUMPER))
        document = {"rule_files": [f"{at}-rules.yaml"], "evaluation_interval": "1m", "tests": [case]}
        (tmp_path / f"{at}.yaml").write_text(yaml.dump(document, Dumper=scenarios.DUMPER))
        files.append((label, f"{at}.yaml"))
    _, said = tool.call(promtool, ["test", "rules", *(file for _, file in files)], tmp_path)
    by_file = dict(
        zip(
            re.findall(r"^Unit Testing: +(\S+)$", said, re.M),
            re.split(r"^Unit Testing:.*$", said, flags=re.M)[1:],
            strict=True,
        )
    )
    for label, file in files:
        name, severity = label.split()
        _, _, reply = by_file[file].partition("got:")
        for labels, texts_of in re.findall(r"Labels:(\{.*\})\n\s+Annotations:(\{.*\})", reply):
            if f'severity="{severity}"' in labels and label not in got:
                got[label] = {
                    key: value.replace('\\"', '"')
                    for key, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', texts_of)
                }
    if update_golden:
        EXPECTED.parent.mkdir(exist_ok=True)
        EXPECTED.write_text(yaml.safe_dump(got, width=110, sort_keys=True), encoding="utf-8")
        told = got
    assert told.keys() == {f"{name} {severity}" for name, severity in alerts()}
    differs = {label for label in got if got[label] != told[label]}
    assert differs == set()


def test_the_texts_are_filled_in() -> None:
    told = yaml.safe_load(EXPECTED.read_text(encoding="utf-8"))
    for label, texts in told.items():
        for text in texts.values():
            assert not re.search(r"\{\{|<no value>|<error|  ", text), f"{label}: {text}"
        assert texts["runbook_url"].endswith(f"/{label.split()[0]}.md")
        # The id of a job in Kubernetes is a UID: what it is called stands beside it.
        assert "J1" not in texts["summary"] or "J1 (train)" in texts["summary"], label
    for label in ("TrainingStalled critical", "TrainingLossNonFinite critical"):
        assert "alice" in told[label]["description"]


@pytest.mark.parametrize(
    ("name", "labels", "beside", "says"),
    [
        (
            "GpuMissing",
            'instance="n1"',
            'clusterwatt_driver_down_info{instance="n1", reason="not_loaded"}',
            {
                "description": "n1 shows 7 GPUs, fewer than are expected or than it had. "
                "Its driver does not answer (not_loaded): mend that first."
            },
        ),
        (
            "StorageHung",
            'instance="n1"',
            "up",
            {"summary": "A process on n1 has long been blocked on a device or a file system"},
        ),
        (
            "TrainingStalled",
            'job_id="J1"',
            'clusterwatt_job_info{job_id="J1", user="alice", account="physics"}',
            {"summary": "Job J1 holds GPUs but its training step does not move"},
        ),
    ],
)
def test_a_text_says_what_is_known(
    name: str, labels: str, beside: str, says: dict[str, str], promtool: Path, tmp_path: Path
) -> None:
    """The texts of a rule, of a thing of these labels, while another series is there."""
    texts = {key: texts_by_alert()[name, "critical"][key] for key in says}
    rule = {"alert": name, "expr": "thing", "annotations": texts}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": [rule]}]}))
    alert = {"exp_labels": dict(re.findall(r'(\w+)="(\w+)"', labels)), "exp_annotations": says}
    case = {
        "interval": "1m",
        "input_series": [
            {"series": f"thing{{{labels}}}", "values": "7 7"},
            {"series": beside, "values": "1 1"},
        ],
        "alert_rule_test": [{"eval_time": "1m", "alertname": name, "exp_alerts": [alert]}],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [case]}))
    passed, said = tool.call(promtool, ["test", "rules", "test.yaml"], tmp_path)
    assert passed, said


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_has_a_runbook_that_says_its_numbers(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.M)
    assert headings == ["What it means", "Confirm", "Do", "Silence", "Numbers"]
    variants = [rule for (other, _), rule in alerts().items() if other == name]
    for rule in variants:
        assert f"**{rule.severity}** after `{rule.hold}`, route `{rule.route}`" in text
    rows = set(re.findall(r"^\| (?:\w+ \| )?`\w+` \| \S+ \|$", text, re.M))
    assert rows == {
        (f"| {rule.severity} | `{number}` | {value} |" if len(variants) > 1 else f"| `{number}` | {value} |")
        for rule in variants
        for number, value in rule.numbers.items()
    }
    assert re.search(r"/d/cw-(\w+)", text)[1] in BOARDS  # type: ignore[index]  # a missing one fails as well
    assert "amtool silence add" in text or name == "Watchdog"


def test_no_runbook_is_of_an_alert_that_is_gone_and_the_index_has_all() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {*NAMES, "README"}
    index = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
    for (name, _), rule in alerts().items():
        assert re.search(
            rf"\[{name}\]\({name}\.md\) \| [\w /]*{rule.severity}.*{rule.hold}.*{rule.route}", index
        )
    for target in re.findall(r"\]\(([^)#]+)\)", index):
        assert (RUNBOOKS / target).exists(), target


def queries() -> dict[str, str]:
    """What the runbooks tell people to ask Prometheus, by place."""
    found: dict[str, str] = {}
    for path in RUNBOOKS.glob("*.md"):
        for block in re.findall(r"```promql\n(.*?)```", path.read_text(encoding="utf-8"), re.S):
            found |= {f"{path.stem} {at}": line for at, line in enumerate(block.splitlines())}
    return found


def test_queries_of_runbooks_parse_and_ask_for_what_there_is(promtool: Path, tmp_path: Path) -> None:
    asked = queries()
    assert len(asked) > len(NAMES)
    for place, query in asked.items():
        assert list(unknown(query)) == [], place
    rules = [{"record": f"test:query:{at}", "expr": query} for at, query in enumerate(asked.values())]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_package_ships_the_very_files_of_the_repository() -> None:
    for folder, original in (
        (shipped.LOADED, "deploy/prometheus/rules"),
        (shipped.OFF, "deploy/prometheus/rules-off-by-default"),
        (shipped.SCENARIOS, "tests/rules/scenarios"),
    ):
        assert folder.resolve() == REPOSITORY / original
        assert {path.suffix for path in folder.iterdir()} == {".yaml"}
    assert '"rules/shipped/*/*.yaml"' in (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
