"""Jobs that a scenario brings along: there from the moment it says, on the GPUs it says, at any hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.config.problems import ConfigError
from clusterwatt.fleet import placed, scenario
from clusterwatt.fleet.placed import PlacedJob
from clusterwatt.fleet.scenario import Fault, Scenario
from clusterwatt.readings.training import TrainingProgress
from clusterwatt.readings.work import GpuAllocated, JobTimes
from clusterwatt.simulate import acts
from clusterwatt.simulate.cluster import Cluster, Lane
from clusterwatt.simulate.market import BUDGETS
from tests.fleet.fleets import NOON_S, Ticking, looped, settings

SIZE = (10, 8, 1)


def cluster(started_s: float, *jobs: PlacedJob) -> Cluster:
    return Cluster(*SIZE, tuple(placed.lanes(jobs, started_s, *SIZE)))


def lane(of: Cluster, name: str) -> Lane:
    (found,) = [lane for lane in of.lanes if lane.kind.name == name]
    return found


def name_of(lane: Lane) -> str:
    job = lane.job(NOON_S)
    return "" if job is None else job.job_id


@pytest.mark.parametrize("hour", range(24))
def test_it_is_there_and_does_the_same_at_every_hour(hour: int) -> None:
    started_s = NOON_S + 3_600.0 * hour + 0.37
    here = hour % 10
    of = cluster(started_s, PlacedJob("forgotten", f"node-{here + 1:04d}", (0, 3), does="idle", ran="2h"))
    forgotten = lane(of, "forgotten")
    ids = set()
    for later_s in (0.0, 1.0, 600.0, 90_000.0):
        job = forgotten.job(started_s + later_s)
        assert job is not None
        ids.add(job.job_id)
        assert job.start_s == pytest.approx(started_s - 7_200.0, abs=1.0)
        assert forgotten.act(started_s + later_s) is acts.HELD
    assert len(ids) == 1
    assert of.lane(here, 0) is of.lane(here, 3) is forgotten
    assert of.tenant(here, 3).signals.busy.integral(started_s + 9e4) == 0.0


def test_the_usual_jobs_do_without_its_gpus_and_are_the_same_elsewhere() -> None:
    usual, with_own = Cluster(*SIZE), cluster(NOON_S, PlacedJob("own", "node-0002..node-0003", gpus=(1, 7)))
    assert lane(with_own, "own").boards == ((1, 1), (1, 7), (2, 1), (2, 7))
    for node in range(10):
        for board in range(8):
            before, now = usual.lane(node, board), with_own.lane(node, board)
            if node in (1, 2) and board in (1, 7):
                assert now is lane(with_own, "own")
            elif before is None:
                assert now is None
            else:
                assert now is not None
                assert name_of(now) == name_of(before)
                assert now.act(NOON_S) is before.act(NOON_S)


def test_it_begins_and_ends_when_the_scenario_says() -> None:
    own = lane(cluster(NOON_S, PlacedJob("own", "node-0001", at="1m", lasts="2m")), "own")
    there = [own.job(NOON_S + at_s) is not None for at_s in (0.0, 59.0, 61.0, 179.0, 181.0)]
    assert there == [False, False, True, True, False]
    ran = lane(cluster(NOON_S, PlacedJob("own", "node-0001", ran="1h", lasts="2m")), "own")
    assert [ran.job(NOON_S + at_s) is not None for at_s in (0.0, 119.0, 121.0)] == [True, True, False]


def test_another_start_is_another_job() -> None:
    jobs = [
        lane(cluster(NOON_S + at_s, PlacedJob("own", "node-0001")), "own").job(NOON_S + 200.0)
        for at_s in (0.0, 120.0)
    ]
    assert len({job.job_id for job in jobs if job is not None}) == 2


@looped
async def test_its_owner_its_steps_and_its_faults_are_on_the_pages(tmp_path: Path) -> None:
    played = Scenario(
        jobs=(
            PlacedJob("idle", "node-0001", gpus=(0, 1), does="idle", user="eve", account="vision", ran="2h"),
            PlacedJob("run", "node-0001", gpus=(2, 3, 4, 5, 6, 7), ran="2h"),
        ),
        faults=(Fault("stall", at="6s", job="run"),),
    )
    ticking = Ticking(settings(1), tmp_path, played)
    node = ticking.fleet.nodes[0]
    await ticking.tick(6)
    held = {(each.gpu, each.user, each.account) for each in node.snapshot.of(GpuAllocated)}
    assert held == {
        *((str(gpu), "eve", "vision") for gpu in (0, 1)),
        *((str(gpu), "demo", "research") for gpu in range(2, 8)),
    }
    for times in node.snapshot.of(JobTimes):
        assert times.start_timestamp_seconds == pytest.approx(NOON_S - 7_200.0, abs=1.1)
    (progress,) = node.snapshot.of(TrainingProgress)
    await ticking.tick(20)
    (stalled,) = node.snapshot.of(TrainingProgress)
    assert (progress.step or 0) > 100
    assert (stalled.step or 0) - (progress.step or 0) <= 1
    await ticking.close()


@looped
async def test_a_gpu_that_a_job_holds_can_be_latched(tmp_path: Path) -> None:
    played = Scenario(
        jobs=(PlacedJob("run", "node-0001", ran="2h"),),
        faults=(Fault("utilization_latched", at="5s", node="node-0001", gpu=3),),
    )
    ticking = Ticking(settings(1), tmp_path, played)
    gpus = ticking.fleet.nodes[0].library.gpus
    later_s = ticking.clock.wall_s() + 60.0
    assert gpus[3].signals.busy.at(later_s) == 1.0
    assert gpus[3].signals.sm.integral(later_s + 60.0) == gpus[3].signals.sm.integral(later_s)
    assert gpus[2].signals.sm.integral(later_s + 60.0) > gpus[2].signals.sm.integral(later_s)
    await ticking.close()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("name: a, node: node-0099", "jobs[0].node: expected node-0001 to node-0010"),
        ("name: a, node: node-0001, gpus: [8]", "jobs[0].gpus: expected GPUs from 0 to 7"),
        (
            "name: a, node: node-0001, gpus: []",
            "jobs[0].gpus: expected GPUs from 0 to 7, each once; all:",
        ),
        ("name: a, node: node-0001, gpus: [0, 0]", "jobs[0].gpus: expected GPUs from 0 to 7, each once"),
        (
            "name: a, node: node-0002..node-0001",
            "jobs[0].node: expected the first of the nodes before",
        ),
        ("name: a, node: node-0001, ran: 999999d", "jobs[0].ran: expected at most 365d"),
        ('name: "", node: node-0001', "jobs[0].name: expected a name"),
        ("name: a, node: node-0001, does: sleep", "jobs[0].does: expected one of idle, train, starve, spin"),
        ("name: a, node: node-0001, kind: cron", "jobs[0].kind: expected one of batch, interactive, service"),
        (
            "name: a, node: node-0001, at: 1m, ran: 1h",
            "jobs[0].ran: a job that starts later (at) has not run",
        ),
        ("name: a, node: node-0001, lasts: long", "jobs[0].lasts: expected a length of time"),
        ("name: pretrain-70b, node: node-0001", "jobs[0].name: expected a name that no other job"),
        (
            "name: a, node: node-0001}\n- {name: b, node: node-0001, gpus: [1]",
            "jobs[1]: a holds some of these GPUs: give each of them to one job",
        ),
        (
            "name: a, node: node-0005..node-0006}\nfaults:\n- {fault: hang, job: finetune-13b",
            "faults[0].job: expected a job of the cluster: a, diffusion-xl",
        ),
    ],
)
def test_mistakes_are_told_with_their_place(lines: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(f"jobs:\n- {{{lines}}}\n")
    with pytest.raises(ConfigError) as raised:
        scenario.load(str(file), Cluster(*SIZE), BUDGETS)
    assert expected in str(raised.value)


def test_its_nodes_are_those_of_one_scheduler(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("jobs:\n- {name: a, node: node-0010..node-0011}\n")
    with pytest.raises(ConfigError, match=r"jobs\[0\]\.node: expected nodes of one scheduler"):
        scenario.load(str(file), Cluster(16, 8, 1), BUDGETS)
