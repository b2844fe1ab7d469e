"""The scrapes that scenarios are turned into are what a Prometheus would have seen."""

from __future__ import annotations

from typing import Any

from tests.rules import scrapes


def scenario(series: str, values: str) -> dict[str, Any]:
    return {"name": "n", "interval": "1m", "input_series": [{"series": series, "values": values}]}


def values(changed: dict[str, Any]) -> list[str]:
    return str(changed["input_series"][0]["values"]).split()


def test_a_counter_moves_evenly_between_two_minutes_and_a_gauge_stands_still() -> None:
    counter = scrapes.resampled(scenario('clusterwatt_x_seconds_total{a="b"}', "0+60x2"), 15)
    assert counter["interval"] == "15s"
    assert values(counter)[:9] == ["0", "15", "30", "45", "60", "75", "90", "105", "120"]
    gauge = scrapes.resampled(scenario("clusterwatt_up", "1x1 0 _ stale"), 30)
    assert values(gauge) == ["1", "1", "1", "1", "0", "0", "_", "_", "stale", "_"]


def test_a_counter_that_falls_falls_at_once() -> None:
    counter = scrapes.resampled(scenario('clusterwatt_x_total{a="b"}', "60 0 60"), 30)
    assert values(counter) == ["60", "60", "0", "30", "60", "60"]


def test_a_missed_scrape_is_no_sample() -> None:
    assert values(scrapes.without(scenario("up", "1x5"), 1, 3)) == ["1", "_", "1", "1", "_", "1"]


def test_after_a_restart_the_agents_counters_begin_anew_and_the_kernels_do_not() -> None:
    ours = scrapes.restarted(scenario('clusterwatt_gpu_busy_seconds_total{a="b"}', "0+60x4"), at=2)
    assert values(ours) == ["0", "60", "_", "60", "120"]
    kernels = scrapes.restarted(scenario('clusterwatt_rdma_link_downed_total{a="b"}', "0+60x4"), at=2)
    assert values(kernels) == ["0", "60", "_", "180", "240"]
