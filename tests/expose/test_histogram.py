"""Histograms on the page, byte for byte as prometheus_client writes them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.catalog import Metric, Table, faults
from clusterwatt.expose.render import Renderer
from clusterwatt.readings.base import Reading
from clusterwatt.readings.snapshot import Snapshot
from tests.expose.reference import ReferenceRenderer

BUCKETS = (0.0001, 0.25, 1.0, 2_500_000.0, 1e20)


class Durations(Reading, frozen=True):
    """A histogram with labels on either side of `le` in the order of the alphabet."""

    call: str
    unit: str
    counts: tuple[float | None, ...]
    sum_seconds: float | None


FAMILIES: dict[tuple[str, ...], Metric] = {
    labels: Table(Durations, labels).histogram("x_seconds", "Time it took.", "counts", "sum_seconds", BUCKETS)
    for labels in ((), ("call",), ("unit",), ("call", "unit"), ("unit", "call"))
}


def both(labels: tuple[str, ...], *readings: Durations) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    catalog, snapshot = (FAMILIES[labels],), Snapshot(1, 0.0, 0.0, {Durations: readings})
    ours, theirs = Renderer(catalog, "full", {}, 10_000), ReferenceRenderer(catalog, "full", {})
    return (
        (ours.render(snapshot, openmetrics=False).body, ours.render(snapshot, openmetrics=True).body),
        (theirs.render(snapshot, openmetrics=False), theirs.render(snapshot, openmetrics=True)),
    )


NAMES = st.text(st.sampled_from('ab",={} \\\n\u00e9'), max_size=6) | st.sampled_from(['x,unit="', 'unit="'])


@given(
    labels=st.sampled_from(sorted(FAMILIES)),
    rows=st.lists(
        st.tuples(NAMES, NAMES, st.lists(st.integers(0, 10**9), min_size=6, max_size=6), st.floats(0, 1e12)),
        max_size=4,
    ),
)
def test_a_histogram_is_as_prometheus_client_writes_it(
    labels: tuple[str, ...], rows: list[tuple[str, str, list[int], float]]
) -> None:
    readings = [Durations(c, u, tuple(map(float, sorted(n))), total) for c, u, n, total in rows]
    ours, theirs = both(labels, *readings)
    assert ours == theirs


@pytest.mark.parametrize("broken", ["a count", "the sum"])
def test_a_histogram_with_a_gap_is_no_histogram(broken: str) -> None:
    counts: tuple[float | None, ...] = (0.0, 1.0, None if broken == "a count" else 1.0, 1.0, 1.0, 1.0)
    total = math.nan if broken == "the sum" else 1.0
    well = Durations("b", "u", (0.0, 0.0, 0.0, 0.0, 0.0, 1.0), 1.0)
    ours, theirs = both(("call",), Durations("a", "u", counts, total), well)
    assert ours == theirs
    assert b'call="a"' not in ours[0]
    assert b'x_seconds_count{call="b"} 1.0' in ours[0]


def test_a_histogram_counts_with_all_its_series() -> None:
    snapshot = Snapshot(1, 0.0, 0.0, {Durations: (Durations("a", "u", (1.0,) * 6, 1.0),)})
    assert Renderer((FAMILIES[("call",)],), "full", {}, 8).render(snapshot, openmetrics=False).series == 8
    page = Renderer((FAMILIES[("call",)],), "full", {}, 7).render(snapshot, openmetrics=False)
    assert (page.series, dict(page.dropped)) == (0, {"durations": 8})


def test_bounds_rise_and_fields_exist() -> None:
    table = Table(Durations)
    for buckets in ((), (1.0, 1.0), (2.0, 1.0)):
        with pytest.raises(ValueError, match="do not rise"):
            table.histogram("x_seconds", "X.", "counts", "sum_seconds", buckets)
    with pytest.raises(ValueError, match="no field"):
        table.histogram("x_seconds", "X.", "numbers", "sum_seconds", (1.0,))
    assert list(faults(FAMILIES.values()))  # the same name four times over
    assert list(faults([FAMILIES[("call",)]])) == []
