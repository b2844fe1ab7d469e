"""Who holds what, what jobs cost and how training goes, as the live page has it."""

from __future__ import annotations

from clusterwatt.expose.history import History
from clusterwatt.expose.view import NodeView, node_view
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuInfo, GpuPower
from clusterwatt.readings.training import (
    TrainingEfficiency,
    TrainingNonfinite,
    TrainingPhase,
    TrainingProgress,
    TrainingQuality,
    TrainingRun,
)
from clusterwatt.readings.work import (
    GpuAllocated,
    GpuState,
    GpuStateCost,
    JobCarbon,
    JobCost,
    JobEnergy,
    JobGpuTime,
    JobIdleCost,
    JobInfo,
    JobTimes,
)
from tests.expose.sites import snapshot

JOB, NOTEBOOK = "slurm/4711", "k8s/11111111-2222-3333-4444-555555555555"


def info(gpu: str, uuid: str) -> GpuInfo:
    return GpuInfo(gpu, uuid, "NVIDIA H100", "hopper", "0000:1b:00.0", gpu, "1", "96", "", "", "false")


def job_info(job_id: str, name: str = "", user: str = "") -> JobInfo:
    return JobInfo(job_id, "slurm", name, user, "physics", "", "", "", "", "", "", "")


def allocated(gpu: str, uuid: str, job_id: str, share: float = 1.0, user: str = "") -> GpuAllocated:
    return GpuAllocated(gpu, uuid, job_id, user, "physics", "batch", "slurm", share)


def states(uuid: str, gpu: str, **seconds: float) -> list[GpuState]:
    return [GpuState(gpu, uuid, state, seconds.get(state, 0.0)) for state in ("active", "idle", "free")]


def view(*ticks: list[Reading]) -> NodeView:
    history = History()
    for number, readings in enumerate(ticks, start=1):
        made = snapshot(2 * number, *readings)
        history.append(made)
    return node_view("gpu-node-17", made, history.curves())


def test_a_gpu_says_who_holds_it_and_what_becomes_of_its_time() -> None:
    gpus: list[Reading] = [info("0", "A"), info("1", "B"), info("2", "C")]
    held: list[Reading] = [
        allocated("0", "A", JOB, user="ada"),
        allocated("1", "B", NOTEBOOK, 0.25),
        allocated("1", "B", JOB, 0.75),
        job_info(JOB, "pretrain", "ada"),
    ]
    before = [*states("A", "0", active=1), *states("B", "1", active=9), *states("C", "2")]
    after = [*states("A", "0", active=3), *states("B", "1", active=9, idle=2), *states("C", "2", free=2)]
    first, second, third = view([*gpus, *held, *before], [*gpus, *held, *after]).gpus
    assert [(gpu.work, [holder.name for holder in gpu.held_by]) for gpu in (first, second, third)] == [
        ("active", ["pretrain"]),
        ("idle", ["pretrain", NOTEBOOK]),
        ("free", []),
    ]


def test_before_anything_is_known_of_it_a_gpu_is_in_no_state() -> None:
    (gpu,) = view([info("0", "A"), *states("A", "0")]).gpus
    assert gpu.work == ""
    (gpu,) = view([info("0", "A"), *states("A", "0")], [info("0", "A"), *states("A", "0")]).gpus
    assert gpu.work == ""


def test_a_job_is_put_together_by_its_id() -> None:
    (job,) = view(
        [
            GpuPower("0", "A", "gpu", "average", 600.0),
            GpuPower("1", "B", "gpu", "average", 100.0),
            allocated("0", "A", JOB),
            allocated("1", "B", JOB, 0.5),
            job_info(JOB, "pretrain", "ada"),
            JobTimes(JOB, 1_699_999_000.0, 1_700_000_000.0),
            JobGpuTime(JOB, 200.0, 150.0, 20.0, None),
            JobEnergy(JOB, "gpu", "counter", 1000.0),
            JobEnergy(JOB, "cpu", "estimated", 500.0),
            JobCarbon(JOB, 7.0),
            JobCost(JOB, "EUR", "energy", 1.0),
            JobCost(JOB, "EUR", "gpu", 3.0),
            JobIdleCost(JOB, "EUR", 0.4),
        ]
    ).jobs
    assert (job.name, job.user, job.account, job.gpus) == ("pretrain", "ada", "physics", ("0", "1"))
    assert (job.power_watts, job.energy_joules, job.carbon_grams) == (650.0, 1500.0, 7.0)
    assert (job.currency, job.cost, job.idle_cost) == ("EUR", 4.0, 0.4)
    assert (job.activity_ratio, job.idle_ratio) == (0.75, 0.1)
    assert (job.age_seconds, job.ended) == (1000.0, True)


def test_what_is_not_known_of_a_job_is_null() -> None:
    (job,) = view([job_info(JOB), JobTimes(JOB, None, None), JobGpuTime(JOB, 0.0, None, 0.0, None)]).jobs
    assert (job.activity_ratio, job.cost, job.energy_joules, job.age_seconds) == (None, None, None, None)
    assert not job.ended


def test_jobs_that_cost_most_come_first_and_those_that_are_over_last() -> None:
    jobs = view(
        [
            *(job_info(job_id) for job_id in ("slurm/1", "slurm/2", "slurm/3")),
            JobTimes("slurm/3", 1.0, 2.0),
            *(JobCost(job_id, "EUR", "gpu", cost) for job_id, cost in (("slurm/2", 5.0), ("slurm/3", 9.0))),
        ]
    ).jobs
    assert [job.job_id for job in jobs] == ["slurm/2", "slurm/1", "slurm/3"]


def test_what_idle_gpus_cost_an_hour() -> None:
    def at(idle_s: float, cost: float) -> list[Reading]:
        return [info("0", "A"), *states("A", "0", idle=idle_s), GpuStateCost("0", "A", "idle", "EUR", cost)]

    idle = view(at(0.0, 0.0), at(2.0, 0.002), at(4.0, 0.004)).idle
    assert idle.gpus == 1
    assert dict(idle.cost_per_hour) == {"EUR": 3.6}


def test_a_training_run_shows_what_it_last_said() -> None:
    (run,) = view(
        [
            TrainingRun("llama", JOB, "lightning"),
            TrainingProgress("llama", JOB, step=7.0, tokens_per_second=9e4),
            TrainingQuality("llama", JOB, "train", None, None),
            TrainingQuality("llama", JOB, "eval", 2.5, None),
            TrainingNonfinite("llama", JOB, "loss", 3.0),
            TrainingNonfinite("llama", JOB, "gradient_norm", 0.0),
            TrainingPhase("llama", JOB, "train", 0.0),
            TrainingPhase("llama", JOB, "eval", 1.0),
            TrainingEfficiency("llama", JOB, 4.8e10, 0.55),
        ]
    ).runs
    assert (run.step, run.loss, run.eval_loss, run.mfu_ratio, run.phase) == (7.0, None, 2.5, 0.55, "eval")
    assert run.nonfinite == ("loss",)
    assert run.silent_seconds is None
