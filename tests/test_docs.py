"""Documents that are generated are what the generator writes, and every metric has its place in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt import metrics_reference
from clusterwatt.catalog import CORE, FULL, STANDARD, LevelBy, Table
from clusterwatt.inventory import CATALOG
from clusterwatt.readings.gpu import GpuClock
from clusterwatt.readings.network import Bond, NetworkInfo
from clusterwatt.xids import catalogue
from tests.tools import xid_table

DOCS = Path(__file__).parents[1] / "docs"


def test_metrics_md_is_what_the_catalogue_says() -> None:
    committed = (DOCS / "METRICS.md").read_text(encoding="utf-8")
    assert committed == metrics_reference.markdown(CATALOG), "out of date: run `make docs`"


def test_the_codes_of_xids_md_are_those_of_the_catalogue() -> None:
    committed = (DOCS / "XIDS.md").read_text(encoding="utf-8")
    assert committed == xid_table.written(), "out of date: run `make docs`"
    for number, code in catalogue().xids.items():
        if code.name != "legacy":
            assert (
                f"\n| {number} | {code.name} | {code.xid_class} | {code.severity} | `{code.action}` |"
                in committed
            )


@pytest.mark.parametrize("metric", CATALOG, ids=lambda metric: metric.name)
def test_every_metric_is_on_the_page_once(metric) -> None:  # type: ignore[no-untyped-def]  # a parameter of pytest
    page = metrics_reference.markdown(CATALOG)
    assert page.count(f"| `clusterwatt_{metric.name}` |") == 1


def test_a_row() -> None:
    table = Table(GpuClock, labels=("gpu", "domain"))
    by = LevelBy("domain", {"sm": CORE, "memory": STANDARD, "video": FULL})
    page = metrics_reference.markdown([table.gauge("gpu_clock_hertz", "Clock a|b.", "clock_hertz", by=by)])
    assert page.splitlines()[-5:-1] == [
        "## GPUs",
        "",
        "| Name | Type | Level | Labels | Help |",
        "|---|---|---|---|---|",
    ]
    assert page.splitlines()[-1] == (
        r"| `clusterwatt_gpu_clock_hertz` | gauge | core; standard: domain=memory; full: domain=video "
        r"| `gpu`, `domain` | Clock a\|b. |"
    )


def test_rows_that_come_with_a_higher_level_are_named() -> None:
    by = LevelBy("kind", {"physical": CORE, "bond": CORE, "vlan": FULL})
    table = Table(NetworkInfo, labels=("device",), row_level=by)
    page = metrics_reference.markdown([table.info("network_info", "What it is.", STANDARD)])
    assert page.splitlines()[-1] == (
        "| `clusterwatt_network_info` | info | standard; full: kind=vlan | `device` | What it is. |"
    )


def test_a_family_without_an_area_is_refused() -> None:
    metric = Table(Bond, labels=("device",)).gauge("flux_members", "Members.", "members")
    with pytest.raises(ValueError, match="flux_members: no area"):
        metrics_reference.markdown([metric])
