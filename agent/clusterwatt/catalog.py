"""What a metric is: its name, type, help, labels, level and the reading that holds its value.

Pure declarations, no I/O, no collector. `Table` checks at import that the field and the labels exist in the
reading, so that a slip cannot reach a node. The rules for names are those of the metric contract
(`docs/METRICS.md`); `promtool check metrics` does not know them.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from clusterwatt.readings.base import Reading

PREFIX = "clusterwatt_"

# Prometheus sets these on the target and would rename ours to exported_*.
TARGET_LABELS = frozenset({"job", "instance", "namespace", "pod", "container", "node"})

FOREIGN_UNITS = re.compile(
    r"(?:^|_)(?:ms|milliseconds|us|minutes|hours|kb|mb|gb|kib|mib|gib|bits|kilo\w+|milli\w+|mega\w+|mhz|percent|"
    r"percentage|fahrenheit|kwh|wh)(?:_|$)"
)
PER_KWH = re.compile(r"_per_kwh$")  # prices and intensities are stated per kWh everywhere: the one exception

MAX_ROWS = 4096  # of one table; a node that has more of anything is not what its owner thinks it is

Kind = Literal["counter", "gauge", "info", "summary", "histogram"]


class Level(enum.IntEnum):
    """The smallest series profile that exports a family."""

    CORE = 0
    STANDARD = 1
    FULL = 2


PROFILES: Mapping[str, Level] = {"minimal": Level.CORE, "standard": Level.STANDARD, "full": Level.FULL}

CORE, STANDARD, FULL = Level.CORE, Level.STANDARD, Level.FULL


class LevelBy(msgspec.Struct, frozen=True):
    """A level that depends on a field of the reading: some label values come with a higher profile."""

    field: str
    levels: Mapping[str, Level]

    def of(self, reading: Reading) -> Level:
        """Level of this reading; a value that is not listed comes with `full` only."""
        return self.levels.get(getattr(reading, self.field), Level.FULL)


class Metric(msgspec.Struct, frozen=True):
    """One family. `name` is without the prefix; `level` is the lowest at which any of its series appears.

    `max_rows`: series of the family beyond that number stay off the page and are counted for its `table`.
    `buckets`: of a histogram, the upper bounds, without that of the last one.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    level: Level
    reading: type[Reading]
    field: str
    count_field: str = ""
    by: LevelBy | None = None
    row_level: LevelBy | None = None
    table: str = ""
    max_rows: int = MAX_ROWS
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """The name on the page, with the prefix."""
        return PREFIX + self.name

    def level_of(self, reading: Reading) -> Level:
        """The level at which this reading's series of the family appears."""
        level = self.level if self.by is None else self.by.of(reading)
        return level if self.row_level is None else max(level, self.row_level.of(reading))


class Table:
    """The families whose series are the readings of one type: one row for each reading."""

    def __init__(
        self,
        reading: type[Reading],
        labels: tuple[str, ...] = (),
        *,
        row_level: LevelBy | None = None,
        max_rows: int = MAX_ROWS,
    ) -> None:
        self.reading = reading
        self.labels = labels
        self.row_level = row_level
        self.max_rows = max_rows
        self._fields = {field.name for field in msgspec.structs.fields(reading)}
        for label in labels:
            self._require(label)
            if label in TARGET_LABELS:
                raise ValueError(f"{reading.__name__}: label {label!r} belongs to the scrape target")
        if row_level is not None:
            self._require(row_level.field)

    @property
    def name(self) -> str:
        """Name of the table, for `series_dropped_total`: the reading type in snake case."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.reading.__name__).lower()

    def counter(
        self, name: str, text: str, field: str, level: Level = CORE, by: LevelBy | None = None
    ) -> Metric:
        """Declare a counter; its name ends in `_total`."""
        return self._metric(name, "counter", text, field, level, by)

    def gauge(
        self, name: str, text: str, field: str, level: Level = CORE, by: LevelBy | None = None
    ) -> Metric:
        """Declare a gauge."""
        return self._metric(name, "gauge", text, field, level, by)

    def info(self, name: str, text: str, level: Level = CORE, by: LevelBy | None = None) -> Metric:
        """Declare an identity: the value is always 1, the labels say it all; the name ends in `_info`."""
        return self._metric(name, "info", text, "", level, by)

    def summary(self, name: str, text: str, sum_field: str, count_field: str, level: Level = CORE) -> Metric:
        """Declare a summary without quantiles: `_sum` and `_count`."""
        self._require(count_field)
        return self._metric(name, "summary", text, sum_field, level, None, count_field)

    def histogram(
        self,
        name: str,
        text: str,
        counts_field: str,
        sum_field: str,
        buckets: tuple[float, ...],
        level: Level = CORE,
    ) -> Metric:
        """Declare a histogram with fixed buckets: `_bucket`, `_count` and `_sum`.

        The field of the counts holds a tuple: for each upper bound, in rising order, how many were at most
        so large, and last how many there were at all.
        """
        self._require(counts_field)
        if list(buckets) != sorted(set(buckets)) or not buckets:
            raise ValueError(f"{self.reading.__name__}: the buckets of {name} do not rise")
        metric = self._metric(name, "histogram", text, sum_field, level, None, counts_field)
        return msgspec.structs.replace(metric, buckets=buckets)

    def _require(self, field: str) -> None:
        if field not in self._fields:
            raise ValueError(f"{self.reading.__name__} has no field {field!r}")

    def _metric(
        self,
        name: str,
        kind: Kind,
        text: str,
        field: str,
        level: Level,
        by: LevelBy | None,
        count_field: str = "",
    ) -> Metric:
        if field:
            self._require(field)
        if by is not None:
            self._require(by.field)
            level = min(by.levels.values())
        return Metric(
            name,
            kind,
            text,
            self.labels,
            level,
            self.reading,
            field,
            count_field,
            by,
            self.row_level,
            self.name,
            self.max_rows,
        )


def faults(metrics: Iterable[Metric]) -> Iterator[str]:
    """Everything that breaks the rules for names, one line each; empty when all is well."""
    seen: set[str] = set()
    for metric in metrics:
        name = metric.name
        if name in seen:
            yield f"{name}: declared twice"
        seen.add(name)
        if not re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", name):
            yield f"{name}: not snake case"
        if (metric.kind == "counter") != name.endswith("_total"):
            yield f"{name}: counters, and only counters, end in _total"
        if (metric.kind == "info") != name.endswith("_info"):
            yield f"{name}: identities, and only identities, end in _info"
        if FOREIGN_UNITS.search(PER_KWH.sub("", name)):
            yield f"{name}: not a base unit"
        if not metric.help.endswith("."):
            yield f"{name}: help is not a sentence"
        for label in metric.labels:
            if (
                label in TARGET_LABELS
                or not re.fullmatch(r"[a-z][a-z0-9_]*", label)
                or label.startswith("__")
            ):
                yield f"{name}: label {label!r} is not allowed"


def selector(profile: str, families: Mapping[str, bool]) -> Callable[[Metric], Level | None]:
    """Which levels of a family a profile exports.

    `families` switches single families on (all their series) or off, by name with or without prefix.
    Returns a function: the highest level that goes out for a metric, None for none of it.
    """
    allowed = PROFILES[profile]
    switched = {name.removeprefix(PREFIX): on for name, on in families.items()}

    def highest(metric: Metric) -> Level | None:
        on = switched.get(metric.name)
        if on is not None:
            return Level.FULL if on else None
        return allowed if metric.level <= allowed else None

    return highest
