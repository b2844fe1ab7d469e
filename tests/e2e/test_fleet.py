"""A real Prometheus finds the simulated nodes by discovery and takes every sample of them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterwatt.fleet.node import library
from clusterwatt.simulate.cluster import Cluster
from clusterwatt.simulate.gpu import Gpu
from clusterwatt.simulate.node import CPUS
from tests.e2e import servers
from tests.e2e.page import Page
from tests.e2e.servers import Server, answers, prometheus_with, query, ranges, wait_for

pytestmark = pytest.mark.e2e

NODES, GPUS, PROFILE, SEED = 16, 8, "h100", 1
REFUSED = (  # counters of Prometheus for samples and scrapes that it does not take
    "prometheus_target_scrapes_sample_duplicate_timestamp_total",
    "prometheus_target_scrapes_sample_out_of_order_total",
    "prometheus_target_scrapes_sample_out_of_bounds_total",
    "prometheus_target_scrapes_exceeded_body_size_limit_total",
    "prometheus_target_scrapes_exceeded_sample_limit_total",
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made_of = ["--nodes", str(NODES), "--gpus", str(GPUS), "--profile", PROFILE, "--seed", str(SEED)]
    with servers.fleet(tmp_path_factory.mktemp("fleet"), *made_of) as fleet:
        last = f"{fleet.url}/node-{NODES:04d}/metrics"
        wait_for(fleet.process, fleet.log, lambda: answers(last), "the first page of its last node")
        yield fleet


@pytest.fixture(scope="module")
def store(
    fleet: Server, prometheus_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prometheus")
    config = (
        "global: {scrape_interval: 2s, scrape_timeout: 2s}\n"
        "scrape_configs:\n"
        f"- {{job_name: simulated, http_sd_configs: [{{url: '{fleet.url}/sd'}}]}}\n"
    )
    with prometheus_with(prometheus_program, folder, config) as store:
        yield store


def held_to(fleet: Server, store: Server, seconds: float) -> None:
    """Scrapes go on for a while without any error."""
    wait_for(
        store.process,
        store.log,
        lambda: len(query(store, 'up{job="clusterwatt"} == 1', "instance")) == NODES,
        "every node scraped",
    )
    started_s, ticks_before = time.monotonic(), cpu_seconds(fleet)
    time.sleep(seconds)  # the length of the test is what it is about
    window = f"{int(time.monotonic() - started_s)}s"
    used = (cpu_seconds(fleet) - ticks_before) / seconds
    print(f"fleet of {NODES}: {used:.2f} CPU seconds a second, scrapes included")
    worst = query(store, f'min_over_time(up{{job="clusterwatt"}}[{window}])', "instance")
    assert worst == {f"node-{number:04d}": 1.0 for number in range(1, NODES + 1)}
    own = Page(store.get("/metrics"))
    for counter in REFUSED:
        assert all(value == 0 for value in own_values(own, counter)), counter
    assert not [
        line for line in store.log.read_text().splitlines() if "level=ERROR" in line or "level=error" in line
    ]
    fewest = query(store, f"min(count_over_time(clusterwatt_build_info[{window}]))")
    assert fewest[""] > 0.8 * seconds / 2
    falls = query(
        store,
        f'sum(resets({{__name__=~"clusterwatt_(gpu_energy_joules|rdma_transmit_bytes|cpu_seconds)_total"}}[{window}]))',
    )
    assert falls[""] == 0


def own_values(page: Page, name: str) -> list[float]:
    return [float(line.rpartition(" ")[2]) for line in page.text.splitlines() if line.startswith(name)]


def cpu_seconds(server: Server) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_prometheus_takes_every_sample_of_every_node(fleet: Server, store: Server) -> None:
    held_to(fleet, store, 40)
    jobs = query(store, "count by (job_id) (clusterwatt_gpu_allocated)", "job_id")
    assert max(jobs.values()) == 32  # one job on four nodes is one job
    assert query(store, "count(clusterwatt_gpu_up == 1)") == {"": NODES * 8.0}
    assert_energy_is_the_integral_of_the_power(store, 40)


def assert_energy_is_the_integral_of_the_power(store: Server, seconds: int) -> None:
    """Each sample of each GPU lies on the curve that the simulation is made of, at the moment of its tick.

    A scrape shows the tick before it, up to a second old and more on a busy machine, in which a GPU may have
    gone from full power to none: what is compared is the same moment, which CPU time tells to a millisecond.
    """
    until_s = time.time() - 1.0  # no scrape is half told any more
    ticks = moments(store, seconds, until_s)
    energies = ranges(store, f"clusterwatt_gpu_energy_joules_total{{scope='gpu'}}[{seconds}s]", until_s)
    powers = ranges(store, f"clusterwatt_gpu_power_watts{{scope='gpu'}}[{seconds}s]", until_s)
    assert len(energies) == NODES * GPUS
    boards = boards_of_all()
    for labels, samples in energies:
        board, times = boards[labels["uuid"]], ticks[labels["instance"]]
        drawn = [board.energy_j(times[stamp]) for stamp, _ in samples]
        counted = [value for _, value in samples]
        assert [value - counted[0] for value in counted] == pytest.approx(
            [value - drawn[0] for value in drawn], rel=1e-4, abs=0.01
        )
        assert counted[-1] - counted[0] > 0.7 * seconds * board.card.power_idle_w
    assert {labels["kind"] for labels, _ in powers} == {"average", "instant"}
    for labels, samples in powers:
        board, times = boards[labels["uuid"]], ticks[labels["instance"]]
        over_s = {"average": 1.0, "instant": 0.0}[labels["kind"]]
        curve = [board.mean_power_w(times[stamp], over_s) for stamp, _ in samples]
        assert [value for _, value in samples] == pytest.approx(curve, abs=0.01)


def boards_of_all() -> dict[str, Gpu]:
    """The boards of the fleet by UUID, made anew from its seed."""
    cluster = Cluster(NODES, GPUS, SEED)
    drivers = [library(cluster, number, PROFILE, lambda: 0.0) for number in range(NODES)]
    return {gpu.uuid: gpu for driver in drivers for gpu in driver.gpus}


def moments(store: Server, seconds: int, until_s: float) -> dict[str, dict[float, float]]:
    """By node and time of scrape, the moment of the tick that it shows: all CPUs together count the time."""
    booted = query(store, "clusterwatt_boot_timestamp_seconds", "instance")
    counted: defaultdict[str, defaultdict[float, float]] = defaultdict(lambda: defaultdict(float))
    for labels, samples in ranges(store, f"clusterwatt_cpu_seconds_total[{seconds}s]", until_s):
        for stamp, cpu_s in samples:
            counted[labels["instance"]][stamp] += cpu_s / CPUS
    ticks = {
        node: {stamp: round(booted[node] + up_s, 3) for stamp, up_s in of_node.items()}
        for node, of_node in counted.items()
    }
    for of_node in ticks.values():
        assert all(0 <= stamp - tick_s < 10 for stamp, tick_s in of_node.items())
    return ticks


@pytest.mark.scale
def test_and_for_two_minutes(fleet: Server, store: Server) -> None:
    held_to(fleet, store, 120)


def test_a_scenario_that_is_wrong_is_told_in_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("faults:\n- {fault: xid, node: node-0099, gpu: 0, code: 79}\n")
    command = [sys.executable, "-m", "clusterwatt", "simulate", "fleet", "--scenario", str(bad)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert f"{bad}:2:" in ended.stderr
    assert "expected node-0001 to node-0016" in ended.stderr
