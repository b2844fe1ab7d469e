"""VictoriaMetrics beside Prometheus: fed by its remote write, and scraping the agent itself; both agree."""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.servers import Server, agent, answers, free_port, prometheus_with, running, until, wait_for
from tests.tools import apt

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules"
BOARDS = ROOT / "dashboards" / "json"
GATHER_S = 32
BEHIND_S = 5
CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 2s, external_labels: {{}}}}
rule_files: ['{rules}/*.yaml']
remote_write:
  - url: {store}/api/v1/write
    queue_config: {{batch_send_deadline: 500ms}}
scrape_configs:
  - job_name: clusterwatt
    static_configs: [{{targets: ['{target}']}}]
"""
SCRAPE = (
    "scrape_configs: [{{job_name: own, scrape_interval: 1s, static_configs: [{{targets: ['{target}']}}]}}]\n"
)

# Values as they were written: equal to the last digit, apart from sums in another order.
EXACT = (
    "clusterwatt_gpus_visible",
    "count(clusterwatt_gpu_info)",
    "sum by (gpu) (clusterwatt_gpu_memory_used_bytes)",
    "sum(clusterwatt_gpu_energy_joules_total)",
    "max by (gpu) (clusterwatt_gpu_temperature_celsius)",
    "count by (job_id) (clusterwatt_gpu_allocated > 0)",
    "gpu_job:clusterwatt_held:bool",
    "job:clusterwatt_gpus:count",
    "gpu:clusterwatt_power_watts:rate5m",
    "gpu_job:clusterwatt_activity:ratio_rate5m",
    "job:clusterwatt_age:seconds > 0",
    "count(up == 1)",
)
# Rates: Prometheus extrapolates to the ends of the window, VictoriaMetrics takes the sample before it.
RATES = (
    "sum by (gpu) (rate(clusterwatt_gpu_energy_joules_total[20s]))",
    "sum(rate(clusterwatt_gpu_activity_seconds_total[20s]))",
    "sum by (state) (rate(clusterwatt_gpu_state_seconds_total[20s]))",
    "sum(increase(clusterwatt_gpu_energy_joules_total[20s]))",
)
SCRAPE_SHARE = 1 / 20  # of a window, that the two see differently
VARIABLES = {"$__range:1m": "30s:1s", "$__rate_interval": "20s", "$__range": "30s"}
# No query to compare by: it looks back further than the test has run, picks among equals, or is about the
# real machine, whose counters come in bursts that fall into one window and not the other.
APART = re.compile(r"\[\d+[mhdw]|offset|topk|bottomk|clusterwatt_(disk|cpu|ethernet|network|rdma)_\w+_total")


@dataclass(frozen=True)
class Stores:
    """Both of them, and the moment at which they are asked."""

    prometheus: Server
    victoria: Server
    at_s: float

    def both(self, expression: str) -> tuple[dict[str, float], dict[str, float]]:
        """The answers to one query about samples that came by remote write, by labels."""
        return self.answer(self.prometheus, expression), self.answer(self.victoria, expression)

    def answer(self, store: Server, expression: str) -> dict[str, float]:
        """An instant query; nocache: VictoriaMetrics holds back young samples otherwise."""
        asked = urllib.parse.urlencode({"query": expression, "time": f"{self.at_s:.3f}", "nocache": "1"})
        data = json.loads(store.get(f"/api/v1/query?{asked}", timeout_s=30))["data"]
        if data["resultType"] == "scalar":
            return {"": float(data["result"][1])}
        return {_key(row["metric"]): float(row["value"][1]) for row in data["result"]}


def _key(labels: Mapping[str, str]) -> str:
    """VictoriaMetrics keeps the name of a metric in some functions where Prometheus drops it."""
    return json.dumps({name: text for name, text in labels.items() if name != "__name__"}, sort_keys=True)


@pytest.fixture(scope="module")
def stores(prometheus_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """An agent, and a Prometheus with our rules that writes to a VictoriaMetrics, which scrapes it too."""
    program = apt.find("victoria-metrics")
    if program is None:
        pytest.skip("victoria-metrics is not here: `python -m tests.tools.apt victoria-metrics` fetches it")
    folder = tmp_path_factory.mktemp("victoria")
    rules = folder / "rules"
    rules.mkdir()
    for path in RULES.glob("*.yaml"):
        (rules / path.name).write_text(re.sub(r"interval: \d+[sm]", "interval: 2s", path.read_text()))
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(agent(folder, "--simulate", "h100"))
        victoria = stack.enter_context(_victoria(program, folder, node.url.removeprefix("http://")))
        config = CONFIG.format(rules=rules, target=node.url.removeprefix("http://"), store=victoria.url)
        prometheus = stack.enter_context(prometheus_with(prometheus_program, folder, config))
        time.sleep(GATHER_S)  # what a rate needs to be one
        at_s = time.time() - BEHIND_S
        stores = Stores(prometheus, victoria, at_s)
        until(lambda: stores.answer(victoria, "up{job='clusterwatt'}"), 30, "remote write has come so far")
        yield stores


@contextlib.contextmanager
def _victoria(program: Path, folder: Path, target: str) -> Iterator[Server]:
    log, port, config = folder / "victoria.log", free_port(), folder / "scrape.yml"
    config.write_text(SCRAPE.format(target=target))
    command: list[str | Path] = [
        program,
        f"-storageDataPath={folder / 'victoria'}",
        f"-httpListenAddr=127.0.0.1:{port}",
        f"-promscrape.config={config}",
        "-search.latencyOffset=0s",
        "-memory.allowedBytes=256MB",
    ]
    with running(command, log) as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(process, log, lambda: answers(f"{url}/health"), "ready")
        yield Server(process, url, log)


@pytest.mark.parametrize("expression", EXACT)
def test_what_was_written_is_what_is_read(stores: Stores, expression: str) -> None:
    asked = re.sub(r"(?<![\w:])(clusterwatt_\w+|up)(?![\w:])", r'\1{job="clusterwatt"}', expression)
    ours, theirs = stores.both(asked)
    assert ours
    assert theirs.keys() == ours.keys()
    for labels, value in ours.items():
        assert theirs[labels] == pytest.approx(value, rel=1e-9), labels


@pytest.mark.parametrize("expression", RATES)
@pytest.mark.parametrize("job", ["clusterwatt", "own"])
def test_rates_agree_within_a_scrape(stores: Stores, expression: str, job: str) -> None:
    """Samples that VictoriaMetrics scraped itself (job own) say the same as those of Prometheus."""

    def asked(of: str) -> str:
        return re.sub(r"(?<![\w:])(clusterwatt_\w+)(?![\w:])", rf'\1{{job="{of}"}}', expression)

    ours = stores.answer(stores.prometheus, asked("clusterwatt"))
    theirs = stores.answer(stores.victoria, asked(job))
    assert ours
    assert theirs.keys() == ours.keys()
    for labels, value in ours.items():
        assert theirs[labels] == pytest.approx(value, rel=2 * SCRAPE_SHARE, abs=1e-6), labels


def board_queries() -> list[str]:
    """Every query of the boards, with its variables filled in, that needs no more than the test's minute."""
    found: set[str] = set()

    def walk(part: object) -> None:
        if isinstance(part, dict):
            if isinstance(part.get("expr"), str):
                found.add(part["expr"])
            for value in part.values():
                walk(value)
        elif isinstance(part, list):
            for value in part:
                walk(value)

    for path in sorted(BOARDS.glob("*.json")):
        walk(json.loads(path.read_text()))
    return sorted(expression for expression in map(filled, found) if not APART.search(expression))


