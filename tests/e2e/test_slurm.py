"""A real Slurm with simulated GPUs: who holds what, what it costs, and what is left of it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.config.model import Slurm as Settings
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.work import Claim, Job, Scheduler
from clusterwatt.sysfs import Files
from clusterwatt.workloads.slurm import SlurmCollector
from tests.e2e import slurm
from tests.e2e.servers import until
from tests.e2e.slurm import Slurm

pytestmark = [pytest.mark.e2e, pytest.mark.full]

SEEN_S = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """One node with eight GPUs."""
    reason = slurm.missing()
    if reason:
        pytest.skip(reason)
    with slurm.cluster(gpus=8) as running:
        yield running


def devices(readings: list[Reading], job: str) -> set[str]:
    return {
        reading.device
        for reading in readings
        if isinstance(reading, Claim) and reading.job_id == f"slurm/{job}"
    }


def jobs(readings: list[Reading]) -> dict[str, Job]:
    return {reading.job_id: reading for reading in readings if isinstance(reading, Job)}


def collector(folder: Path) -> SlurmCollector:
    clock = SystemClock()
    return SlurmCollector(Files("/", clock), Settings(job_files=str(folder)), clock)


def seen(looking: SlurmCollector, job: str) -> list[Reading] | None:
    """A pass of the collector in which the job is there with its name, which its first process tells."""
    readings = list(looking.collect())
    found = jobs(readings).get(f"slurm/{job}")
    return readings if found is not None and found.name else None


def test_jobs_are_seen_with_their_gpus_until_their_end(cluster: Slurm) -> None:
    looking = collector(cluster.job_files)
    batch = cluster.submit("sleep 600", "--gres=gpu:2", "--job-name=train me", "--comment=clusterwatt-exempt")
    holder = cluster.hold("--gres=gpu:1")
    until(lambda: cluster.jobs().get(batch) == "RUNNING", SEEN_S, "the job runs")
    readings = until(lambda: seen(looking, batch), SEEN_S, "the job is seen and has told its name")
    job = jobs(readings)[f"slurm/{batch}"]
    assert (job.name, job.user, job.partition, job.kind, job.exempt) == (
        "train me",
        "root",
        "train",
        "batch",
        True,
    )
    assert len(devices(readings, batch)) == 2
    assert len(devices(readings, holder)) == 1
    assert not devices(readings, batch) & devices(readings, holder)
    assert Scheduler("slurm") in readings
    assert not [reading for reading in readings if isinstance(reading, Failure)]
    cluster.cancel(batch, holder)
    after = list(looking.collect())
    assert not {f"slurm/{batch}", f"slurm/{holder}"} & jobs(after).keys()
    assert list(cluster.job_files.iterdir()) == []


def test_without_the_prologs_files_a_running_job_tells_its_gpus_itself(
    cluster: Slurm, tmp_path: Path
) -> None:
    looking = collector(tmp_path)
    other = cluster.hold("--gres=gpu:1")
    batch = cluster.submit("sleep 600", "--gres=gpu:2")
    readings = until(
        lambda: found if devices(found := list(looking.collect()), batch) else None,
        SEEN_S,
        "its GPUs are seen",
    )
    assert devices(readings, batch) == {"minor:1", "minor:2"}
    assert jobs(readings)[f"slurm/{other}"].user == "root"
    cluster.cancel(batch, other)


def test_g38_tasks_of_an_array_are_jobs_of_their_own(cluster: Slurm) -> None:
    looking = collector(cluster.job_files)
    array = cluster.submit("sleep 600", "--gres=gpu:1", "--array=2-3")

    def tasks() -> dict[str, str]:
        found = jobs(list(looking.collect())).items()
        return {job_id: job.array_task for job_id, job in found if job.array_job == array}

    seen = until(lambda: found if len(found := tasks()) == 2 else None, SEEN_S, "both tasks are seen")
    assert sorted(seen.values()) == ["2", "3"]
    assert {job_id.removeprefix("slurm/") for job_id in seen} == set(cluster.jobs())
    cluster.cancel(*cluster.jobs())
