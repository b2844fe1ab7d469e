"""Attribution behind driver host, pipeline and meters, on a simulated node with a board that is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from clusterwatt.bookkeeping import Bookkeeping
from clusterwatt.config.model import Config
from clusterwatt.pipeline import Pipeline
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.gpu import GpuInfo
from clusterwatt.readings.gpu_measured import GpuEnergy
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.readings.work import Claim, GpuAllocated, GpuState, Job, Scheduler
from clusterwatt.simulate.nvml import uninstall
from clusterwatt.source import Account, Source
from tests.clocks import FakeClock
from tests.nodes import PATIENT_S, DriverHere

LAYOUT = ("3g.40gb", "2g.20gb", "1g.10gb")
SECONDS = 90


class Slurm:
    """Job 1 has an instance that works, job 2 one that does nothing, job 3 a whole GPU, by its minor."""

    name = "slurm"

    def collect(self) -> Iterator[Reading]:
        yield Scheduler("slurm")
        for number, device in enumerate(("nvidia0/gi2", "nvidia0/gi3", "minor:3"), 1):
            yield Job(f"slurm/{number}", "slurm", "batch")
            yield Claim(f"slurm/{number}", device, "slurm")


@pytest.fixture(scope="module")
def snapshots() -> Iterator[list[Snapshot]]:
    clock = FakeClock()
    taken: list[Snapshot] = []
    driver = DriverHere("h100", clock, {0: LAYOUT})
    source = Source(Slurm(), 1.0, clock, Account("slurm", clock))
    books = Bookkeeping(Config(), clock, "boot", None)
    pipeline = Pipeline((source,), driver, clock, taken.append, every_s=PATIENT_S, books=books)

    async def run() -> None:
        for _ in range(SECONDS):
            await pipeline.tick()
            clock.advance(1.0)

    try:
        asyncio.run(run())
        yield taken
    finally:
        source.close()
        uninstall()


def test_states_of_board_and_instances_close_on_time_and_energy(snapshots: list[Snapshot]) -> None:
    last = snapshots[-1]
    boards = {info.uuid: info.parent_uuid or info.uuid for info in last.of(GpuInfo)}
    for energy in last.of(GpuEnergy):
        states = [state for state in last.of(GpuState) if boards[state.uuid] == energy.uuid]
        assert sum(state.energy_joules or 0.0 for state in states) == pytest.approx(energy.energy_joules)
        assert sum(state.state_seconds for state in states) == pytest.approx(SECONDS - 1, abs=1.0)
    assert {state.uuid for state in last.of(GpuState)} == set(boards)


def test_shares_are_slices_and_an_instance_that_does_nothing_is_idle(snapshots: list[Snapshot]) -> None:
    last = snapshots[-1]
    shares = {each.job_id: each.share for each in last.of(GpuAllocated)}
    assert shares == {"slurm/1": 3 / 7, "slurm/2": 2 / 7, "slurm/3": 1.0}
    assert not last.of(Failure)
    of_job = {each.job_id: each.uuid for each in last.of(GpuAllocated)}
    idle = {state.uuid: state.state_seconds for state in last.of(GpuState) if state.state == "idle"}
    assert [idle[of_job[f"slurm/{number}"]] > 0 for number in (1, 2, 3)] == [False, True, False]
