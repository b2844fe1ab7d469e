"""What a board is made of: queries, panels, variables, events. None of it knows how Grafana writes it down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dashboards.colours import Steps

Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """A query and how what it yields is shown. `name`: legend, or title of the column.

    `steps`: thresholds. `many`: it yields several lines, which get shades of one colour. `axis`: on the right.
    `absent`: what stands where there is no value. `bar`: a bar in the cell, of 0 to 1.
    `band`: name of the line to which the space below is filled.
    """

    expression: str
    name: str = ""
    unit: str = ""
    steps: Steps = ()
    many: bool = False
    right: bool = False
    absent: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    colour: str = ""
    dashed: bool = False
    decimals: int | None = None
    link: str = ""
    bar: bool = False
    band: str = ""


@dataclass(frozen=True)
class Target:
    """A query as a panel asks it. `instant`: for now alone. `form`: of the answer. `every`: the least step."""

    letter: str
    expression: str
    legend: str
    instant: bool
    form: str = "time_series"
    every: str = ""


@dataclass(frozen=True)
class Panel:
    """A panel without its place. `body` is what its type has beyond queries: options, fieldConfig, ..."""

    kind: str
    title: str
    about: str
    width: int
    height: int
    targets: tuple[Target, ...]
    body: Json
    transformations: tuple[Json, ...] = ()
    links: tuple[Json, ...] = ()
    time_from: str | None = None


Line = Sequence[Panel]  # panels beside each other
Fold = tuple[str, Sequence[Line]]  # a collapsed row


@dataclass(frozen=True)
class Variable:
    """A variable of a board. `every`: All can be chosen, and is at first."""

    name: str
    label: str
    query: str
    regex: str = ""
    every: bool = True
    multi: bool = False
    kind: str = "query"
    on_range: bool = False
    sort: int = 1


@dataclass(frozen=True)
class Annotation:
    """Events that can be shown over the lines. `from_value`: the value is the time, in milliseconds."""

    name: str
    expression: str
    text: str
    colour: str
    on: bool = False
    from_value: bool = False


@dataclass(frozen=True)
class Board:
    """One dashboard: `first` is the first screen, `folds` the rows below it."""

    name: str
    title: str
    about: str
    variables: Sequence[Variable]
    first: Sequence[Line]
    folds: Sequence[Fold]
    annotations: Sequence[Annotation] = ()
    since: str = "now-3h"
    refresh: str = "30s"

    @property
    def uid(self) -> str:
        """What links name it by, the same for ever."""
        return uid(self.name)


def uid(board: str) -> str:
    """The identifier of a board by its short name."""
    return f"cw-{board}"
