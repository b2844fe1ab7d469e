"""Reports of a cluster from a real Prometheus, whose store holds what two agents' pages would have held."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.report import cluster, commands
from clusterwatt.report.card import Data
from clusterwatt.report.commands import ReportError, Source
from clusterwatt.report.prometheus import Access
from tests.clocks import FakeClock
from tests.e2e import servers

pytestmark = pytest.mark.e2e

BEGIN_S = 1_796_000_400  # 2026-11-30T01:00Z
EVERY_S = 30
HOURS = 27
JOB_FROM_S, JOB_S, LINGERS_S = 1_800, 25 * 3_600, 300
RESET_S = 10 * 3_600  # of one node: its ledger was lost
DOWN_S = (5 * 3_600, 5 * 3_600 + 600)  # one agent did not answer
TRUTH_H = 2 * JOB_S / 3_600


def used(at_s: int, node: int) -> float | None:
    """Seconds that the job has held its GPU on a node, as the page says; None: no series."""
    since_s = at_s - JOB_FROM_S
    if since_s < 0 or since_s > JOB_S + LINGERS_S or (node == 1 and DOWN_S[0] <= at_s < DOWN_S[1]):
        return None
    held_s = min(since_s, JOB_S)
    return float(held_s - RESET_S if node == 0 and held_s >= RESET_S else held_s)


IDENTITY = (
    'scheduler="slurm",name="tr\\"ain",user="ann",account="physics",partition="gpu",queue="",array_job="",'
    'array_task="",k8s_namespace="",k8s_owner="",k8s_owner_kind=""'
)
JOB = 'job_id="slurm/1"'
GPU = 'gpu="0",uuid="GPU-{node}"'
FAMILIES: tuple[tuple[str, str, Callable[[float], float]], ...] = (
    ("job_gpu_seconds_total", JOB, lambda held_s: held_s),
    ("job_idle_gpu_seconds_total", JOB, lambda held_s: held_s / 4),
    ("job_activity_gpu_seconds_total", JOB, lambda held_s: held_s / 2),
    ("job_energy_joules_total", JOB + ',component="gpu",method="counter"', lambda held_s: 600 * held_s),
    ("job_energy_joules_total", JOB + ',component="cpu",method="estimated"', lambda held_s: 100 * held_s),
    ("job_carbon_grams_total", JOB, lambda held_s: held_s / 100),
    ("job_cost_total", JOB + ',currency="EUR",kind="gpu"', lambda held_s: held_s / 1_000),
    ("job_cost_total", JOB + ',currency="EUR",kind="energy"', lambda held_s: held_s / 10_000),
    ("job_idle_cost_total", JOB + ',currency="EUR"', lambda held_s: held_s / 4_000),
    ("job_info", JOB + "," + IDENTITY, lambda _: 1),
    ("job_start_timestamp_seconds", JOB, lambda _: BEGIN_S + JOB_FROM_S),
    (
        "gpu_allocated",
        JOB + "," + GPU + ',user="ann",account="physics",kind="batch",source="slurm"',
        lambda _: 1,
    ),
    ("training_last_event_timestamp_seconds", JOB + ',run="llm-7b"', lambda _: BEGIN_S),
    ("training_tokens_total", JOB + ',run="llm-7b"', lambda held_s: 1e6 * held_s),
    ("training_flops_per_token", JOB + ',run="llm-7b"', lambda _: 4.2e10),
)
ALWAYS: tuple[tuple[str, str, Callable[[float], float]], ...] = (
    ("gpu_info", GPU + ',name="NVIDIA H100 80GB HBM3"', lambda _: 1),
    ("unattributed_energy_joules_total", 'component="gpu"', lambda at_s: 50 * at_s),
    ("gpu_state_seconds_total", GPU + ',state="free"', lambda at_s: at_s),
)


OVER_S = 3_600
# Jobs that use nothing, by node: from when to when their part is shown. On node 0 it is over at OVER_S.
PARTS = {
    "slurm/8": {0: [(0, OVER_S + LINGERS_S), (2 * OVER_S, HOURS * 3_600)]},  # was requeued
    "slurm/9": {0: [(0, OVER_S + LINGERS_S)], 1: [(0, HOURS * 3_600)]},  # is over on one of its nodes
    "slurm/10": {0: [(0, OVER_S + LINGERS_S)]},
}


def parts() -> Iterator[tuple[str, str]]:
    """Families and lines of jobs of which parts are over."""
    for job_id, nodes in PARTS.items():
        for node, spans in nodes.items():
            labels = f'{{instance="n{node}",job="clusterwatt",job_id="{job_id}"}}'
            for at_s in (at_s for from_s, to_s in spans for at_s in range(from_s, to_s + 1, EVERY_S)):
                told = {"job_info": 1, "job_gpu_seconds_total": 0, "job_start_timestamp_seconds": BEGIN_S}
                if node == 0 and OVER_S <= at_s <= OVER_S + LINGERS_S:
                    told["job_end_timestamp_seconds"] = BEGIN_S + OVER_S
                for name, number in told.items():
                    yield name, f"clusterwatt_{name}{labels} {number} {BEGIN_S + at_s}\n"


def open_metrics() -> Iterator[str]:
    """Everything that both nodes' pages said, family by family."""
    families: dict[str, list[str]] = {}
    for name, line in parts():
        families.setdefault(name, []).append(line)
    for at_s in range(0, HOURS * 3_600 + 1, EVERY_S):
        for node in (0, 1):
            held_s = used(at_s, node)
            for name, labels, of in (*(FAMILIES if held_s is not None else ()), *ALWAYS):
                known = at_s if (name, labels, of) in ALWAYS else held_s or 0.0
                labelled = f'{{instance="n{node}",job="clusterwatt",{labels.replace("{node}", str(node))}}}'
                families.setdefault(name, []).append(
                    f"clusterwatt_{name}{labelled} {of(known)} {BEGIN_S + at_s}\n"
                )
    for name, lines in families.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        yield f"# TYPE clusterwatt_{name.removesuffix('_total')} {kind}\n"
        yield from sorted(lines, key=lambda line: line.rsplit(" ", 2)[0])
    yield "# EOF\n"


