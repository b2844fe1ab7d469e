"""The shipped scenarios against a set of rules: what the rules of a site do in each of them.

promtool evaluates. A scenario gets only the rules that it asks about and the records they stand on, which
takes a fraction of the time; annotations are left away, because they hold URLs of the site. A scenario stands
for the shipped numbers: where a site has changed those of a rule, its scenarios may well come out otherwise.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import yaml

from clusterwatt import plain_file
from clusterwatt.config.document import MAX_FILE_BYTES
from clusterwatt.rules import expression, promtool
from clusterwatt.rules.export import groups_of
from clusterwatt.rules.render import OFF_FOLDER
from clusterwatt.rules.shipped import SCENARIOS, RuleFile

LOADER = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # not every PyYAML has libyaml; it is ten times as fast
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
HEAD = re.compile(r"^Unit Testing: +(?P<file>\S+)$", re.MULTILINE)
CHECK = re.compile(r"^    alertname: (?P<alert>\w+), time: (?P<time>\w+)|^    (?:expr|rule): ", re.MULTILINE)
SCRAPE_JOB = re.compile(r'\bup\{job="([^"]+)"')
# What an exemption adds to an expression: scenarios hold nobody who is exempt by name.
MATCHER = re.compile(r'(?:, )?\b(?:instance|mountpoint|device|account)!~"(?:[^"\\]|\\.)*"')
# What an export writes behind a line whose numbers it changed.
CHANGED = re.compile(r"(?P<name>\w+): (?P<value>\S+) \(default (?P<shipped>[^\s)]+)\)")
SEVERITY = re.compile(r'\bseverity="(\w+)"')
CLAUSE = re.compile(r"\nunless on \(job_id\) last_over_time\(clusterwatt_job_info\{.*")

Document = dict[str, Any]


class Outcome(msgspec.Struct, frozen=True):
    """A check of a scenario that came out otherwise; a recorded value has no `alert` and no `time`."""

    scenario: str
    alert: str
    time: str
    text: str

    @property
    def fired(self) -> frozenset[str]:
        """The severities in which the alert fired."""
        return frozenset(SEVERITY.findall(self.text.partition("got:")[2]))


class Silent(msgspec.Struct, frozen=True):
    """An alert that fires in no scenario, in how many it should, and what the site changed."""

    alert: str
    severity: str
    scenarios: int
    changes: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """What came of it: checks that differ, alerts whose numbers the site changed, alerts it does not load.

    `silent`: alerts whose numbers the site changed so that they fire in no scenario.
    """

    scenarios: int
    checks: int
    different: tuple[Outcome, ...]
    changed: frozenset[str]
    absent: frozenset[str]
    silent: tuple[Silent, ...]

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """Those that no change of numbers explains."""
        return tuple(outcome for outcome in self.different if outcome.alert not in self.changed)


class ScenarioError(Exception):
    """The rules cannot be tested at all."""


class Rules(msgspec.Struct, frozen=True):
    """The rules of a folder: records in order of evaluation, alerts, and the interval."""

    records: tuple[Document, ...]
    alerts: tuple[Document, ...]
    interval: str

    def for_alerts(self, names: Iterable[str], expressions: Iterable[str] = ()) -> list[Document]:
        """The alerts of these names, and the records that they and these expressions stand on."""
        wanted = set(names)
        alerts = [alert for alert in self.alerts if alert["alert"] in wanted]
        needed = {
            name for text in (*(alert["expr"] for alert in alerts), *expressions) for name in _asked(text)
        }
        kept: list[Document] = []
        for record in reversed(self.records):  # a record stands only on those before it
            if record["record"] in needed:
                kept.insert(0, record)
                needed |= _asked(record["expr"])
        return kept + alerts


def load(folder: Path) -> Rules:
    """The rules of an exported folder. Raises ScenarioError."""
    paths = [*sorted(folder.glob("*.yaml")), *sorted((folder / OFF_FOLDER).glob("*.yaml"))]
    try:
        texts = [groups_of(plain_file.content(path, MAX_FILE_BYTES).decode()) for path in paths]
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ScenarioError(
            f"{folder}: not rules as `clusterwatt export rules` writes them: {error}"
        ) from None
    if not texts:
        raise ScenarioError(f"{folder}: no rules in it; write some with `clusterwatt export rules {folder}`")
    return parsed(texts)


def shipped(files: Iterable[RuleFile]) -> Rules:
    """The rules as they are shipped."""
    return parsed(file.head + "".join(rule.text for rule in file.rules) for file in files)


def parsed(texts: Iterable[str]) -> Rules:
    """Rules from the texts of files. Raises ScenarioError."""
    groups = [group for text in texts for group in (_yaml(text) or {}).get("groups", ())]
    if not groups:
        raise ScenarioError("no groups of rules in it")
    rules = [rule for group in groups for rule in group["rules"]]
    records = [rule for rule in rules if "record" in rule]
    return Rules(
        tuple(_in_order(records)),
        tuple(
            {name: value for name, value in rule.items() if name != "annotations"}
            for rule in rules
            if "alert" in rule
        ),
        groups[0].get("interval", "1m"),
    )


def scenarios() -> list[Document]:
    """All shipped scenarios."""
    paths = sorted(SCENARIOS.glob("*.yaml"))
    documents = [_yaml(path.read_text(encoding="utf-8")) for path in paths]
    return [test for document in documents for test in document.get("tests", ())]


def run(
    rules: Rules,
    reference: Rules,
    program: Path,
    tests: Sequence[Document],
    *,
    workers: int = os.cpu_count() or 1,
) -> Verdict:
    """Play the scenarios. `reference`: the rules that they were written for. Raises PromtoolError."""
    rules, changed = _relabelled(rules, reference)
    here = {alert["alert"] for alert in rules.alerts}
    asked = {check["alertname"] for test in tests for check in test.get("alert_rule_test", ())}
    job = next((found[1] for alert in rules.alerts if (found := SCRAPE_JOB.search(alert["expr"]))), "")
    kept = [_kept(test, here) for test in tests]
    cost = [(minutes(test), test) for test in kept]
    cost.sort(key=lambda pair: -pair[0])
    with tempfile.TemporaryDirectory(prefix="clusterwatt-rules-") as name:
        folder = Path(name)

        def play(number: int) -> list[Outcome]:
            mine = [test for _, test in cost[number::workers]]
            names = {
                _write(folder, f"{number}-{at}", test, rules, job): test["name"]
                for at, test in enumerate(mine)
            }
            return (
                _outcomes(promtool.call(program, ["test", "rules", *names], folder), names) if names else []
            )

        with ThreadPoolExecutor(max_workers=workers) as pool:
            different = tuple(outcome for part in pool.map(play, range(workers)) for outcome in part)
    checks = sum(
        len(test.get("alert_rule_test", ())) + len(test.get("promql_expr_test", ())) for test in kept
    )
    silent = tuple(_silent((a for a in rules.alerts if a["alert"] in changed), reference, kept, different))
    return Verdict(len(tests), checks, different, frozenset(changed), frozenset(asked - here), silent)


def _silent(
    alerts: Iterable[Document], reference: Rules, tests: Iterable[Document], different: Iterable[Outcome]
) -> Iterator[Silent]:
    """Those of the alerts that fire nowhere, though scenarios expect it."""
    came = {
        (each.scenario, each.alert, expression.seconds(each.time)): each.fired
        for each in different
        if each.alert
    }
    expected: dict[tuple[str, str], set[str]] = {}
    firing: set[tuple[str, str]] = set()
    for test in tests:
        for check in test["alert_rule_test"]:
            name = check["alertname"]
            wanted = {alert["exp_labels"]["severity"] for alert in check["exp_alerts"]}
            for severity in wanted:
                expected.setdefault((name, severity), set()).add(test["name"])
            at = test["name"], name, expression.seconds(check["eval_time"])
            firing.update((name, severity) for severity in came.get(at, wanted))
    for alert in alerts:
        name, severity = key = alert["alert"], alert["labels"].get("severity", "")
        if key in expected.keys() - firing:
            changes = tuple(_changes(alert, reference))
            yield Silent(name, severity, len(expected[key]), changes)


def _changes(alert: Document, reference: Rules) -> Iterator[str]:
    """What is different about an alert, as its export says."""
    numbers = {found["name"]: found for found in CHANGED.finditer(alert["expr"])}
    for name, found in numbers.items():
        yield f"{name}: {found['value']} (shipped: {found['shipped']})"
    for twin in reference.alerts:
        if (twin["alert"], twin["labels"]) == (alert["alert"], alert["labels"]) and twin["for"] != alert[
            "for"
        ]:
            yield f"for: {alert['for']} (shipped: {twin['for']})"


def _relabelled(rules: Rules, reference: Rules) -> tuple[Rules, set[str]]:
    """The rules with the labels that the scenarios expect, and the names of alerts whose numbers differ.

    Severity, route and further labels are the site's choice and no matter of a scenario. Where a name has two
    severities, the first of the site is the first of ours while both are there.
    """
    alerts, changed = [], set()
    for alert in rules.alerts:
        same = [other for other in rules.alerts if other["alert"] == alert["alert"]]
        ours = [other for other in reference.alerts if other["alert"] == alert["alert"]]
        if len(same) == len(ours):
            twin = ours[same.index(alert)]
        else:
            twin = next((o for o in ours if o["labels"]["severity"] == alert["labels"].get("severity")), {})
        alerts.append({**alert, "labels": twin["labels"]} if twin else alert)
        if not twin or _essence(alert) != _essence(twin):
            changed.add(alert["alert"])
    return msgspec.structs.replace(rules, alerts=tuple(alerts)), changed


def _essence(alert: Document) -> tuple[str, str]:
    """The numbers of an alert and the form of its expression, without whom a site exempts."""
    text = CLAUSE.sub("", MATCHER.sub("", SCRAPE_JOB.sub("up{job=", expression.plain(alert["expr"]))))
    return "".join(text.replace("{}", "").split()), str(alert.get("for", "0m"))


def _kept(test: Document, here: set[str]) -> Document:
    """The scenario without checks of alerts that are not there."""
    checks = [check for check in test.get("alert_rule_test", ()) if check["alertname"] in here]
    return {**test, "alert_rule_test": checks}


def minutes(test: Document) -> int:
    """How long a scenario lasts, times its series: what it costs to play."""
    checks = (*test.get("alert_rule_test", ()), *test.get("promql_expr_test", ()))
    last = max((expression.seconds(check["eval_time"]) for check in checks), default=0)
    return last // 60 * len(test["input_series"])


def _write(folder: Path, name: str, test: Document, rules: Rules, job: str) -> str:
    """One scenario as promtool takes it, with just the rules that it needs."""
    needed = rules.for_alerts(
        (check["alertname"] for check in test["alert_rule_test"]),
        (check["expr"] for check in test.get("promql_expr_test", ())),
    )
    group = {"name": "all", "interval": rules.interval, "rules": needed}
    document = {"rule_files": [f"{name}-rules.yaml"], "evaluation_interval": rules.interval, "tests": [test]}
    text = yaml.dump(document, Dumper=DUMPER, width=10_000)
    if job:
        text = text.replace('job="clusterwatt"', f'job="{job}"').replace("job: clusterwatt", f"job: {job}")
    (folder / f"{name}-rules.yaml").write_text(
        yaml.dump({"groups": [group]}, Dumper=DUMPER), encoding="utf-8"
    )
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return f"{name}.yaml"


def _outcomes(said: tuple[bool, str], names: Mapping[str, str]) -> list[Outcome]:
    """What promtool complains of, by scenario; `names`: of the scenarios, by file."""
    good, text = said
    outcomes = []
    _, *parts = HEAD.split(text)
    for file, block in zip(parts[::2], parts[1::2], strict=True):
        marks = list(CHECK.finditer(block))
        for at, mark in enumerate(marks):
            end = marks[at + 1].start() if at + 1 < len(marks) else len(block)
            told = block[mark.start() : end].split("\n\n")[0].strip()
            outcomes.append(Outcome(names[file], mark["alert"] or "", mark["time"] or "", told))
    if not good and not outcomes:
        raise promtool.PromtoolError(f"promtool cannot play the scenarios:\n{text.strip()}")
    return outcomes


def _yaml(text: str) -> Any:
    return yaml.load(text, LOADER)  # noqa: S506 - both that it can be are safe


def _asked(text: str) -> set[str]:
    return expression.recorded(text)


def _in_order(records: Iterable[Document]) -> Iterator[Document]:
    """Records so that each comes after those that it stands on, else in the order they had."""
    waiting = list(records)
    names = {record["record"] for record in waiting}
    done: set[str] = set()
    while waiting:
        ready = next((r for r in waiting if _asked(r["expr"]) & names <= done), None)
        if ready is None:
            raise ScenarioError("records stand on each other in a ring")
        waiting.remove(ready)
        done.add(ready["record"])
        yield ready
