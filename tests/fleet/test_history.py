"""A history says what the pages of a fleet of the same seed say at the same time, in strict OpenMetrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from clusterwatt.fleet.history import asked
from clusterwatt.fleet.history.backfill import Span, backfill
from clusterwatt.fleet.history.moving import MOVING
from clusterwatt.fleet.history.still import Instant
from clusterwatt.fleet.node import FleetNode, FleetSettings, node_name
from clusterwatt.simulate.cluster import Cluster
from clusterwatt.simulate.runs import Log
from clusterwatt.simulate.troubles import Troubles
from tests.e2e.page import Page

FROM_S = 1_700_049_960
LASTS_S = 660
EVERY_S = 6.0
NODES = 16
SEEN = (0, 8)  # with a run that logs, and with small jobs and a latched GPU

Series = Mapping[tuple[str, str, frozenset[tuple[str, str]]], float]

# The ledger tells of jobs up to 18 s late, and some are two minutes old; states follow a few ticks later.
LATE = 0.15
TOLERANCES = {
    "clusterwatt_job_": LATE,
    "clusterwatt_gpu_state_": LATE,
    "clusterwatt_node_gpu_state_": LATE,
    "clusterwatt_gpu_busy_": 0.01,  # a sampled signal
}
# What a history leaves out, or sees otherwise: ages of readings; the part of the host in energy and money;
# what the board meter, which looks for a second each half minute, makes of work in pulses.
OTHERWISE = ("clusterwatt_collector_age_seconds", "clusterwatt_account_cost_")
HOST = {("component", part) for part in ("cpu", "dram", "other", "platform")}


def settings(nodes: int = NODES, every_s: float = 1.0) -> FleetSettings:
    return FleetSettings(nodes=nodes, gpus=8, profiles=("h100",), seed=1, every_s=every_s, level="standard")


async def pages(folder: Path) -> Series:
    found = {}
    for number in SEEN:
        cluster, clock = Cluster(NODES, 8, 1), Instant(FROM_S)
        logs = [Log(lane) for lane in cluster.on(number) if lane.places[0][0] == number]
        node = FleetNode(
            settings(every_s=EVERY_S), cluster, number, clock, folder, troubles=Troubles(), logs=logs
        )
        for _ in range(int(LASTS_S / EVERY_S) + 1):
            node.tick()
            clock.advance(EVERY_S)
        page = Page((await node.site.page()).body.decode())
        for name in page.names():
            for labels, value in page.series(name):
                found[node.name, name, frozenset(labels.items())] = value
        await node.site.stop()
        node.stop()
    return found


def history(folder: Path) -> Series:
    found = {}
    for written in backfill(settings(), Span(FROM_S, FROM_S + LASTS_S + 1, LASTS_S), folder, healthy=False):
        for family in text_string_to_metric_families(written.path.read_text()):  # type: ignore[no-untyped-call]  # not ours
            for sample in family.samples:
                labels = dict(sample.labels)
                instance, job = labels.pop("instance"), labels.pop("job")
                assert job == "clusterwatt"
                if float(sample.timestamp) == FROM_S + LASTS_S and instance in {node_name(n) for n in SEEN}:
                    found[instance, sample.name, frozenset(labels.items())] = sample.value
    return found


def left_out(key: tuple[str, str, frozenset[tuple[str, str]]]) -> bool:
    _, name, labels = key
    return name.startswith(OTHERWISE) or (bool(HOST & labels) and "energy" in name)


def test_it_says_what_the_pages_of_the_fleet_say(tmp_path: Path) -> None:
    page, past = asyncio.run(pages(tmp_path)), history(tmp_path)
    names = {name for _, name, _ in past}
    lacking = {key for key in page.keys() - past.keys() if key[1] in names and not left_out(key)}
    assert not lacking
    invented = {key for key in past.keys() - page.keys() if key[1] != "up" and not left_out(key)}
    assert not {key for key in invented if ("collector", "training") not in key[2]}
    for key, value in past.items():
        if key in page and not left_out(key):
            tolerance = next((t for name, t in TOLERANCES.items() if key[1].startswith(name)), 1e-5)
            assert value == pytest.approx(
                page[key], rel=tolerance, abs=12.0 if tolerance == LATE else 1e-6
            ), key
    still = {name.removeprefix("clusterwatt_") for name in names} - MOVING
    assert {"gpu_peak_flops", "rdma_port_expected", "account_budget_monthly"} <= still


def test_the_same_seed_gives_the_same_bytes_and_another_gives_others(tmp_path: Path) -> None:
    span = Span(FROM_S, FROM_S + 240, 60)

    def text(name: str, seed: int) -> str:
        of = FleetSettings(nodes=2, gpus=2, profiles=("h100",), seed=seed, every_s=1.0, level="standard")
        return "".join(
            written.path.read_text() for written in backfill(of, span, tmp_path / name, healthy=False)
        )

    first = text("a", 1)
    assert first == text("b", 1)
    assert first != text("c", 2)
    assert first.endswith("# EOF\n")


def test_a_file_holds_a_block_of_prometheus() -> None:
    blocks = list(Span(7_200 - 120, 3 * 7_200, 60).blocks())
    assert [len(times) for times in blocks] == [2, 120, 120]
    assert [times[0] for times in blocks] == [7_080, 7_200, 14_400]


def test_families_are_those_that_rules_and_boards_name() -> None:
    assert {"gpu_state_seconds_total", "job_exempt", "job_info"} <= asked.by_rules()
    assert "gpus_visible" in asked.by_board("cluster")
    assert "disk_read_bytes_total" not in asked.by_rules() | asked.by_board("cluster")
