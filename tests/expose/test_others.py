"""Text files of other tools on the page of OpenMetrics: a strict reader takes it, and no series is lost."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, Summary, generate_latest
from prometheus_client.openmetrics import parser

from clusterwatt.collectors.exposition import parse
from clusterwatt.expose.render import Renderer
from clusterwatt.readings.agent import TextFamily
from tests.expose.test_render import series, snapshot


def page(text: str, *, openmetrics: bool = True) -> str:
    families = (
        TextFamily(each.name, each.kind, each.help, tuple(f"{s.series} {s.value}" for s in each.samples))
        for each in parse(text.encode())
    )
    renderer = Renderer((), "full", {}, 10_000)
    return renderer.render(snapshot(*families), openmetrics=openmetrics).body.decode()


def kinds(text: str) -> dict[str, str]:
    families = parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # has no hints
    return {family.name: family.type for family in families}


def test_what_prometheus_client_writes_is_taken_by_its_strict_reader() -> None:
    registry = CollectorRegistry()
    Counter("jobs", 'Jobs "x".', ["queue"], registry=registry).labels("a").inc(3)
    latency = Histogram("latency", "Of calls.", ["call"], registry=registry)
    latency.labels("get").observe(0.2)
    latency.labels("put").observe(3)
    Summary("size", "Of files.", registry=registry).observe(3)
    text = generate_latest(registry).decode()
    assert kinds(page(text))["jobs_total"] == "unknown"
    assert sorted(series(page(text))) == sorted(series(page(text, openmetrics=False)))
    assert "# TYPE jobs_total counter\n" in page(text, openmetrics=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# TYPE a_total counter\na_total 1\n", {"a": "counter"}),
        (
            "# TYPE a counter\na 1\n# TYPE a_total counter\na_total 1\n",
            {"a": "unknown", "a_total": "unknown"},
        ),
        ("# TYPE a gauge\na 1\n# TYPE a_total counter\na_total 1\n", {"a": "gauge", "a_total": "unknown"}),
        ("# TYPE a_total counter\na_total -1\n", {"a_total": "unknown"}),
        ("# TYPE a_total counter\na_total NaN\n", {"a_total": "unknown"}),
        ("# TYPE _total counter\n_total 1\n", {"_total": "unknown"}),
        ('# TYPE a summary\na{quantile="0.5"} NaN\na_sum 1\na_count 1\n', {"a": "summary"}),
        ('# TYPE a summary\na{quantile="2"} 1\n', {"a": "unknown"}),
        ("# TYPE a summary\na 1\n", {"a": "unknown"}),
        (
            '# TYPE a summary\na_sum{x="1"} 1\na_sum{x="2"} 1\na_count{x="1"} 1\na_count{x="2"} 1\n',
            {"a_sum": "unknown", "a_count": "unknown"},
        ),
        (
            '# TYPE a histogram\na_bucket{le="1"} 1.5\na_bucket{le="+Inf"} 2\na_sum 1\na_count 2\n',
            {"a_bucket": "unknown", "a_sum": "unknown", "a_count": "unknown"},
        ),
    ],
)
def test_only_what_openmetrics_cannot_hold_loses_its_type(text: str, expected: dict[str, str]) -> None:
    assert kinds(page(text)) == expected
    assert sorted(series(page(text))) == sorted(series(text))
