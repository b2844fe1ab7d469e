"""The rules with the changes of a site, as files for Prometheus or as objects for its operator."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import yaml

from clusterwatt.rules import expression
from clusterwatt.rules.exemptions import EXEMPT_JOBS, MATCHED, OWNED
from clusterwatt.rules.overrides import Change, Exempt, Overrides
from clusterwatt.rules.shipped import BOARDS, PREFIX, RUNBOOKS, Rule, RuleFile

WRITTEN_BY = "# Written by `clusterwatt export rules`"
BY_SITE = "on-by-site"
OFF_FOLDER = "off-by-default"

# These add up accounts and feeds: a node that raises no alerts spends and draws all the same.
SUMS = "money-power"


class RenderError(Exception):
    """A change that cannot be made; the message says which rule and why."""


class Rendered(msgspec.Struct, frozen=True):
    """One file: its path below the folder of the export, and its text."""

    path: str
    text: str


class Effective(msgspec.Struct, frozen=True):
    """One value of a rule: the shipped one and the one in force."""

    rule: str
    severity: str
    name: str
    default: str
    value: str


def render(files: Iterable[RuleFile], overrides: Overrides, *, kubernetes: bool = False) -> list[Rendered]:
    """All files. Raises RenderError."""
    files = tuple(files)
    rendered, by_site = [], []
    for file in files:
        loaded, off = [], []
        for rule in file.rules:
            text = _rule(rule, file, overrides)
            if not rule.is_alert or is_on(rule, file, overrides):
                loaded.append(text)
            else:
                off.append(text)
        if file.on:
            note = "".join(f"  # {name} is switched off\n" for name in _names(off))
            if loaded:
                rendered.append(_file(f"{file.name}.yaml", file.head + note, loaded, overrides))
        else:
            by_site += loaded
            if off:
                rendered.append(_file(f"{OFF_FOLDER}/{file.name}.yaml", file.head, off, overrides))
    if by_site:
        head = f"groups:\n- name: {PREFIX}{BY_SITE}\n  interval: 1m\n  rules:\n"
        rendered.append(_file(f"{BY_SITE}.yaml", head, by_site, overrides))
    _check(files, rendered, overrides)
    return [_as_object(file, overrides) for file in rendered] if kubernetes else rendered


def is_on(rule: Rule, file: RuleFile, overrides: Overrides) -> bool:
    """Whether the rule is loaded: the word on the rule counts before that on its group."""
    said = _change(rule, overrides).enabled
    return said if said is not None else overrides.groups.get(file.name, file.on)


def effective(files: Iterable[RuleFile], overrides: Overrides) -> Iterator[Effective]:
    """Every value that can be changed, with what is in force."""
    for file in files:
        for rule in file.rules:
            if not rule.is_alert:
                continue
            change, values = _change(rule, overrides), values_of(rule, overrides)
            shipped = ("true" if file.on else "false", rule.hold, rule.severity, rule.route)
            now = (
                "true" if is_on(rule, file, overrides) else "false",
                change.hold or rule.hold,
                change.severity or rule.severity,
                change.route or rule.route,
            )
            for name, default, value in zip(
                ("enabled", "for", "severity", "route"), shipped, now, strict=True
            ):
                yield Effective(rule.name, rule.severity, name, default, value)
            for name, default in rule.numbers.items():
                yield Effective(rule.name, rule.severity, name, default, values.get(name, default))


def values_of(rule: Rule, overrides: Overrides) -> dict[str, str]:
    """The numbers of a rule that differ from the shipped ones, with the guards that follow from them."""
    values = dict(_change(rule, overrides).values)
    if "scrape_job" in rule.numbers:
        values["scrape_job"] = overrides.scrape_job
    return expression.with_guards(rule.expression, values, expression.seconds(overrides.interval))


def expression_of(rule: Rule, file: RuleFile, overrides: Overrides) -> str:
    """The expression of an alert with the changes of the site."""
    expr = expression.changed(rule.expression, values_of(rule, overrides))
    change = _change(rule, overrides)
    for kind, (label, series) in MATCHED.items():
        patterns = change.exempt.get(kind, ())
        if not (kind == "nodes" and file.name == SUMS):
            patterns += overrides.exempt.get(kind, ())
        if patterns:
            expr = expression.with_matcher(expr, series, label, "|".join(patterns))
    clauses = "".join(_unless(_both(change.exempt, overrides.exempt)))
    # A function, because a backslash in the text would mean something to `sub`.
    return EXEMPT_JOBS.sub(lambda found: found[0] + clauses, expr)


def _rule(rule: Rule, file: RuleFile, overrides: Overrides) -> str:
    if not rule.is_alert:
        return rule.text
    change = _change(rule, overrides)
    expr = expression_of(rule, file, overrides)
    text = rule.text
    if expr != rule.expression:
        start = text.index("    expr: ")
        end = text.index("    for: ")
        block = "".join(f"      {line}\n" for line in expr.splitlines())
        text = f"{text[:start]}    expr: |\n{block}{text[end:]}"
    labels = {"severity": change.severity or rule.severity, "route": change.route or rule.route}
    pairs = [f"{name}: {value}" for name, value in labels.items()]
    pairs += [f"{name}: {json.dumps(value)}" for name, value in overrides.labels.items()]
    text = text.replace(
        f"    for: {rule.hold}\n    labels: {{severity: {rule.severity}, route: {rule.route}}}\n",
        f"    for: {change.hold or rule.hold}\n    labels: {{{', '.join(pairs)}}}\n",
    )
    return text.replace(f'"{RUNBOOKS}/', f'"{overrides.runbooks}/').replace(
        f'"{BOARDS}/', f'"{overrides.boards}/'
    )


def _file(path: str, head: str, rules: list[str], overrides: Overrides) -> Rendered:
    notes = f"{WRITTEN_BY}: change the overrides and export again.\n"
    if overrides.source:
        notes += f"# With the changes in {overrides.source}.\n"
    head = head.replace("  interval: 1m\n", f"  interval: {overrides.interval}\n")
    return Rendered(path, notes + head + "".join(rules))


def _as_object(file: Rendered, overrides: Overrides) -> Rendered:
    """The file as a PrometheusRule; its text is indented, so that comments and blocks come through."""
    notes, groups, rest = file.text.partition("groups:\n")
    stem = file.path.rpartition("/")[2].removesuffix(".yaml")
    lines = [
        "apiVersion: monitoring.coreos.com/v1",
        "kind: PrometheusRule",
        "metadata:",
        f"  name: {PREFIX}{stem}",
    ]
    if overrides.namespace:
        lines.append(f"  namespace: {overrides.namespace}")
    labels = {"app.kubernetes.io/name": "clusterwatt", **overrides.object_labels}
    lines += ["  labels:", *(f"    {name}: {json.dumps(value)}" for name, value in labels.items()), "spec:"]
    body = "".join(f"  {line}\n" for line in (groups + rest).splitlines())
    return Rendered(file.path, notes + "\n".join(lines) + "\n" + body)


def _unless(exempt: Exempt) -> Iterator[str]:
    """Clauses that leave out jobs by what their job_info says, also while they come to their end."""
    for kind, labels in OWNED.items():
        patterns = expression.quoted("|".join(exempt[kind])) if kind in exempt else ""
        for label in labels if patterns else ():
            yield f"\nunless on (job_id) last_over_time(clusterwatt_job_info{{{label}=~{patterns}}}[15m])"


def _both(first: Exempt, second: Exempt) -> dict[str, tuple[str, ...]]:
    return {kind: first.get(kind, ()) + second.get(kind, ()) for kind in {**first, **second}}


def _change(rule: Rule, overrides: Overrides) -> Change:
    return overrides.rules.get((rule.name, rule.severity), Change())


def _names(texts: Iterable[str]) -> list[str]:
    return [re.findall(r"- alert: (\S+)", text)[0] for text in texts]


def _check(files: tuple[RuleFile, ...], rendered: Iterable[Rendered], overrides: Overrides) -> None:
    """Compare what YAML reads in the files with what was asked for. Raises RenderError."""
    documents = [yaml.safe_load(file.text) for file in rendered]
    rules = [rule for document in documents for group in document["groups"] for rule in group["rules"]]
    records = {rule["record"] for rule in rules if "record" in rule}
    for rule in rules:
        missing = expression.recorded(rule["expr"]) - records
        if missing:
            name = rule.get("alert") or rule["record"]
            raise RenderError(f"{name}: nothing records {', '.join(sorted(missing))}")
    alerts = [_essence(rule) for rule in rules if "alert" in rule]
    for file in files:
        for shipped in file.rules:
            if not shipped.is_alert or (file.on and not is_on(shipped, file, overrides)):
                continue
            if _asked_for(shipped, file, overrides) not in alerts:
                raise RenderError(f"{shipped.name}: the change did not come through; please report it")


def _asked_for(rule: Rule, file: RuleFile, overrides: Overrides) -> dict[str, Any]:
    change = _change(rule, overrides)
    labels = {"severity": change.severity or rule.severity, "route": change.route or rule.route}
    return {
        "alert": rule.name,
        "expr": expression_of(rule, file, overrides),
        "for": change.hold or rule.hold,
        "labels": {**labels, **overrides.labels},
    }


def _essence(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule as YAML has it, without its texts."""
    essence = {name: value for name, value in rule.items() if name != "annotations"}
    return {**essence, "expr": rule["expr"].rstrip("\n")}
