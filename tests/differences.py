"""The tables of docs/NODE_EXPORTER.md, as tests read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from tests.machines import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "NODE_EXPORTER.md"
FAMILY = re.compile(r"`((?:node|process)_[A-Za-z0-9_*]+)`")
KINDS = ("not here", "only here", "value")


def rows(heading: str) -> Iterator[list[str]]:
    """Cells of each row of the tables below a heading of the second level."""
    section = DOCUMENT.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and not set(line) <= set("|-") and cells[1] not in ("Difference", "State"):
            yield cells


class Differences:
    """What may differ between the two pages."""

    def __init__(self) -> None:
        self._kinds: list[tuple[str, str]] = []
        self._labels: list[tuple[str, str]] = []
        for families, difference, _ in rows("What differs"):
            for family in FAMILY.findall(families):
                label = re.fullmatch(r"label `(\w+)`", difference)
                if label:
                    self._labels.append((family, label[1]))
                else:
                    assert difference in KINDS, difference
                    self._kinds.append((family, difference))

    def allow(self, family: str, kind: str) -> bool:
        """Whether the document has this kind of difference of a family."""
        return any(fnmatchcase(family, known) and kind == allowed for known, allowed in self._kinds)

    def labels(self, family: str) -> frozenset[str]:
        """Labels that are not compared."""
        return frozenset(label for known, label in self._labels if fnmatchcase(family, known))