@pytest.fixture(scope="module")
def server(
    promtool: Path, prometheus_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[servers.Server]:
    folder = tmp_path_factory.mktemp("prometheus")
    told = folder / "told.txt"
    told.write_text("".join(open_metrics()))
    made: list[str | Path] = [promtool, "tsdb", "create-blocks-from", "openmetrics", told, folder / "tsdb"]
    subprocess.run(made, check=True, capture_output=True, timeout=120)
    with servers.prometheus(prometheus_program, folder, {}, 3_600) as running:
        yield running


PERIOD = (float(BEGIN_S), float(BEGIN_S + HOURS * 3_600))


def lines(server: servers.Server, by: cluster.By) -> dict[str, dict[str, object]]:
    source = Source(Path(), Access(server.url))
    document = json.loads(commands.usage(source, *PERIOD, by, "json", SystemClock()))
    return {
        **{line[by]: line for line in document["lines"]},
        "unattributed": document["unattributed"],
        "total": document["total"],
    }


def test_a_job_on_two_nodes_over_a_reset_a_gap_and_more_than_a_day(server: servers.Server) -> None:
    job = lines(server, "job")["slurm/1"]
    near = pytest.approx(TRUTH_H, rel=0.005)
    assert job["gpu_hours"] == near
    assert job["idle_gpu_hours"] == pytest.approx(TRUTH_H / 4, rel=0.005)
    assert job["activity_ratio"] == pytest.approx(0.5, rel=0.005)
    assert job["energy_counter_kwh"] == pytest.approx(TRUTH_H * 0.6, rel=0.005)
    assert job["energy_kwh"] == pytest.approx(TRUTH_H * 0.7, rel=0.005)
    assert job["carbon_kg"] == pytest.approx(TRUTH_H * 0.036, rel=0.005)
    assert job["cost_EUR"] == pytest.approx(TRUTH_H * 3.96, rel=0.005)
    assert job["idle_cost_EUR"] == pytest.approx(TRUTH_H * 0.9, rel=0.005)
    assert (job["name"], job["user"], job["account"]) == ('tr"ain', "ann", "physics")
    assert job["gpus"] == "2 x NVIDIA H100 80GB HBM3"
    assert job["coverage_ratio"] is None  # no series tells


@pytest.mark.parametrize(
    ("by", "key"), [("user", "ann"), ("account", "physics"), ("namespace", ""), ("run", "llm-7b")]
)
def test_sums_close_however_it_is_grouped(server: servers.Server, by: cluster.By, key: str) -> None:
    found = lines(server, by)
    assert found[key]["gpu_hours"] == pytest.approx(TRUTH_H, rel=0.005)
    assert found["unattributed"]["energy_kwh"] == pytest.approx(2 * HOURS * 0.05, rel=0.005)
    assert found["unattributed"]["gpu_hours"] == pytest.approx(2 * HOURS, rel=0.005)
    assert found["total"]["energy_kwh"] == pytest.approx(TRUTH_H * 0.7 + 2 * HOURS * 0.05, rel=0.005)


def test_the_card_of_a_job_knows_its_tokens(server: servers.Server) -> None:
    source = Source(Path(), Access(server.url))
    text = commands.job(source, "slurm/1", "card-json", PERIOD, Data(), SystemClock())
    document = json.loads(text)
    assert document["data"]["tokens"] == pytest.approx(1e6 * JOB_S, rel=0.005)
    assert document["data"]["tokens_of"] == "period"
    assert document["compute"]["flop"] == pytest.approx(4.2e16 * JOB_S, rel=0.005)
    assert document["hardware"]["gpus"] == [{"model": "NVIDIA H100 80GB HBM3", "count": 2}]
    with pytest.raises(ReportError, match="slurm/2 has no series in this period"):
        commands.job(source, "slurm/2", "receipt", PERIOD, Data(), SystemClock())


def test_a_card_of_a_part_of_a_job_has_the_tokens_of_that_part(server: servers.Server) -> None:
    """Tokens of the whole run over the GPU seconds of two hours would be an MFU of more than there is."""
    source = Source(Path(), Access(server.url))
    from_s = BEGIN_S + JOB_FROM_S + 7_200.0
    period = (from_s, from_s + 7_200.0)
    document = json.loads(commands.job(source, "slurm/1", "card-json", period, Data(), SystemClock()))
    assert document["data"]["tokens"] == pytest.approx(7.2e9, rel=0.01)
    text = commands.job(source, "slurm/1", "card", period, Data(), SystemClock())
    assert "| Tokens in the period | " in text


def test_jobs_of_a_cluster_are_those_of_its_last_day(server: servers.Server) -> None:
    source = Source(Path(), Access(server.url))
    while_it_ran = FakeClock(wall_s=BEGIN_S + 20 * 3_600.0)
    text = commands.jobs(source, running=True, limit=5, form="csv", clock=while_it_ran)
    assert text.splitlines()[1].startswith("slurm/1,")
    assert {line.partition(",")[0] for line in text.splitlines()[1:]} == {"slurm/1", "slurm/8", "slurm/9"}
    all_text = commands.jobs(source, running=False, limit=5, form="json", clock=while_it_ran)
    ended = {line["job"]: line["ended"] for line in json.loads(all_text)["lines"]}
    assert [job for job, at in ended.items() if at is not None] == ["slurm/10"]
    long_after = FakeClock(wall_s=BEGIN_S + 60 * 3_600.0)
    assert len(commands.jobs(source, running=False, limit=5, form="csv", clock=long_after).splitlines()) == 1
