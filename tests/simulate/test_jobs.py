"""Simulated jobs against the simulated driver: who holds what, and what their processes do there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from clusterwatt.attribution.holders import Holders
from clusterwatt.attribution.memory import memory_by_job
from clusterwatt.config.model import Simulate
from clusterwatt.driver.frames import HostSettings
from clusterwatt.driver.host import Host
from clusterwatt.nvml.session import Session
from clusterwatt.readings.base import ByType, Reading, by_type
from clusterwatt.readings.gpu import GpuInfo, GpuProcess
from clusterwatt.readings.gpu_measured import GpuUp
from clusterwatt.readings.work import (
    Claim,
    GpuAllocated,
    GpuJobMemory,
    Job,
    JobHostUse,
    JobMember,
    JobPod,
    ProcessOwner,
    Scheduler,
    SchedulerGpus,
)
from clusterwatt.simulate.jobs import JOB_SECONDS, SimulatedJobs
from clusterwatt.simulate.nvml import SimulatedLibrary, install
from clusterwatt.simulate.work import SlicedNode, TrainingNode
from tests.clocks import FakeClock
from tests.makers import maker

PATIENT_S = 60.0


class Node:
    """A simulated driver, as the driver host reads it, and the jobs on it."""

    def __init__(
        self,
        profile: str = "h100",
        gpus: int = 8,
        *,
        seed: int = 3,
        sliced: bool = False,
        mig: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        self.clock = FakeClock()
        work = SlicedNode(gpus, seed) if sliced else TrainingNode(gpus, seed)
        self.library = SimulatedLibrary(profile, gpus, seed, self.clock.wall_s, work=work)
        install(self.library)
        for board, profiles in (mig or {}).items():
            self.library.configure_mig(board, profiles)
        settings = Simulate(profile="h100", gpus=gpus, seed=seed)
        self.jobs = SimulatedJobs(settings, self.clock, work=work if sliced else None, mig=mig)
        session = Session(simulated=True, clock=self.clock)
        self.host = Host(HostSettings(1.0, 30.0, PATIENT_S, 5.0, settings), session, self.clock)

    def parts(self) -> ByType:
        """What the driver host and the jobs say, some seconds later."""
        for _ in range(12):
            self.clock.advance(1.0)
            frame = self.host.tick()
        readings: list[Reading] = [reading for device in frame.devices for reading in device.readings]
        readings += [GpuUp(device.gpu, device.uuid, 1.0) for device in frame.devices]
        return by_type([*readings, *self.jobs.collect()])


Made = Any


@pytest.fixture
def node_of() -> Iterator[Made]:
    yield from maker(Node)


class Attributed:
    """What attribution makes of it."""

    def __init__(self, parts: ByType) -> None:
        self.names = {job.job_id: job.name for job in parts[Job]}
        self.gpus = {info.uuid: info.gpu for info in parts[GpuInfo]}
        self.holders = Holders()
        self.readings = by_type(self.holders.take(parts, {}, now_s=0.0))

    def shares(self) -> dict[str, dict[str, float]]:
        """By GPU, the share of each job by name."""
        shares: dict[str, dict[str, float]] = {}
        for reading in self.readings.get(GpuAllocated, ()):
            shares.setdefault(reading.gpu, {})[self.names[reading.job_id]] = reading.share
        return shares


def memory(parts: ByType) -> list[GpuJobMemory]:
    return list(memory_by_job(parts[GpuProcess], parts[ProcessOwner], parts.get(JobMember, ())))


def test_a_training_job_a_holder_and_a_free_gpu(node_of: Made) -> None:
    attributed = Attributed(node_of().parts())
    assert attributed.shares() == {
        **{str(gpu): {"pretrain-7b": 1.0} for gpu in range(6)},
        "6": {"grace-notebook": 1.0},
    }
    counts = {each.scheduler: each.gpus for each in attributed.readings[SchedulerGpus]}
    assert counts == {"slurm": 6.0, "kubernetes": 1.0}
    assert {each.source for each in attributed.readings[GpuAllocated]} == {"slurm", "kubernetes"}


@pytest.mark.parametrize(("gpus", "names"), [(0, set()), (1, {"pretrain-7b"}), (2, {"pretrain-7b"})])
def test_a_small_node_has_only_the_jobs_that_it_has_room_for(gpus: int, names: set[str]) -> None:
    jobs = SimulatedJobs(Simulate(profile="h100", gpus=gpus), FakeClock())
    assert {reading.name for reading in jobs.collect() if isinstance(reading, Job)} == names


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("mig", [{}, {0: ["3g.40gb", "2g.20gb"], 2: ["1g.10gb"]}])
def test_every_process_that_the_driver_lists_has_its_job(
    node_of: Made, sliced: bool, mig: dict[int, list[str]]
) -> None:
    parts = node_of(gpus=4, sliced=sliced, mig=mig).parts()
    owned = [owner.pid for owner in parts[ProcessOwner]]
    assert sorted(owned) == sorted({process.pid for process in parts[GpuProcess]})
    assert "" not in {reading.job_id for reading in memory(parts)}


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("mig", [{}, {0: ["3g.40gb", "2g.20gb"], 2: ["1g.10gb"]}])
def test_a_job_has_processes_on_what_it_claims_and_nowhere_else(
    node_of: Made, sliced: bool, mig: dict[int, list[str]]
) -> None:
    parts = node_of(gpus=4, sliced=sliced, mig=mig).parts()
    held = {(reading.uuid, reading.job_id) for reading in Attributed(parts).readings[GpuAllocated]}
    assert held == {(reading.uuid, reading.job_id) for reading in memory(parts)}


def test_services_share_the_last_gpu_and_use_it_unevenly(node_of: Made) -> None:
    attributed = Attributed(node_of(gpus=4, sliced=True).parts())
    assert attributed.shares()["3"] == {"chat": 0.5, "search": 0.5}
    (weights,) = attributed.holders.holding.weights.values()
    by_name = {attributed.names[job_id]: weight for job_id, weight in weights.items()}
    assert by_name == {"chat": pytest.approx(0.6), "search": pytest.approx(0.2)}


def test_instances_are_held_by_their_slices(node_of: Made) -> None:
    attributed = Attributed(node_of(gpus=3, mig={0: ["3g.40gb", "2g.20gb", "1g.10gb"]}).parts())
    assert attributed.shares() == {
        "0:0": {"pretrain-7b": pytest.approx(3 / 7)},
        "0:1": {"grace-notebook": pytest.approx(2 / 7)},
        "1": {"grace-notebook": 1.0},
    }


def test_jobs_have_the_identity_of_their_scheduler() -> None:
    found = list(SimulatedJobs(Simulate(profile="h100", gpus=8), FakeClock()).collect())
    training, notebook = (reading for reading in found if isinstance(reading, Job))
    assert training.job_id.startswith("slurm/")
    assert (training.scheduler, training.kind, training.partition) == ("slurm", "batch", "gpu")
    assert training.user
    assert training.account
    assert (training.array_job, training.array_task, training.k8s_owner) == ("", "", "")
    assert notebook.job_id.startswith("k8s/")
    assert (notebook.scheduler, notebook.kind, notebook.partition) == ("kubernetes", "interactive", "")
    assert (notebook.k8s_namespace, notebook.k8s_owner, notebook.k8s_owner_kind) == (
        "research",
        "grace-notebook",
        "Notebook",
    )
    assert [reading.job_id for reading in found if isinstance(reading, JobPod)] == [notebook.job_id]
    assert {reading.scheduler for reading in found if isinstance(reading, Scheduler)} == {
        "slurm",
        "kubernetes",
    }
    assert len({(claim.job_id, claim.device) for claim in found if isinstance(claim, Claim)}) == 7


def test_another_process_goes_on_where_the_last_one_stopped() -> None:
    settings, first, second = Simulate(profile="h100", gpus=8), FakeClock(), FakeClock(monotonic_s=5.0)
    first.advance(100.0)
    second.advance(100.0)
    assert list(SimulatedJobs(settings, first).collect()) == list(SimulatedJobs(settings, second).collect())


def test_the_seed_decides_who_the_jobs_are() -> None:
    one, other = (
        {
            r.job_id
            for r in SimulatedJobs(Simulate(gpus=8, seed=seed), FakeClock()).collect()
            if isinstance(r, Job)
        }
        for seed in (1, 2)
    )
    assert not one & other


def test_what_jobs_use_of_the_host_grows_until_they_end() -> None:
    clock = FakeClock()
    jobs = SimulatedJobs(Simulate(profile="h100", gpus=8), clock)
    clock.advance(JOB_SECONDS - clock.wall_s() % JOB_SECONDS)  # new ones have just begun

    def uses() -> dict[str, float]:
        found = [reading for reading in jobs.collect() if isinstance(reading, JobHostUse)]
        assert all((use.memory_bytes or 0) > 0 for use in found)
        return {use.owner: use.cpu_seconds or 0.0 for use in found}

    assert set(uses().values()) == {0.0}
    clock.advance(100.0)
    before = uses()
    clock.advance(100.0)
    after = uses()
    assert all(after[owner] == pytest.approx(2 * seconds) for owner, seconds in before.items())
    clock.advance(JOB_SECONDS)
    assert not set(uses()) & set(before)
