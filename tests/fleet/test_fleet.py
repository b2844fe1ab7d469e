"""A fleet, ticked by hand: the same series for the same seed, and physics that hold together."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import msgspec
import pytest

from clusterwatt.fleet.scenario import Fault, Scenario
from clusterwatt.readings.gpu_measured import GpuEnergy
from clusterwatt.readings.host import NodeEnergy
from clusterwatt.readings.network import RdmaPort
from clusterwatt.readings.storage import NfsMount
from clusterwatt.readings.training import TrainingProgress
from clusterwatt.readings.work import GpuAllocated, GpuState, JobEnergy, JobInfo
from clusterwatt.simulate.cluster import Cluster, NodeWork
from clusterwatt.simulate.nvml import SimulatedLibrary
from tests.fleet.fleets import NOON_S, Ticking, looped, settings


async def pages(folder: Path, seed: int, ticks: int = 12) -> list[str]:
    ticking = Ticking(settings(1, seed=seed), folder)
    await ticking.tick(ticks)
    bodies = [(await node.site.page()).body.decode() for node in ticking.fleet.nodes]
    await ticking.close()
    return bodies


@looped
async def test_the_same_seed_gives_the_same_series(tmp_path: Path) -> None:
    first, again = await pages(tmp_path / "a", 7), await pages(tmp_path / "b", 7)
    assert first == again
    assert "clusterwatt_gpu_energy_joules_total" in first[0]


@looped
async def test_another_seed_gives_others(tmp_path: Path) -> None:
    assert await pages(tmp_path / "a", 7, 3) != await pages(tmp_path / "b", 8, 3)


@looped
async def test_what_hardware_counts_goes_on_where_a_process_before_stopped(tmp_path: Path) -> None:
    early = Ticking(settings(1), tmp_path / "early")
    await early.tick(20)
    late = Ticking(settings(1), tmp_path / "late", wall_s=NOON_S + 17.0)
    await late.tick(3)
    assert early.fleet.nodes[0].snapshot.wall_s == late.fleet.nodes[0].snapshot.wall_s
    for kind in (RdmaPort, NfsMount, TrainingProgress):
        assert late.fleet.nodes[0].snapshot.of(kind) == early.fleet.nodes[0].snapshot.of(kind)
    await early.close()
    await late.close()


@looped
async def test_energy_is_the_integral_of_power(tmp_path: Path) -> None:
    ticking = Ticking(settings(1), tmp_path)
    gpu = ticking.fleet.nodes[0].library.gpus[0]
    watts = []
    for _ in range(600):
        watts.append(gpu.power_w(ticking.clock.wall_s()))
        ticking.clock.advance(0.1)
    joules = gpu.energy_j(ticking.clock.wall_s()) - gpu.energy_j(NOON_S)
    assert joules == pytest.approx(sum(watts) * 0.1, rel=0.02)
    await ticking.close()


@looped
async def test_the_gpus_of_a_job_move_together_and_the_fabric_carries_their_gradients(tmp_path: Path) -> None:
    ticking = Ticking(settings(4), tmp_path)
    await ticking.tick(3)
    nodes = ticking.fleet.nodes
    jobs = {a.job_id for node in nodes for a in node.snapshot.of(GpuAllocated)}
    assert len(jobs) == 1
    before = {(n.name, p.device): p.transmit_bytes or 0 for n in nodes for p in n.snapshot.of(RdmaPort)}
    steps = nodes[0].snapshot.of(TrainingProgress)[0].step or 0
    await ticking.tick(20, step_s=3.0)
    after = {(n.name, p.device): p.transmit_bytes or 0 for n in nodes for p in n.snapshot.of(RdmaPort)}
    carried = [after[port] - before[port] for port in before]
    done = (nodes[0].snapshot.of(TrainingProgress)[0].step or 0) - steps
    assert done > 15
    assert max(carried) - min(carried) < 10  # what a double leaves of a count of years
    # 0.4 s of each step at 80 % of 50 GB/s.
    assert carried[0] == pytest.approx(done * 0.4 * 0.8 * 50e9, rel=0.1)
    joules = [e.energy_joules for n in nodes for e in n.snapshot.of(GpuEnergy) if e.scope == "gpu"]
    assert max(joules) < 1.1 * min(joules)
    await ticking.close()


@looped
async def test_the_books_of_every_node_close(tmp_path: Path) -> None:
    ticking = Ticking(settings(11), tmp_path)
    await ticking.tick(8)
    for node in ticking.fleet.nodes:
        states = sum(state.energy_joules or 0 for state in node.snapshot.of(GpuState))
        energy = sum(e.energy_joules for e in node.snapshot.of(GpuEnergy) if e.scope == "gpu")
        assert states == pytest.approx(energy, rel=0.05)
    kinds = {info.scheduler for node in ticking.fleet.nodes for info in node.snapshot.of(JobInfo)}
    assert kinds == {"slurm", "kubernetes"}
    assert any(node.snapshot.of(JobEnergy) for node in ticking.fleet.nodes)
    await ticking.close()


def test_a_gpu_that_is_latched_says_100_percent_and_draws_nothing() -> None:
    cluster = Cluster(9, 8, 1)
    library = SimulatedLibrary("h100", 8, 1, lambda: NOON_S, work=NodeWork(cluster, 8))
    assert library.gpus[7].signals.busy.at(NOON_S) == 1.0
    assert library.gpus[7].power_w(NOON_S) < 80


@looped
async def test_a_page_is_rendered_once_for_a_tick(tmp_path: Path) -> None:
    ticking = Ticking(settings(1), tmp_path)
    await ticking.tick(2)
    site = ticking.fleet.nodes[0].site
    first, second = await asyncio.gather(site.page(), site.page())
    assert first is second
    await ticking.close()


@looped
async def test_nodes_may_have_other_models(tmp_path: Path) -> None:
    made_of = msgspec.structs.replace(settings(2), profiles=("h100", "b200"))
    ticking = Ticking(made_of, tmp_path)
    await ticking.tick(2)
    names = [node.library.gpus[0].card.name for node in ticking.fleet.nodes]
    assert [re.findall("[HB][12]00", name) for name in names] == [["H100"], ["B200"]]
    await ticking.close()


@looped
async def test_a_node_has_one_thread_which_makes_its_pages(tmp_path: Path) -> None:
    before = threading.active_count()
    ticking = Ticking(settings(5), tmp_path)
    await ticking.tick(2)
    assert threading.active_count() - before <= 5 + 1
    assert [node.gpus_visible for node in ticking.fleet.nodes] == [8] * 5
    await ticking.close()


@looped
async def test_g05_the_rest_of_a_node_goes_on_when_a_gpu_is_lost(tmp_path: Path) -> None:
    lost = Scenario(faults=(Fault("gpu_lost", "100s", node="node-0001", gpu=1),))
    ticking = Ticking(settings(1, gpus=2), tmp_path, lost)
    node = ticking.fleet.nodes[0]

    def rest() -> list[float]:
        return [e.energy_joules for e in node.snapshot.of(NodeEnergy) if e.component == "other"]

    await ticking.tick(220)  # the BMC is read each half minute
    (before,) = rest()
    await ticking.tick(90)
    (after,) = rest()
    await ticking.close()
    assert after > before > 0
