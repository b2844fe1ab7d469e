"""The text format as other tools write it: what is accepted, and what would cost the page."""

from __future__ import annotations

import pytest

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
