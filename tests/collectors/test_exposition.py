"""The text format as other tools write it: what is accepted, and what would cost the page."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics import parser

from clusterwatt.collectors.exposition import Family, Refused, Sample, parse


def test_a_page_with_every_kind() -> None:
    text = b"""# HELP disk_temp_celsius Temperature \\\\ with a\\nline.
# TYPE disk_temp_celsius gauge
disk_temp_celsius{device="sda"} 31
disk_temp_celsius{ device = "sdb" , } 3.25e+01

# a remark
# TYPE jobs_total counter
jobs_total 5
no_type -.5
# TYPE wait_seconds histogram
wait_seconds_bucket{le="+Inf"} 2
wait_seconds_sum 3
wait_seconds_count 2
# TYPE size summary
size{quantile="0.5"} NaN
size_sum +Inf
size_count 7
# EOF
"""
    assert parse(text) == [
        Family(
            "disk_temp_celsius",
            "gauge",
            "Temperature \\ with a\nline.",
            [
                Sample('disk_temp_celsius{device="sda"}', "31"),
                Sample('disk_temp_celsius{device="sdb"}', "3.25e+01"),
            ],
        ),
        Family("jobs_total", "counter", "", [Sample("jobs_total", "5")]),
        Family("no_type", "untyped", "", [Sample("no_type", "-.5")]),
        Family(
            "wait_seconds",
            "histogram",
            "",
            [
                Sample('wait_seconds_bucket{le="+Inf"}', "2"),
                Sample("wait_seconds_sum", "3"),
                Sample("wait_seconds_count", "2"),
            ],
        ),
        Family(
            "size",
            "summary",
            "",
            [Sample('size{quantile="0.5"}', "NaN"), Sample("size_sum", "+Inf"), Sample("size_count", "7")],
        ),
    ]


def test_nothing_is_a_page() -> None:
    assert parse(b"") == []
    assert parse(b"# HELP x Nothing follows.\n# TYPE x gauge\n") == []


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (r'a="b \"quoted\" \\ \n"', r'a="b \"quoted\" \\ \n"'),
        ('a="}"', 'a="}"'),
        ('a="x,y=\\"z\\"",b=""', 'a="x,y=\\"z\\"",b=""'),
        ('b="2",a="1"', 'a="1",b="2"'),
        ('a="é"', 'a="é"'),
    ],
)
def test_labels_keep_their_escapes(labels: str, kept: str) -> None:
    (family,) = parse(f"x{{{labels}}} 1\n".encode())
    assert family.samples == [Sample(f"x{{{kept}}}", "1")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x 1", "not finished"),
        ("x 1\ny", "not finished"),
        ("x\n", "line 1: neither"),
        ("x one\n", "line 1: 'one' is not a number"),
        ("x 0x10\n", "not a number"),
        ("x 1_000\n", "not a number"),
        ("x 1 1700000000000\n", "timestamps"),
        ("1x 5\n", "neither"),
        ("x-y 5\n", "neither"),
        ("x5\n", "neither"),
        ('x{a="b" 5\n', "neither"),
        ("x{a=b} 5\n", "labels"),
        ('x{a="b\\q"} 5\n', "labels"),
        ('x{a="b"c="d"} 5\n', "labels"),
        ('x{1a="b"} 5\n', "labels"),
        ('x{a="b",a="c"} 5\n', "label a twice"),
        ('x{__name__="y"} 5\n', "__name__ is the name of the metric, not a label"),
        ('x{a="b",c="d"} 5\nx{c="d",a="b"} 6\n', "line 2: .* a second time"),
        ("# TYPE x gauge\n# TYPE x gauge\nx 1\n", "line 2: TYPE of x"),
        ("x 1\n# TYPE x gauge\n", "TYPE of x comes"),
        ("# TYPE x number\nx 1\n", "unknown type 'number'"),
        ("# HELP x A.\n# HELP x B.\nx 1\n", "second HELP"),
        ("# TYPE x histogram\nx 1\n", "histogram x"),
        ("a 1\nclusterwatt_gpu_up 1\n", "line 2: clusterwatt_gpu_up is a name of ours"),
        ("# TYPE clusterwatt_x gauge\n", "a name of ours"),
    ],
)
def test_what_would_cost_the_page_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        parse(text.encode())


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(Refused, match="byte 5 is not UTF-8"):
        parse(b'x{a="\xff"} 1\n')


HEAD = "# TYPE w histogram\n"


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ('w_bucket{le="1"} 1\nw_sum 1\nw_count 1\n', 'line 4: w has no bucket le="+Inf" before its end'),
        ('w_bucket{le="+Inf",a="x"} 1\nw_bucket{le="1",a="y"} 1\n', "line 3: w has no bucket"),
        ("w_sum 1\nw_count 1\n", "line 3: w has no bucket"),
        ('w_bucket 1\nw_bucket{le="+Inf"} 1\n', "line 2: a bucket of w has no number in le"),
        ('w_bucket{le="NaN"} 1\nw_bucket{le="+Inf"} 1\n', "line 2: a bucket of w has no number in le"),
        (
            'w_bucket{le="2"} 1\nw_bucket{le="1"} 1\nw_bucket{le="+Inf"} 1\n',
            "line 3: buckets of w are not in order",
        ),
        ('w_bucket{le="1"} 2\nw_bucket{le="+Inf"} 1\n', "line 3: buckets of w do not grow"),
        ('w_bucket{le="+Inf"} NaN\n', "line 2: buckets of w do not grow"),
        ('w_bucket{le="+Inf"} 2\nw_sum 1\nw_count 1\n', "line 4: w_count is not the bucket"),
        ('w_bucket{le="+Inf"} 2\nw_count 2\n', "line 3: w has one of _sum and _count"),
        (
            'w_bucket{le="+Inf",a="x"} 1\nw_bucket{le="+Inf",a="y"} 1\nw_sum{a="x"} 1\nw_count{a="x"} 1\n',
            "line 4: samples of w with the same labels do not stand together",
        ),
    ],
)
def test_a_histogram_that_costs_the_page_is_refused(samples: str, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        parse((HEAD + samples).encode())
    assert str(refused.value).startswith(reason)
    with pytest.raises((ValueError, KeyError)):
        openmetrics(HEAD + samples)


def test_a_histogram_with_labels_that_look_like_its_own_is_taken() -> None:
    text = (
        HEAD + 'w_bucket{a=",le=",b="",le="-1"} 0\nw_bucket{a=",le=",b="",le="+Inf"} 1\n'
        'w_bucket{b="y",le="+Inf"} 3\nw_sum{b="y"} 1\nw_count{b="y"} 3\n'
    )
    assert len(parse(text.encode())[0].samples) == 5
    openmetrics(text)


def openmetrics(text: str) -> None:
    """Read as the strictest reader of a page would."""
    list(parser.text_string_to_metric_families(text + "# EOF\n"))  # type: ignore[no-untyped-call]  # has no hints


def test_labels_of_the_target_pass() -> None:
    """A tool's file may have them; Prometheus renames them to exported_*, unless honor_labels is set."""
    (family,) = parse(b'x{job="a",instance="b"} 1\n')
    assert family.samples == [Sample('x{instance="b",job="a"}', "1")]
