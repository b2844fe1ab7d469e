"""A snapshot as a page for Prometheus, in the text format 0.0.4 or in OpenMetrics 1.0.

Specified by https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://prometheus.io/docs/specs/om/open_metrics_spec/. Identities are gauges in both formats: as OpenMetrics
`info` their metadata would stand under a name without `_info`, which no query has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from operator import attrgetter
from typing import Any

import msgspec

from clusterwatt.catalog import Level, Metric, selector
from clusterwatt.expose.others import held
from clusterwatt.readings.agent import TextFamily
from clusterwatt.readings.base import Reading
from clusterwatt.readings.snapshot import Snapshot

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

OTHERS = "text_family"  # the table under which dropped series of other tools are counted

EXPONENTS = {digits: f"e+{digits - 1:02d}" for digits in range(7, 17)}
NOT_UNICODE = re.compile("[\ud800-\udfff]")  # os.fsdecode makes these of bytes that are not UTF-8


class Page(msgspec.Struct, frozen=True):
    """A rendered page; how many series it has, and how many were kept off it, by table."""

    body: bytes
    series: int
    dropped: Mapping[str, int]


class Renderer:
    """Renders snapshots with the families of a catalogue, in its order, as far as a profile allows.

    A series is left out when its reading has no value, a value that is not finite, or a level above the
    profile. It is dropped, and counted, when its name and labels are on the page already, when its family has
    `max_rows` rows or the page `max_series` series. What text files of other tools hold comes last, as it is.
    Belongs to one thread: label texts are kept.
    """

    def __init__(
        self, catalog: Sequence[Metric], profile: str, families: Mapping[str, bool], max_series: int
    ) -> None:
        self._max_series = max_series
        self._tables: dict[tuple[type[Reading], tuple[str, ...]], _Rows] = {}
        self._families: list[_Family] = []
        highest = selector(profile, families)
        for metric in catalog:
            level = highest(metric)
            if level is not None:
                table = (metric.reading, metric.labels)
                rows = self._tables.setdefault(table, _Rows(*table))
                self._families.append(_Family(metric, level, rows))
        names = Counter(
            name for family in self._families for name in {sample[0] for sample in family.samples}
        )
        if twice := [name for name, count in names.items() if count > 1]:
            raise ValueError(f"two families have series of one name: {', '.join(twice)}")

    def render(self, snapshot: Snapshot, *, openmetrics: bool) -> Page:
        """The page of one snapshot."""
        for rows in self._tables.values():
            rows.take(snapshot)
        page: list[str] = []
        dropped: Counter[str] = Counter()
        series = 0
        for family in self._families:
            texts = family.texts(self._max_series - series, dropped)
            if texts:
                series += len(texts) * len(family.samples)
                page.append(family.headers[openmetrics])
                page += texts
        others = snapshot.of(TextFamily)
        for other in held(others) if openmetrics else others:
            if series + len(other.samples) > self._max_series:
                dropped[OTHERS] += len(other.samples)
                continue
            series += len(other.samples)
            page.append(headers(other.name, other.kind, other.help)[openmetrics])
            page += (f"{sample}\n" for sample in other.samples)
        if openmetrics:
            page.append("# EOF\n")
        return Page("".join(page).encode(), series, dropped)


class _Rows:
    """The readings of one type, each with the text of its labels.

    Label sets hardly change between two ticks: the texts of the last page are kept, and only those.
    """

    def __init__(self, reading: type[Reading], labels: tuple[str, ...]) -> None:
        self._reading = reading
        self._labels = tuple(sorted(labels))
        self._values_of = attrgetter(*self._labels) if labels else None
        self._known: dict[Any, str] = {}
        self._rows: list[tuple[Reading, str]] = []

    def __iter__(self) -> Iterator[tuple[Reading, str]]:
        return iter(self._rows)

    def take(self, snapshot: Snapshot) -> None:
        """Take the readings of this snapshot."""
        readings = snapshot.of(self._reading)
        if self._values_of is None:
            self._rows = [(reading, " ") for reading in readings]
            return
        known, self._known, self._rows = self._known, {}, []
        for reading in readings:
            values = self._values_of(reading)
            text = self._known[values] = known.get(values) or self._text(values)
            self._rows.append((reading, text))

    def _text(self, values: Any) -> str:
        if len(self._labels) == 1:  # an attrgetter of one name gives no tuple
            values = (values,)
        pairs = (f'{label}="{label_value(value)}"' for label, value in zip(self._labels, values, strict=True))
        return "{" + ",".join(pairs) + "} "


class _Family:
    """One family: its headers, and its series out of the rows of its table."""

    def __init__(self, metric: Metric, highest: Level, rows: _Rows) -> None:
        kind = "gauge" if metric.kind == "info" else metric.kind
        self.headers = headers(metric.full_name, kind, metric.help)
        self.samples = _samples(metric)
        self._metric = metric
        self._after_le = next((label for label in sorted(metric.labels) if label > "le"), "")
        self._one_level = metric.by is None and metric.row_level is None
        self._highest = highest
        self._rows = rows

    def texts(self, room: int, dropped: Counter[str]) -> list[str]:
        """One text for each row that has all samples of the family, as long as `room` series are enough.

        Adds the series that it must leave out to `dropped`.
        """
        level_of = None if self._one_level else self._metric.level_of
        most = min(self._metric.max_rows, room // len(self.samples))
        texts: list[str] = []
        seen: set[str] = set()
        for reading, labels in self._rows:
            if level_of is not None and level_of(reading) > self._highest:
                continue
            text = ""
            for name, bound, value_of in self.samples:
                number = number_text(value_of(reading))
                if number is None:
                    break
                text += f"{name}{_bounded(labels, bound, self._after_le) if bound else labels}{number}\n"
            else:
                if labels in seen or len(seen) >= most:
                    dropped[self._metric.table] += len(self.samples)
                else:
                    seen.add(labels)
                    texts.append(text)
        return texts


def headers(name: str, kind: str, text: str) -> tuple[str, str]:
    """HELP and TYPE of a family, in the text format and in OpenMetrics."""
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    header = f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
    if kind == "untyped" or (kind == "counter" and not name.endswith("_total")):
        kind = "unknown"  # OpenMetrics has no counters without the suffix, and another word for untyped
    bare = name.removesuffix("_total") if kind == "counter" else name
    text = text.replace('"', r"\"")
    return header, f"# HELP {bare} {text}\n# TYPE {bare} {kind}\n"


def _samples(metric: Metric) -> tuple[tuple[str, str, Callable[[Reading], float | None]], ...]:
    """Names on the page, the bounds of buckets, and where their values are."""
    name = metric.full_name
    if metric.kind == "info":
        return ((name, "", lambda _: 1.0),)
    if metric.kind == "summary":
        return (
            (name + "_count", "", attrgetter(metric.count_field)),
            (name + "_sum", "", attrgetter(metric.field)),
        )
    if metric.kind == "histogram":
        bounds = [*(number_text(bound) or "" for bound in metric.buckets), "+Inf"]
        counts = [_entry(metric.count_field, place) for place in range(len(bounds))]
        return (
            *((name + "_bucket", bound, count) for bound, count in zip(bounds, counts, strict=True)),
            (name + "_count", "", counts[-1]),
            (name + "_sum", "", attrgetter(metric.field)),
        )
    return ((name, "", attrgetter(metric.field)),)


def _entry(field: str, place: int) -> Callable[[Reading], float | None]:
    """One entry of a field that holds a tuple."""
    tuple_of = attrgetter(field)
    return lambda reading: tuple_of(reading)[place]


def _bounded(labels: str, bound: str, following: str) -> str:
    """A row's labels with that of a bucket in its place; `following` is the label behind it, if any."""
    le = f'le="{bound}"'
    if not following:
        return f"{{{le}}} " if labels == " " else f"{labels[:-2]},{le}}} "
    if labels.startswith(f'{{{following}="'):
        return f"{{{le},{labels[1:]}"
    # A quote inside a value is escaped: this text can only be the label's own.
    return labels.replace(f',{following}="', f',{le},{following}="', 1)


def label_value(value: str) -> str:
    """The text of a label value between its quotes."""
    text = NOT_UNICODE.sub("\ufffd", value)
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def number_text(value: float | None) -> str | None:
    """The shortest text that gives the number back, with exponent from seven digits on; None: no sample."""
    if value is None:
        return None
    try:
        value = float(value)
    except OverflowError:  # a whole number beyond the largest float
        return None
    if not isfinite(value):
        return None
    text = repr(value)
    if 1e6 <= value < 1e16:
        point = text.index(".")
        return (text[0] + "." + text[1:point] + text[point + 1 :]).rstrip("0.") + EXPONENTS[point]
    return text
