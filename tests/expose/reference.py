"""The page as prometheus_client writes it: what our own encoder is held against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics import exposition
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from clusterwatt.catalog import Metric, selector
from clusterwatt.expose.render import NOT_UNICODE
from clusterwatt.readings.base import Reading
from clusterwatt.readings.snapshot import Snapshot


class ReferenceRenderer(Collector):
    """Renders with prometheus_client's families and encoders; knows no limits of size."""

    def __init__(self, catalog: Sequence[Metric], profile: str, families: Mapping[str, bool]) -> None:
        self._catalog = catalog
        self._highest = selector(profile, families)
        self._snapshot = Snapshot(0, 0.0, 0.0, {})

    def render(self, snapshot: Snapshot, *, openmetrics: bool) -> bytes:
        self._snapshot = snapshot
        if openmetrics:
            page: bytes = exposition.generate_latest(self)  # type: ignore[no-untyped-call]  # has no hints
            return page
        return generate_latest(self)

    def collect(self) -> Iterator[Family]:
        for metric in self._catalog:
            highest = self._highest(metric)
            if highest is None:
                continue
            family = _empty(metric)
            seen: set[tuple[str, ...]] = set()
            for reading in self._snapshot.of(metric.reading):
                if metric.level_of(reading) > highest:
                    continue
                if isinstance(family, HistogramMetricFamily):
                    _add_histogram(family, metric, reading, seen)
                    continue
                labels = tuple(NOT_UNICODE.sub("\ufffd", getattr(reading, label)) for label in metric.labels)
                fields = [field for field in (metric.field, metric.count_field) if field]
                values = [getattr(reading, field) for field in fields] or [1.0]
                if labels in seen or not all(map(_finite, values)):
                    continue
                seen.add(labels)
                if isinstance(family, SummaryMetricFamily):
                    family.add_metric(labels, count_value=values[1], sum_value=values[0])
                else:
                    family.add_metric(labels, values[0])
            if family.samples:
                yield family


def _add_histogram(
    family: HistogramMetricFamily, metric: Metric, reading: Reading, seen: set[tuple[str, ...]]
) -> None:
    labels = tuple(NOT_UNICODE.sub("\ufffd", getattr(reading, label)) for label in metric.labels)
    counts, total = getattr(reading, metric.count_field), getattr(reading, metric.field)
    if labels in seen or not all(map(_finite, (*counts, total))):
        return
    seen.add(labels)
    bounds = [*map(floatToGoString, metric.buckets), "+Inf"]
    family.add_metric(labels, buckets=list(zip(bounds, counts, strict=True)), sum_value=total)


def _empty(
    metric: Metric,
) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | SummaryMetricFamily:
    if metric.kind == "histogram":
        return HistogramMetricFamily(metric.full_name, metric.help, labels=metric.labels)
    if metric.kind == "counter":
        return CounterMetricFamily(metric.full_name, metric.help, labels=metric.labels)
    if metric.kind == "summary":
        return SummaryMetricFamily(metric.full_name, metric.help, labels=metric.labels)
    return GaugeMetricFamily(metric.full_name, metric.help, labels=metric.labels)


def _finite(value: float | None) -> bool:
    try:
        return value is not None and isfinite(value)
    except OverflowError:  # a whole number beyond the largest float
        return False