def filled(expression: str) -> str:
    """A board's query for any node and job, of the samples that came from Prometheus."""
    for name, text in VARIABLES.items():
        expression = expression.replace(name, text)
    anything = re.sub(r'=~?"\$\w+"', '=~".*"', expression)
    return re.sub(r"(?<![\w:])(clusterwatt_\w+)\{", r'\1{job="clusterwatt", ', anything)


def numbers(answer: dict[str, float]) -> dict[str, float]:
    """An answer without what is no number: VictoriaMetrics leaves it out."""
    return {labels: value for labels, value in answer.items() if not math.isnan(value)}


def test_boards_read_the_same(stores: Stores) -> None:
    """The queries of our boards: the same series, values within what a rate may differ."""
    queries = board_queries()
    assert len(queries) > 100
    answered, wrong = 0, []
    for expression in queries:
        ours, theirs = map(numbers, stores.both(expression))
        answered += bool(ours)
        if ours.keys() != theirs.keys():
            wrong.append(f"other series: {expression}: {len(ours)} and {len(theirs)}")
            continue
        apart = {
            labels: (value, theirs[labels])
            for labels, value in ours.items()
            if not math.isclose(value, theirs[labels], rel_tol=4 * SCRAPE_SHARE, abs_tol=1e-3)
        }
        if apart:
            wrong.append(f"other values: {expression}: {list(apart.values())[:3]}")
    assert answered > 50
    assert not wrong, "\n".join(wrong)
