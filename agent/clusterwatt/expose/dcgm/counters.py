"""Which counters stand on the page: a csv file in the format of dcgm-exporter.

Each line holds the name of a DCGM field, its Prometheus type, and a help text. Blank lines and lines that
begin with `#` mean nothing, wherever they stand.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import msgspec

from clusterwatt.config.document import read
from clusterwatt.config.problems import ConfigError, Problem, nearest, shown

SETTING = "expose.dcgm.counters_file"
DEFAULT_FILE = "data/dcgm-counters.csv"
COLUMNS = 3


class Counter(msgspec.Struct, frozen=True):
    """A line of the file. kind: gauge, counter, label."""

    name: str
    kind: str
    help: str


class CounterList(msgspec.Struct, frozen=True):
    """What a file asks for, in its order, and what it asks for in vain, in lines for the operator."""

    counters: tuple[Counter, ...]
    notes: tuple[str, ...] = ()


class Known(msgspec.Struct, frozen=True):
    """The names that there are: fields with a value, fields that are labels, and why others are not here."""

    values: frozenset[str]
    labels: frozenset[str]
    unavailable: Callable[[str], str]


def default_counters(known: Known) -> CounterList:
    """The list that dcgm-exporter has without a file of its own."""
    text = resources.files("clusterwatt").joinpath(DEFAULT_FILE).read_text(encoding="utf-8")
    return _parsed(text, DEFAULT_FILE, known, skip_unknown=False)


def read_counters(path: Path, known: Known, *, skip_unknown: bool) -> CounterList:
    """The counters that a file asks for. Raises ConfigError with everything that is wrong with it."""
    try:
        text = read(path)
    except ConfigError as error:
        raise ConfigError([msgspec.structs.replace(p, path=SETTING) for p in error.problems]) from None
    return _parsed(text, str(path), known, skip_unknown=skip_unknown)


def _parsed(text: str, name: str, known: Known, *, skip_unknown: bool) -> CounterList:
    counters: dict[str, Counter] = {}
    lines: dict[str, int] = {}
    notes: list[str] = []
    problems: list[Problem] = []
    for number, line in _entries(text):
        where = f"{name}:{number}"
        try:
            counter = _counter(line)
            reason = known.unavailable(counter.name)
            if counter.name in lines:
                notes.append(
                    f"{where}: {counter.name} stands on line {lines[counter.name]} already, which counts"
                )
            elif reason:
                notes.append(f"{where}: {counter.name} is left out: {reason}")
            elif counter.name not in known.values | known.labels and skip_unknown:
                notes.append(f"{where}: {counter.name} is left out: unknown here")
            else:
                _check(counter, known)
                counters[counter.name] = counter
            lines.setdefault(counter.name, number)
        except ValueError as error:
            problems.append(Problem(where, SETTING, str(error)))
    if not problems and not any(counter.kind != "label" for counter in counters.values()):
        problems.append(Problem(name, SETTING, "there is no counter in it that could be served"))
    if problems:
        raise ConfigError(problems)
    return CounterList(tuple(counters.values()), tuple(notes))


def _entries(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _counter(line: str) -> Counter:
    """Raises ValueError."""
    try:
        (columns,) = csv.reader([line], strict=True, skipinitialspace=True)
    except csv.Error as error:
        raise ValueError(f"not valid CSV: {error}") from None
    if len(columns) != COLUMNS:
        hint = "; a help text with commas stands in quotes" if len(columns) > COLUMNS else ""
        raise ValueError(f"expected name, type and help, got {len(columns)} columns{hint}")
    name, kind, text = (column.strip() for column in columns)
    return Counter(name, kind, text)


def _check(counter: Counter, known: Known) -> None:
    """Raises ValueError."""
    name = counter.name
    if name in known.labels:
        expected = ["label"]
    elif name in known.values:
        expected = ["gauge", "counter"]
    else:
        meant = nearest(name, known.values | known.labels)
        hint = f"did you mean {meant}?" if meant else "docs/DCGM.md lists what there is"
        raise ValueError(
            f'unknown counter "{shown(name)}"; {hint} (expose.dcgm.skip_unknown leaves such out)'
        )
    if counter.kind not in expected:
        raise ValueError(f'{name}: expected the type {" or ".join(expected)}, got "{shown(counter.kind)}"')
