"""Joules of CPU, memory and the rest, by what each job used of them."""

from __future__ import annotations

import pytest

from clusterwatt.config.model import Config
from clusterwatt.readings.base import Reading
from clusterwatt.readings.host import CpuTime, Memory, NodeEnergy
from clusterwatt.readings.work import (
    CarbonIntensity,
    ElectricityPrice,
    GpuPrice,
    Job,
    JobHostUse,
    JobMember,
    Scheduler,
    SlurmdPod,
)
from tests.attribution.node import NAME, A, B, Node, gpu, held_by

ONE, TWO = "slurm/1", "slurm/2"


class Host(Node):
    """Two jobs on a node whose CPUs are busy for 8 seconds each second, with 200 W."""

    def __init__(self) -> None:
        super().__init__(gpu(A), gpu(B, "1"), config=Config())
        self.watts = {A: 0.0, B: 0.0}
        self.cpu = {"slurm/1": 4.0, "sluid/two": 2.0}
        self.memory = {"slurm/1": 30.0, "sluid/two": 15.0}
        self.busy, self.second, self.components = 8.0, 0, {"cpu": 200.0, "dram": 20.0, "other": 40.0}
        self.use_every = 2
        self.uses: list[Reading] = []
        self.jobs(held_by(ONE, A), held_by(TWO, B), members=[JobMember("sluid/two", TWO)])
        self.always: list[Reading] = []

    def pass_seconds(self, count: int) -> Host:
        for _ in range(count):
            self.second += 1
            if self.second % self.use_every == 0:
                self.uses = [
                    JobHostUse(owner, rate * self.second, self.memory[owner])
                    for owner, rate in self.cpu.items()
                ]
            self.more = [
                *self.uses,
                *self.always,
                CpuTime("user", self.busy * self.second),
                CpuTime("iowait", 5.0 * self.second),
                CpuTime("idle", 50.0 * self.second),
                Memory(total_bytes=100.0, available_bytes=40.0),
                *(
                    NodeEnergy(component, "counter", watts * self.second)
                    for component, watts in self.components.items()
                ),
                NodeEnergy("platform", "integrated", 1_000.0 * self.second),
                NodeEnergy("gpu", "counter", 0.0),
            ]
            self.tick()
        return self

    def part(self, component: str) -> dict[str, float]:
        return {
            entry.job_id: amounts.joules or 0.0
            for entry, amounts in self.take().items()
            if entry.component == component
        }


@pytest.mark.parametrize("use_every", [1, 2, 5, 10, 25])
def test_cpu_joules_go_by_cpu_seconds_and_what_no_job_used_is_nobodys(use_every: int) -> None:
    host = Host()
    host.use_every = use_every
    host.pass_seconds(71)
    before = host.part("cpu")
    host.pass_seconds(100)
    grown = {job_id: joules - before.get(job_id, 0.0) for job_id, joules in host.part("cpu").items()}
    assert grown == pytest.approx({ONE: 10_000.0, TWO: 5_000.0, "": 5_000.0})


def test_memory_joules_go_by_memory_and_the_rest_by_gpus_held() -> None:
    host = Host().pass_seconds(111)
    booked = sum(host.part("dram").values())
    assert host.part("dram") == pytest.approx({ONE: booked / 2, TWO: booked / 4, "": booked / 4})
    assert booked == pytest.approx(20.0 * 111, abs=200.0)
    rest = sum(host.part("other").values())
    assert host.part("other") == pytest.approx({ONE: rest / 2, TWO: rest / 2, "": 0.0})
    assert {entry.component for entry in host.take()} == {"gpu", "cpu", "dram", "other"}
    assert {entry.method for entry in host.take() if entry.component != "gpu"} == {"estimated"}


def test_what_the_host_measured_is_booked_whole() -> None:
    host = Host().pass_seconds(57)
    host.take()
    measured = sum(batch.measured_joules for batch in host.batches)
    booked = sum(amounts.joules or 0.0 for batch in host.batches for amounts in batch.entries.values())
    assert booked == pytest.approx(measured, rel=1e-9)
    assert measured == pytest.approx(260.0 * 57, abs=260.0 * 10)


def test_jobs_that_seem_to_use_more_than_there_is_share_what_there_is() -> None:
    host = Host()
    host.busy = 3.0
    host.pass_seconds(21)
    before = host.part("cpu")
    host.pass_seconds(100)
    grown = {job_id: joules - before.get(job_id, 0.0) for job_id, joules in host.part("cpu").items()}
    assert grown == pytest.approx({ONE: 20_000.0 * 4 / 6, TWO: 20_000.0 * 2 / 6, "": 0.0})


def test_without_cgroups_all_is_nobodys() -> None:
    host = Host()
    host.cpu = {}
    host.pass_seconds(41)
    assert set(host.part("cpu")) == {""}


def test_a_pod_in_which_slurmd_runs_is_not_counted_beside_its_jobs() -> None:
    host = Host()
    host.sources = {"slurm": True, "kubernetes": True}
    host.cpu["pod/of-slurmd"], host.memory["pod/of-slurmd"] = 7.0, 50.0  # with all of its jobs
    host.always = [
        Scheduler("kubernetes"),
        SlurmdPod("of-slurmd"),
        Job("k8s/slurmd", "kubernetes", "service"),
        JobMember("pod/of-slurmd", "k8s/slurmd"),
    ]
    host.pass_seconds(71)
    before = host.part("cpu"), host.part("dram")
    host.pass_seconds(100)
    cpu, dram = (
        {job_id: joules - then.get(job_id, 0.0) for job_id, joules in host.part(component).items()}
        for component, then in zip(("cpu", "dram"), before, strict=True)
    )
    assert cpu == pytest.approx({ONE: 10_000.0, TWO: 5_000.0, "": 5_000.0})
    assert dram == pytest.approx({ONE: 1_000.0, TWO: 500.0, "": 500.0})


def test_a_cgroup_of_nobody_known_is_nobodys() -> None:
    host = Host()
    host.says = host.says[:1]
    host.pass_seconds(41)
    assert set(host.part("cpu")) == {""}


def test_energy_of_the_host_has_its_carbon_and_money() -> None:
    host = Host()
    host.always = [
        ElectricityPrice("tariff", "", "EUR", 0.36),
        CarbonIntensity("grid", "FR", "average", 36.0, None),
    ]
    host.pass_seconds(41)
    for entry, amounts in host.take().items():
        if entry.component == "cpu":
            assert amounts.joules is not None
            assert amounts.energy_cost == pytest.approx(amounts.joules * 1e-7)
            assert amounts.carbon_grams == pytest.approx(amounts.joules * 1e-5)
            assert (amounts.gpu_cost, entry.currency) == (None, "EUR")


def test_where_power_is_in_the_price_of_the_gpus_that_of_their_host_is_too() -> None:
    host = Host()
    host.always = [
        ElectricityPrice("tariff", "", "EUR", 0.36),
        GpuPrice(NAME, "book", "EUR", 2.0, includes_power=True),
    ]
    host.pass_seconds(41)
    assert {amounts.energy_cost for entry, amounts in host.take().items() if not entry.device} == {None}
