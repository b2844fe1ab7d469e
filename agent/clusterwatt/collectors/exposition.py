"""A strict reader of the text format 0.0.4 that other tools write.

https://prometheus.io/docs/instrumenting/exposition_formats/. What Prometheus would refuse is refused here,
because it would cost the whole page; so are histograms that a reader of OpenMetrics would refuse, and
timestamps, which would outlive their file.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping

import msgspec

from clusterwatt.catalog import PREFIX

Labels = tuple[tuple[str, str], ...]

KINDS = frozenset({"counter", "gauge", "histogram", "summary", "untyped"})
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
COMMENT = re.compile(rf"#[ \t]*(?:(HELP|TYPE)[ \t]+({NAME})(?:[ \t]+(.*))?)?")
SAMPLE = re.compile(rf"({NAME})(?:[ \t]*\{{(.*)\}}[ \t]*|[ \t]+)([^ \t{{}}]+)(?:[ \t]+(\S+))?[ \t]*")
LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\["\\n])*)"[ \t]*(?:,|$)')
VALUE = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|NaN|[+-]?Inf")


class Refused(Exception):
    """A text does not go out; the message says why, and where."""


class Sample(msgspec.Struct, frozen=True):
    """One line: the name with its labels, in one spelling, and the value as it was written."""

    series: str
    value: str


class Family(msgspec.Struct):
    """Samples of one name, or of one histogram or summary. kind: untyped when the text does not say."""

    name: str
    kind: str = ""
    help: str = ""
    samples: list[Sample] = msgspec.field(default_factory=list)


def parse(text: bytes) -> list[Family]:
    """All families that have samples. Raises Refused, with the number of the line."""
    if text and not text.endswith(b"\n"):
        raise Refused("the last line is not finished")
    try:
        lines = text.decode().split("\n")
    except UnicodeDecodeError as error:
        raise Refused(f"byte {error.start} is not UTF-8") from None
    families: dict[str, Family] = {}
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        try:
            if line.startswith("#"):
                _comment(line, families)
            elif line.strip():
                _sample(line, families, seen, number)
        except Refused as error:
            raise Refused(f"line {number}: {error}") from None
    for family in families.values():
        if family.kind == "histogram":
            _check_histogram(family, seen)
    return [
        msgspec.structs.replace(family, kind=family.kind or "untyped")
        for family in families.values()
        if family.samples
    ]


def _comment(line: str, families: dict[str, Family]) -> None:
    found = COMMENT.match(line)
    if found is None or found[1] is None:
        return
    keyword, name, rest = found[1], found[2], found[3] or ""
    _refuse_ours(name)
    family = families.setdefault(name, Family(name))
    if keyword == "HELP":
        if family.help:
            raise Refused(f"a second HELP for {name}")
        family.help = rest.replace(r"\n", "\n").replace(r"\\", "\\")
        return
    kind = rest.strip()
    if kind not in KINDS:
        raise Refused(f"unknown type {kind!r}")
    if family.kind or family.samples:
        raise Refused(f"TYPE of {name} comes a second time, or after its samples")
    family.kind = kind


def _sample(line: str, families: dict[str, Family], seen: dict[str, int], number: int) -> None:
    found = SAMPLE.fullmatch(line)
    if found is None:
        raise Refused("neither a comment nor a sample")
    name, labels, value, timestamp = found.groups()
    _refuse_ours(name)
    if timestamp is not None:
        raise Refused("timestamps are not accepted")
    if not VALUE.fullmatch(value):
        raise Refused(f"{value!r} is not a number")
    series = name
    if pairs := sorted(_labels(labels or "")):
        series += "{" + ",".join(f'{label}="{content}"' for label, content in pairs) + "}"
    if series in seen:
        raise Refused(f"{series} comes a second time")
    seen[series] = number
    owner = _owner(name, families)
    family = families.setdefault(owner, Family(owner))
    if family.kind == "histogram" and owner == name:
        raise Refused(f"the histogram {name} has no sample of that name")
    family.samples.append(Sample(series, value))


def _labels(text: str) -> Iterator[tuple[str, str]]:
    names = set()
    position = 0
    while text[position:].strip(" \t"):
        found = LABEL.match(text, position)
        if found is None:
            raise Refused("labels that cannot be read")
        if found[1] == "__name__":
            raise Refused("__name__ is the name of the metric, not a label")
        if found[1] in names:
            raise Refused(f"label {found[1]} twice")
        names.add(found[1])
        position = found.end()
        yield found[1], found[2]


def _check_histogram(family: Family, lines: Mapping[str, int]) -> None:
    for sample, fault in _faults(family):
        raise Refused(f"line {lines[sample.series]}: {fault}")


def _faults(histogram: Family) -> Iterator[tuple[Sample, str]]:
    """Where the buckets of a set of labels are no cumulative counts up to infinity.

    https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md#histogram
    """
    name = histogram.name
    ended: set[Labels] = set()
    for labels, samples in itertools.groupby(histogram.samples, lambda sample: _split(sample)[1]):
        bound, count = -math.inf, 0.0
        others: dict[str, float] = {}
        for sample in samples:
            if labels in ended:
                yield sample, f"samples of {name} with the same labels do not stand together"
            part, _, le = _split(sample)
            if part != f"{name}_bucket":
                others[part] = float(sample.value)
            elif le == "NaN" or not VALUE.fullmatch(le):
                yield sample, f"a bucket of {name} has no number in le"
            elif float(le) <= bound:
                yield sample, f"buckets of {name} are not in order"
            elif not float(sample.value) >= count:  # NaN is not
                yield sample, f"buckets of {name} do not grow"
            else:
                bound, count = float(le), float(sample.value)
        if bound != math.inf:
            yield sample, f'{name} has no bucket le="+Inf" before its end'
        if len(others) == 1:
            yield sample, f"{name} has one of _sum and _count, without the other"
        if others.get(f"{name}_count", count) != count:
            yield sample, f'{name}_count is not the bucket le="+Inf"'
        ended.add(labels)


def name_and_labels(series: str) -> tuple[str, Labels]:
    """Of a sample in our spelling."""
    name, _, labels = series.partition("{")
    return name, tuple(_labels(labels[:-1]))


def _split(sample: Sample) -> tuple[str, Labels, str]:
    """The name of a sample, its labels without `le`, and `le`; empty when it has none."""
    name, pairs = name_and_labels(sample.series)
    return name, tuple(pair for pair in pairs if pair[0] != "le"), dict(pairs).get("le", "")


def _owner(name: str, families: dict[str, Family]) -> str:
    """The family of a sample: histograms and summaries have samples under longer names."""
    for kind, suffixes in SUFFIXES.items():
        for suffix in suffixes:
            family = families.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if family is not None and family.kind == kind:
                return family.name
    return name


def _refuse_ours(name: str) -> None:
    if name.startswith(PREFIX):
        raise Refused(f"{name} is a name of ours")
