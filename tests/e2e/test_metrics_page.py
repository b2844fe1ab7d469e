"""What a scrape of the running agent gets, by the judgement of Prometheus' own tools."""

from __future__ import annotations

import json
import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.servers import Server, agent, prometheus, query, until

pytestmark = pytest.mark.e2e

GPUS = 8
SCRAPES = 5
WITHIN_S = 30.0


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The agent with simulated GPUs and default settings, once all of them are measured."""
    with agent(tmp_path_factory.mktemp("agent"), "--simulate", "h100") as server:
        until(
            lambda: len(server.page().by("gpu", "clusterwatt_gpu_power_watts")) == GPUS, WITHIN_S, "all GPUs"
        )
        yield server


def check_metrics(promtool: Path, page: str) -> str:
    """What `promtool check metrics` has to say about a page; nothing when it is clean."""
    done = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    return f"{done.stdout}{done.stderr}" + ("" if done.returncode == 0 else f"status {done.returncode}")


@pytest.mark.parametrize("profile", ["minimal", "standard", "full"])
def test_promtool_finds_nothing(profile: str, promtool: Path, tmp_path: Path) -> None:
    with agent(tmp_path, "--simulate", "h100", "--set", f"limits.profile={profile}") as server:
        until(lambda: "clusterwatt_gpu_info" in server.page(), WITHIN_S, "GPUs on the page")
        page = server.get("/metrics")
    assert check_metrics(promtool, page) == ""


def test_promtool_would_have_found_something(promtool: Path) -> None:
    assert "counter metrics should have" in check_metrics(promtool, "# HELP x y\n# TYPE x counter\nx 1\n")


def test_simulated_gpus_are_marked_and_the_rest_is_real(ours: Server) -> None:
    page = ours.page()
    marks = {labels["simulated"] for labels, _ in page.series("clusterwatt_gpu_info")}
    assert marks == {"true"}
    assert page.value("clusterwatt_driver_info", simulated="true") == 1
    kib = next(
        int(line.split()[1])
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    assert page.value("clusterwatt_memory_total_bytes") == kib * 1024


def test_without_simulate_no_gpu_is_invented(tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a driver, so GPUs on the page would be real")
    with agent(tmp_path) as server:
        page = server.page()
        assert page.value("clusterwatt_driver_up") == 0
        assert page.value("clusterwatt_gpus_visible") == 0
        assert "clusterwatt_gpu_info" not in page
        assert "clusterwatt_memory_total_bytes" in page


def test_prometheus_takes_every_sample(ours: Server, prometheus_program: Path, tmp_path: Path) -> None:
    with prometheus(prometheus_program, tmp_path, {"ours": ours.url}, every_s=1) as store:
        until(lambda: query(store, f"count_over_time(up[1m]) >= {SCRAPES}"), WITHIN_S, f"{SCRAPES} scrapes")
        assert query(store, "min_over_time(up[1m])") == {"": 1.0}
        assert query(store, "scrape_samples_scraped") == {"": len(ours.page())}
        assert query(store, "scrape_samples_post_metric_relabeling") == {"": len(ours.page())}
        assert query(store, "count(clusterwatt_gpu_up == 1)") == {"": GPUS}
        labels = json.loads(store.get("/api/v1/labels"))["data"]
        assert not [label for label in labels if label.startswith("exported_")], "a label of ours was renamed"


def test_an_unknown_path_is_no_page(ours: Server) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ours.get("/nothing")
