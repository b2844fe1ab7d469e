"""What a site changes about the rules: one YAML file, checked against the rules that there are.

    interval: 30s                        # how often all rules are evaluated
    scrape_job: gpu-nodes                # the job of Prometheus that scrapes the agents
    labels: {team: ml-platform}          # on every alert
    urls: {runbooks: https://..., boards: https://...}
    exempt: {nodes: [login-.*], jobs: [nightly-probe], users: [], accounts: [], mountpoints: [], ports: []}
    groups:
      fabric: {enabled: false}
    rules:
      GpuAllocatedIdle: {idle_ratio: 0.95, window: 2h, for: 10m, severity: info, route: ops}
      GpuThermalSlowdown:                # a name with two severities
        critical: {share_ratio: 0.8}
      TrainingLossDiverging: {enabled: true}
      JobLowGpuUtilization: {exempt: {users: [alice]}}
    prometheusrule: {namespace: monitoring, labels: {release: prometheus}}

Whom to exempt is said in regular expressions of Prometheus, which match the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

from clusterwatt.config.document import TAG, Origin, compose, read
from clusterwatt.config.problems import ConfigError, Problem, nearest, shown
from clusterwatt.config.values import found as what_stands
from clusterwatt.config.values import is_null
from clusterwatt.rules import exemptions, expression, limits
from clusterwatt.rules.shipped import BOARDS, PREFIX, RUNBOOKS, Rule, RuleFile

T = TypeVar("T")

SEVERITIES = ("info", "warning", "critical", "none")
SEVERITY_SET = frozenset(SEVERITIES)
MANY = 20  # names, beyond which they are not listed in a message
ALL_RULES = "`clusterwatt export rules --list` shows all"
ROUTES = ("owner", "ops", "both", "finance", "facility", "deadman", "nobody")
COMMON = ("enabled", "exempt", "for", "route", "severity")
NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
JOB = re.compile(r"[\w./:-]+")
# What the rules and Prometheus set on every alert.
TAKEN = frozenset({"alertname", "instance", "job", "route", "severity"})
FAMILY = re.compile(r"\bclusterwatt_\w+")
# What Python's regular expressions have and those of Prometheus (RE2) have not; escapes and classes pass.
PYTHON_ONLY = re.compile(
    r"(?P<group>\(\?(?:[=!>#(]|<[=!]|P[=>]|[ims-]*[aLux]))|(?P<escape>\\[1-9NUuZ])|(?P<repeat>[*+?}]\+)"
    r"|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|."
)
TEXTS = frozenset({"annotations", "description", "expr", "labels", "summary"})
INTERVAL_S = (10, 120)  # longer, and a window of five minutes holds too little after one miss

Exempt = Mapping[str, tuple[str, ...]]


class Change(msgspec.Struct, frozen=True):
    """What changes about one rule; empty or None: nothing."""

    values: Mapping[str, str] = {}
    severity: str = ""
    route: str = ""
    hold: str = ""
    enabled: bool | None = None
    exempt: Exempt = {}


class Overrides(msgspec.Struct, frozen=True):
    """What changes about all of them. `rules` by name and shipped severity, `groups` by name of the file."""

    source: str = ""
    interval: str = "1m"
    scrape_job: str = "clusterwatt"
    labels: Mapping[str, str] = {}
    runbooks: str = RUNBOOKS
    boards: str = BOARDS
    exempt: Exempt = {}
    groups: Mapping[str, bool] = {}
    rules: Mapping[tuple[str, str], Change] = {}
    namespace: str = ""
    object_labels: Mapping[str, str] = {}


def load(path: Path, files: Iterable[RuleFile], families: Mapping[str, Collection[str]]) -> Overrides:
    """The overrides in a file; `families`: all metrics, with their labels.

    Raises ConfigError with everything that is wrong with it.
    """
    return parse(read(path), str(path), files, families)


def parse(
    text: str, name: str, files: Iterable[RuleFile], families: Mapping[str, Collection[str]] | None = None
) -> Overrides:
    """The same of a text."""
    node = compose(text, Origin(name, has_lines=True))
    reader = _Reader(Origin(name, has_lines=True), files, families or {})
    overrides = reader.top(node) if node is not None else Overrides()
    if reader.problems:
        raise ConfigError([problem for _, problem in sorted(reader.problems, key=lambda each: each[0])])
    return msgspec.structs.replace(overrides, source=Path(name).name)


class _Reader:
    """Reads the nodes, and gathers what is wrong."""

    def __init__(
        self, origin: Origin, files: Iterable[RuleFile], families: Mapping[str, Collection[str]]
    ) -> None:
        self.problems: list[tuple[tuple[int, int], Problem]] = []
        self._origin = origin
        files = tuple(files)
        self._groups = {file.name for file in files}
        self._needed = {file.name for file in files if not any(rule.is_alert for rule in file.rules)}
        self._every_s = expression.seconds(Overrides().interval)
        named = {name for file in files for rule in file.rules for name in FAMILY.findall(rule.expression)}
        # Joins stand on these labels, and they tell the alerts of a rule apart.
        self._taken = TAKEN.union(*(families.get(name, ()) for name in named))
        self._rules: dict[str, dict[str, Rule]] = {}
        self._records: set[str] = set()
        for rule in (rule for file in files for rule in file.rules):
            if rule.is_alert:
                self._rules.setdefault(rule.name, {})[rule.severity] = rule
            else:
                self._records.add(rule.name)

    def top(self, node: yaml.Node) -> Overrides:
        known = ("interval", "scrape_job", "labels", "urls", "exempt", "groups", "rules", "prometheusrule")
        found = self._section(node, "", known, example="{interval: 30s}")
        urls = self._section(found.get("urls"), "urls", ("runbooks", "boards"))
        kubernetes = self._section(found.get("prometheusrule"), "prometheusrule", ("namespace", "labels"))
        default = Overrides()
        interval = self._value(found, "interval", "", self._interval) or default.interval
        self._every_s = expression.seconds(interval)
        return Overrides(
            interval=interval,
            scrape_job=self._value(found, "scrape_job", "", _scrape_job) or default.scrape_job,
            labels=self._labels(found.get("labels"), "labels", self._taken),
            runbooks=self._value(urls, "runbooks", "urls", _url) or default.runbooks,
            boards=self._value(urls, "boards", "urls", _url) or default.boards,
            exempt=self._exempt(found.get("exempt"), "exempt", exemptions.KINDS),
            groups=self._switches(found.get("groups")),
            rules=self._changes(found.get("rules")),
            namespace=self._value(kubernetes, "namespace", "prometheusrule", _dns_label) or "",
            object_labels=self._labels(kubernetes.get("labels"), "prometheusrule.labels", frozenset()),
        )

    def _switches(self, node: yaml.Node | None) -> dict[str, bool]:
        switches = {}
        example = "{fabric: {enabled: false}}"
        for key, value in self._section(node, "groups", self._groups, PREFIX, example).items():
            path = f"groups.{key}"
            section = self._section(value, path, ("enabled",), example="{enabled: false}")
            switch = self._value(section, "enabled", path, _truth)
            if switch is False and key in self._needed:
                self._wrong(value, path, "alerts and boards stand on these records: they stay on")
            elif switch is not None:
                switches[key] = switch
        return switches

    def _changes(self, node: yaml.Node | None) -> dict[tuple[str, str], Change]:
        changes = {}
        for name, value in self._section(node, "rules", self._rules, example="{Name: {for: 10m}}").items():
            variants = self._rules[name]
            path = f"rules.{name}"
            if len(variants) == 1:
                ((severity, rule),) = variants.items()
                changes[name, severity] = self._change(value, path, rule)
                continue
            example = f"{{{min(variants)}: {{for: 10m}}}}"
            parts = self._section(value, path, variants, example=example)
            for severity, part in parts.items():
                changes[name, severity] = self._change(part, f"{path}.{severity}", variants[severity])
            self._two_severities(
                value, path, {each: changes.get((name, each), Change()) for each in variants}
            )
        return changes

    def _two_severities(self, node: yaml.Node, path: str, variants: Mapping[str, Change]) -> None:
        """Alerts of one name and one severity would be the same series twice, which Prometheus refuses."""
        on = [
            change.severity or severity
            for severity, change in variants.items()
            if change.enabled is not False
        ]
        for twice in sorted({severity for severity in on if on.count(severity) > 1}):
            said = f"two rules of this name with severity {twice}: choose another, or switch one off"
            self._wrong(node, path, said)

    def _change(self, node: yaml.Node, path: str, rule: Rule) -> Change:
        numbers = {name: text for name, text in rule.numbers.items() if name != "scrape_job"}
        found = self._section(node, path, (*COMMON, *numbers), example="{enabled: false}")
        changed = {}
        for name in numbers.keys() & found.keys():
            value = self._value(found, name, path, self._like(rule, name, numbers[name]))
            if value is not None:
                changed[name] = value
        for name, said in dict(limits.broken(rule, changed, self._every_s)).items():
            text = f"the rule can never fire: {said}, got {what_stands(found[name])}"
            self._wrong(found[name], f"{path}.{name}", text)
        return Change(
            values=changed,
            severity=self._value(found, "severity", path, _one_of(SEVERITIES)) or "",
            route=self._value(found, "route", path, _one_of(ROUTES)) or "",
            hold=self._value(found, "for", path, _hold) or "",
            enabled=self._value(found, "enabled", path, _truth),
            exempt=self._exempt(found.get("exempt"), f"{path}.exempt", exemptions.kinds_of(rule.expression)),
        )

    def _exempt(
        self, node: yaml.Node | None, path: str, kinds: Collection[str]
    ) -> dict[str, tuple[str, ...]]:
        exempt = {}
        for kind, value in self._section(node, path, kinds, example="{nodes: [login-.*]}").items():
            items = value.value if isinstance(value, yaml.SequenceNode) else [value]
            patterns = [self._scalar(item, f"{path}.{kind}", _pattern) for item in items]
            exempt[kind] = tuple(pattern for pattern in patterns if pattern is not None)
        return {kind: patterns for kind, patterns in exempt.items() if patterns}

    def _labels(self, node: yaml.Node | None, path: str, taken: frozenset[str]) -> dict[str, str]:
        labels = {}
        for name, value in self._section(node, path, None, example="{team: ml-platform}").items():
            if name in taken:
                said = "the rules set this label themselves: choose another name"
                self._wrong(value, f"{path}.{name}", said)
            elif taken and not LABEL.fullmatch(name):
                said = "no name of a label: expected letters, digits and _, no digit first"
                self._wrong(value, f"{path}.{name}", said)
            elif (text := self._scalar(value, f"{path}.{name}", _text)) is not None:
                labels[name] = text
        return labels

    def _section(
        self,
        node: yaml.Node | None,
        path: str,
        known: Collection[str] | None,
        strip: str = "",
        example: str = "",
    ) -> dict[str, yaml.Node]:
        """The entries of a mapping; those that nobody knows are wrong, and the nearest name is told."""
        if node is None or node.tag == TAG + "null":
            return {}
        if not isinstance(node, yaml.MappingNode):
            such = f", as {example}" if example else ""
            self._wrong(node, path, f"expected names with values{such}, got {what_stands(node)}")
            return {}
        found: dict[str, yaml.Node] = {}
        first: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._wrong(key, path, f"expected a name, got {what_stands(key)}")
                continue
            name = str(key.value).removeprefix(strip)
            inner = f"{path}.{shown(name)}".lstrip(".")
            if name in first:
                self._wrong(key, inner, f"given twice, first on line {first[name]}: keep one")
                continue
            first[name] = key.start_mark.line + 1
            if known is None or name in known:
                found[name] = value
            else:
                self._wrong(key, inner, _unknown(name, known))
        return found

    def _value(
        self, found: Mapping[str, yaml.Node], name: str, path: str, convert: Callable[[str], T]
    ) -> T | None:
        node = found.get(name)
        return None if node is None else self._scalar(node, f"{path}.{name}" if path else name, convert)

    def _scalar(self, node: yaml.Node, path: str, convert: Callable[[str], T]) -> T | None:
        if not isinstance(node, yaml.ScalarNode):
            self._wrong(node, path, f"expected one value, got {what_stands(node)}")
            return None
        try:
            return convert("" if is_null(node) else str(node.value))
        except ValueError as error:
            self._wrong(node, path, f"{error}, got {what_stands(node)}")
            return None

    def _like(self, rule: Rule, name: str, default: str) -> Callable[[str], str]:
        """A value of the same kind as the default, of which what it asks for is recorded."""
        convert = _like(name, default)

        def recorded(text: str) -> str:
            value = convert(text)
            asked = expression.recorded(expression.changed(rule.expression, {name: value}))
            for missing in sorted(asked - self._records):
                stem = missing.removesuffix(value)
                there = sorted(
                    (each.removeprefix(stem) for each in self._records if each.startswith(stem)),
                    key=expression.seconds,
                )
                raise ValueError(f"expected {' or '.join(there)}, the windows that are recorded")
            return value

        return recorded

    def _interval(self, text: str) -> str:
        least, most = INTERVAL_S
        if not expression.is_duration(text) or not least <= expression.seconds(text) <= most:
            raise ValueError(f"expected a duration from {least}s to {most}s")
        return text

    def _wrong(self, node: yaml.Node, path: str, text: str) -> None:
        mark = node.start_mark
        self.problems.append(((mark.line, mark.column), Problem(self._origin.at(mark), path, text)))


def _unknown(name: str, known: Collection[str]) -> str:
    names = ", ".join(sorted(known))
    if name in exemptions.KINDS and exemptions.KIND_SET.issuperset(known):
        return f"the rule knows no {name}; it can leave out {names or 'nothing'}"
    if name in TEXTS and "enabled" in known:
        return f"texts, labels and expressions of a rule stay as they are; known here: {names}"
    if near := nearest(name, known):
        return f"unknown; did you mean {near}?"
    if SEVERITY_SET.issuperset(known):
        return f"the rule has several severities: put it below {names}, as {min(known)}: {{{name}: ...}}"
    return f"unknown; known here: {names}" if len(known) < MANY else f"unknown; {ALL_RULES}"


def _like(name: str, default: str) -> Callable[[str], str]:
    """A value of the same kind as the default."""

    def convert(text: str) -> str:
        if expression.is_duration(default):
            if expression.is_duration(text):
                return text
            raise ValueError("expected a duration, as 30m or 1h30m")
        ratio = name.endswith("_ratio")
        if not NUMBER.fullmatch(text) or (ratio and float(text) > 1):
            raise ValueError(f"expected a number from 0{' to 1' if ratio else ''}, as {default}")
        if name in (expression.GUARD, expression.MINUTES) and not text.isdigit():
            raise ValueError("expected a whole number")
        return text

    return convert


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text not in words:
            raise ValueError(f"expected {', '.join(words[:-1])} or {words[-1]}")
        return text

    return convert


def _truth(text: str) -> bool:
    truth = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if text.lower() not in truth:
        raise ValueError("expected true or false")
    return truth[text.lower()]


def _hold(text: str) -> str:
    if not re.fullmatch(rf"0|0[smh]|{expression.DURATION.pattern}", text):
        raise ValueError("expected a duration, as 5m; 0m to fire at once")
    return "0m" if text == "0" else text


def _scrape_job(text: str) -> str:
    if not JOB.fullmatch(text):
        raise ValueError("expected the name of a job, of letters, digits and ./:-_")
    return text


def _dns_label(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text):
        raise ValueError("expected the name of a namespace, of small letters, digits and -")
    return text


def _url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s\"'{}\\]+", text):
        raise ValueError("expected a URL that begins with http:// or https://")
    return text.rstrip("/")


def _text(text: str) -> str:
    if not text or not text.isprintable() or "{{" in text:
        raise ValueError("expected text on one line, without {{")
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from None
    for token in PYTHON_ONLY.finditer(text):
        if token.lastgroup:
            raise ValueError(f"expected a regular expression of Prometheus (RE2), which has no {token[0]}")
    return _text(text)
