"""The catalogue against the contract of metrics, where that is at hand: names, types, labels, levels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest

from clusterwatt.catalog import CORE, FULL, STANDARD, Level, Metric
from clusterwatt.inventory import CATALOG
from tests.machines import REPOSITORY

CONTRACT = REPOSITORY.parent / "shared" / "design" / "metrics.md"
LEVELS = {"core": CORE, "std": STANDARD, "full": FULL}
TYPES = {"C": "counter", "G": "gauge", "S": "summary", "H": "histogram", "G 1": "gauge"}
OF_EVERY_GPU = ("gpu", "uuid")
OF_EVERY_RUN = ("run", "job_id")
NO_LABELS = {"", "-"}


@dataclass(frozen=True)
class Agreed:
    """A family as the contract has it. `levels`: of the values of its labels, where they differ."""

    kind: str
    labels: frozenset[str]
    level: Level
    levels: dict[str, Level]


def expanded(name: str) -> Iterator[str]:
    """`a_{b,c}_d` as a_b_d and a_c_d."""
    parts = re.split(r"\{([^}]*)\}", name)
    for choice in product(*(part.split(",") if number % 2 else [part] for number, part in enumerate(parts))):
        yield "".join(choice)


def for_each(text: str, names: int, separator: str) -> list[str]:
    """What a cell says of each name of its row: one thing for all, or one for each."""
    parts = [part.strip() for part in re.split(separator, text)] if names > 1 else [text.strip()]
    return [text.strip()] * names if len(parts) == 1 or belong_together(parts) else parts


def belong_together(parts: list[str]) -> bool:
    """Whether parts list the values of different labels, each of which all names of the row have."""
    labels = [re.match(r"([a-z]+)=", part) for part in parts]
    return len({label[1] for label in labels if label}) == len(parts)


def labels_of(cell: str, *, info: bool) -> tuple[set[str], dict[str, Level]]:
    """Names of labels, and the level of each value of which it is said. `info:` stands before its own."""
    _, of_info, rest = cell.partition("info:")
    if of_info:
        cell = rest if info else ""
    names: set[str] = set()
    levels: dict[str, Level] = {}
    if cell in NO_LABELS:
        return names, levels
    for part in re.sub(r"\([^)]*\)", "", cell).split(";"):
        said, _, listed = part.strip().rpartition(":")
        level = LEVELS.get(said, CORE)
        in_values = said in LEVELS
        for word in listed.split(","):
            name, equals, value = word.strip().partition("=")
            if equals:
                in_values = True
                names.add(name)
                levels[value] = level
            elif re.fullmatch(r"[a-z0-9_]+", name):
                if in_values:
                    levels[name] = level
                else:
                    names.add(name)
    return names, levels


def contract() -> dict[str, Agreed]:
    """Every family of the tables in sections 1 to 7."""
    families: dict[str, Agreed] = {}
    section = 0
    for line in CONTRACT.read_text().splitlines():
        if heading := re.match(r"## (\d)", line):
            section = int(heading[1])
        cells = [cell.strip() for cell in line.split("|")]
        names = re.findall(r"`([a-z0-9_{},]+)`", cells[1]) if len(cells) > 5 else []
        if not names or section not in range(1, 8):
            continue
        kinds = for_each(cells[2], len(names), r"[,;]")
        levels = for_each(cells[3], len(names), ";")
        labels = for_each(cells[4], len(names), r";(?!\s*(?:std|full):)")
        for name, kind, level, more in zip(names, kinds, levels, labels, strict=False):
            info = name.endswith("_info")
            label_names, value_levels = labels_of(more, info=info)
            if section <= 3 and "no gpu, uuid" not in cells[1]:
                label_names.update(OF_EVERY_GPU)
            if section == 6:
                label_names.update(OF_EVERY_RUN)
            for family in expanded(name):
                agreed = "info" if info else TYPES.get(re.sub(r" 0/1|, in full H", "", kind), kind)
                families[family] = Agreed(agreed, frozenset(label_names), LEVELS[level], value_levels)
    return families


def differences(metric: Metric, agreed: Agreed) -> Iterator[str]:
    if metric.kind != agreed.kind:
        yield f"{metric.name} is a {metric.kind}, agreed is {agreed.kind}"
    if frozenset(metric.labels) != agreed.labels:
        yield f"{metric.name} has labels {sorted(metric.labels)}, agreed is {sorted(agreed.labels)}"
    if metric.level != agreed.level:
        yield f"{metric.name} is {metric.level.name}, agreed is {agreed.level.name}"
    if metric.by is not None:
        for value, level in metric.by.levels.items():
            wanted = max(agreed.level, agreed.levels.get(value, level))
            if level != wanted:
                yield f"{metric.name} with {value} is {level.name}, agreed is {wanted.name}"


@pytest.fixture(scope="module")
def agreed() -> dict[str, Agreed]:
    if not CONTRACT.exists():
        pytest.skip(f"this machine has no contract at {CONTRACT}")
    return contract()


def test_the_contract_is_read(agreed: dict[str, Agreed]) -> None:
    assert agreed["network_receive_bytes_total"] == Agreed("counter", frozenset({"device"}), CORE, {})
    assert agreed["disk_in_flight"] == Agreed("gauge", frozenset({"device"}), FULL, {})
    assert agreed["gpu_throttle_seconds_total"].levels["sw_power_cap"] == STANDARD
    assert agreed["gpu_throttle_seconds_total"].labels == {"gpu", "uuid", "reason"}
    assert len(agreed) > 200


def test_every_family_is_as_agreed(agreed: dict[str, Agreed]) -> None:
    known = [metric for metric in CATALOG if metric.name in agreed]
    assert len(known) > 100
    assert [line for metric in known for line in differences(metric, agreed[metric.name])] == []


def test_every_family_is_in_the_catalogue(agreed: dict[str, Agreed]) -> None:
    assert sorted(agreed.keys() - {metric.name for metric in CATALOG}) == []
