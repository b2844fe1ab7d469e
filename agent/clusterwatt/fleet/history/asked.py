"""Which families a history needs: those that the expressions of rules and boards name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from clusterwatt.boards.export import FOLDER as BOARDS
from clusterwatt.catalog import PREFIX
from clusterwatt.rules import expression, shipped

# Recorded series have a colon before or behind the name.
FAMILY = re.compile(rf"(?<![\w:]){PREFIX}(\w+)(?![\w:])")
EXPRESSIONS = ("expr", "query", "definition")  # keys of panels, of variables, and of older variables


def by_rules() -> frozenset[str]:
    """Families in the shipped rules, those that are off among them; without the prefix."""
    rules = (rule for file in shipped.files() for rule in file.rules)
    return _families(part for rule in rules for part in (expression.plain(rule.expression), rule.text))


def by_board(name: str) -> frozenset[str]:
    """Families in the expressions of a shipped board."""
    return _families(_expressions(json.loads((BOARDS / f"{name}.json").read_text(encoding="utf-8"))))


def _families(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(name for text in texts for name in FAMILY.findall(text))


def _expressions(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key in EXPRESSIONS and isinstance(value, str):
                yield value
            else:
                yield from _expressions(value)
    elif isinstance(part, list):
        for value in part:
            yield from _expressions(value)
