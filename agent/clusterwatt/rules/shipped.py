"""The rules as they are shipped: files of YAML that Prometheus reads, and that this reads as text.

Rules are kept as text so that their comments come through. Files are ours, so their form is strict; what is
read out of the text is compared with what a YAML parser reads, so a file of another form is refused, not
misread.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from clusterwatt.rules import expression

FOLDER = Path(__file__).parent / "shipped"
LOADED, OFF, SCENARIOS = FOLDER / "loaded", FOLDER / "off", FOLDER / "scenarios"
PREFIX = "clusterwatt-"  # of the names of groups

RUNBOOKS = "https://github.com/clusterwatt/clusterwatt/blob/main/docs/runbooks"
BOARDS = "http://localhost:3000"

# A rule begins with its comments.
RULE = re.compile(r"^(?:  # .*\n)*  - .*\n(?:    .*\n)*", re.MULTILINE)
BLOCK = re.compile(r"^    expr: \|\n(?P<block>(?:      .*\n)+)", re.MULTILINE)
LINE = re.compile(r"^    expr: (?P<line>[^|\n].*)\n", re.MULTILINE)
HOLD = re.compile(r"^    for: (?P<hold>\S+)\n", re.MULTILINE)
LABELS = re.compile(r"^    labels: \{severity: (?P<severity>\w+), route: (?P<route>\w+)\}\n", re.MULTILINE)


class Rule(msgspec.Struct, frozen=True):
    """One rule. A recording rule has a name and an expression only; `hold` is the `for` of Prometheus."""

    name: str
    text: str
    expression: str
    severity: str = ""
    route: str = ""
    hold: str = ""

    @property
    def is_alert(self) -> bool:
        """Whether it is an alert and not a recording rule."""
        return bool(self.hold)

    @property
    def numbers(self) -> Mapping[str, str]:
        """The values that a site may change, by name."""
        return expression.numbers(self.expression)


class RuleFile(msgspec.Struct, frozen=True):
    """One file, which is one group. `on`: whether its rules are loaded where a site says nothing."""

    name: str
    head: str
    rules: tuple[Rule, ...]
    on: bool

    @property
    def group(self) -> str:
        """The name of the group."""
        return PREFIX + self.name


class RuleFileError(Exception):
    """A file of rules that is not in the form of ours."""


@functools.cache
def files() -> tuple[RuleFile, ...]:
    """All files, those that are on first and the records before what asks for them. Raises RuleFileError."""
    loaded = [read(path, on=True) for path in LOADED.glob("*.yaml")]
    off = [read(path, on=False) for path in OFF.glob("*.yaml")]
    return (*sorted(loaded, key=lambda file: (file.rules[0].is_alert, -len(file.rules), file.name)), *off)


def read(path: Path, *, on: bool) -> RuleFile:
    """One file. Raises RuleFileError."""
    return parsed(path.read_text(encoding="utf-8"), path.stem, on=on)


def parsed(text: str, name: str, *, on: bool) -> RuleFile:
    """One file from its text. Raises RuleFileError."""
    head, start, rest = text.partition("  rules:\n")
    chunks = RULE.findall(rest)
    if "".join(chunks) != rest:
        raise RuleFileError(f"{name}: there is more in it than rules of two, four and six spaces")
    rules = tuple(_rule(chunk) for chunk in chunks)
    expected = {
        "groups": [
            {"name": PREFIX + name, "interval": "1m", "rules": [_as_yaml_has_it(rule) for rule in rules]}
        ]
    }
    document = yaml.safe_load(text)
    for rule in document["groups"][0]["rules"]:
        rule.pop("annotations", None)
        rule["expr"] = rule["expr"].rstrip("\n")
    if document != expected:
        raise RuleFileError(f"{name}: YAML reads it otherwise than it is written")
    return RuleFile(name, head + start, rules, on)


def _rule(text: str) -> Rule:
    kind, name = re.findall(r"^  - (\w+): (\S+)$", text, re.MULTILINE)[0]
    block, line, hold, labels = (pattern.search(text) for pattern in (BLOCK, LINE, HOLD, LABELS))
    if block:
        expr = "\n".join(part[6:] for part in block["block"].splitlines())
    elif line:
        expr = line["line"]
    else:
        raise RuleFileError(f"{name}: no expression")
    if kind == "record":
        return Rule(name, text, expr)
    if hold is None or labels is None:
        raise RuleFileError(f"{name}: an alert has `for` and `labels: {{severity: ..., route: ...}}`")
    try:
        expression.numbers(expr)
    except expression.MarkError as error:
        raise RuleFileError(f"{name}: {error}") from None
    return Rule(name, text, expr, labels["severity"], labels["route"], hold["hold"])


def _as_yaml_has_it(rule: Rule) -> dict[str, Any]:
    if not rule.is_alert:
        return {"record": rule.name, "expr": rule.expression}
    labels = {"severity": rule.severity, "route": rule.route}
    return {"alert": rule.name, "expr": rule.expression, "for": rule.hold, "labels": labels}
