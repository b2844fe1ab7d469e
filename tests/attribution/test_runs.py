from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
import pytest

from clusterwatt.attribution.runs import METRICS, Runs
from clusterwatt.catalog import faults
from clusterwatt.config.model import Training as Settings
from clusterwatt.config.model import TrainingModel as ModelSettings
from clusterwatt.readings.base import Reading, by_type
from clusterwatt.readings.gpu import GpuInfo
from clusterwatt.readings.gpu_measured import GpuActive
from clusterwatt.readings.training import (
    TrainingEfficiency,
    TrainingHardwareFlops,
    TrainingMfuMissing,
    TrainingModel,
    TrainingPhase,
    TrainingProgress,
    TrainingRun,
    TrainingSinceCheckpoint,
    TrainingSinceCheckpointCost,
)
from clusterwatt.readings.work import GpuAllocated, JobCost, JobEnergy, JobNodes
from clusterwatt.training.state import RunState
from tests.clocks import FakeClock

R = TypeVar("R", bound=Reading)
T0 = 1_700_000_000.0
H100 = "NVIDIA H100 80GB HBM3"
RUN, JOB = "llama", "slurm/1"
NOW = TrainingProgress(RUN, JOB, tokens_per_second=90_000.0, last_event_timestamp_seconds=T0)
MODEL = TrainingModel(RUN, JOB, 4.844e10, "bf16", 8.0)


def gpu(number: int, name: str = H100) -> GpuInfo:
    return GpuInfo(str(number), f"GPU-{number}", name, *[""] * 8)


def held(job_id: str = JOB, gpus: int = 8) -> list[Reading]:
    return [GpuAllocated(str(n), f"GPU-{n}", job_id, "ada", "ml", "batch", "slurm", 1.0) for n in range(gpus)]


class Node:
    def __init__(self, **models: ModelSettings) -> None:
        self.clock = FakeClock(wall_s=T0)
        self.runs = Runs(Settings(models=models), self.clock)
        self.readings: list[Reading] = [gpu(number) for number in range(8)]

    def tick(
        self, *said: Reading, made: Iterable[Reading] = (), job_of: Mapping[str, str] = {}, seconds: float = 1
    ) -> list[Reading]:
        self.clock.advance(seconds)
        wall_s, now_s = self.clock.wall_s(), self.clock.monotonic_s()
        parts = by_type([*self.readings, *said])
        return list(self.runs.take(parts, made, job_of, wall_s=wall_s, now_s=now_s))


def of(kind: type[R], readings: list[Reading]) -> list[R]:
    return [reading for reading in readings if isinstance(reading, kind)]


def test_the_names_of_the_families_are_right() -> None:
    assert list(faults(METRICS)) == []


def test_a_run_whose_gpus_are_all_here_has_a_utilisation() -> None:
    readings = Node().tick(NOW, MODEL, made=held())
    (efficiency,) = of(TrainingEfficiency, readings)
    assert efficiency.flops_per_token == 4.844e10
    assert efficiency.mfu_ratio == pytest.approx(0.551, abs=5e-4)
    assert of(TrainingMfuMissing, readings) == []
    assert of(TrainingProgress, readings) == [NOW]


def test_the_job_says_that_it_has_one_node() -> None:
    node = Node(any=ModelSettings(flops_per_token=4.844e10, precision="bf16"))
    assert of(TrainingMfuMissing, node.tick(NOW, made=held()))[0].missing == "all_gpus"
    readings = node.tick(NOW, JobNodes(JOB, 1), made=held())
    assert of(TrainingEfficiency, readings)[0].mfu_ratio == pytest.approx(0.551, abs=5e-4)
    assert of(TrainingMfuMissing, node.tick(NOW, JobNodes(JOB, 2), made=held()))[0].missing == "all_gpus"


def test_a_gpu_whose_peak_nobody_states_has_no_utilisation() -> None:
    node = Node()
    node.readings[3] = gpu(3, "NVIDIA Q9000")
    readings = node.tick(NOW, MODEL, made=held())
    assert of(TrainingEfficiency, readings)[0].mfu_ratio is None
    assert of(TrainingMfuMissing, readings) == [TrainingMfuMissing(RUN, JOB, "peak")]


def test_the_reason_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            node.tick(NOW, made=held())
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert "FLOP per token is not known: state the model in training.models" in caplog.text
        caplog.clear()
        for _ in range(5):
            node.tick(NOW, msgspec.structs.replace(MODEL, gpus=16.0), made=held())
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "its job may have GPUs on other nodes" in caplog.text


@pytest.mark.parametrize(
    ("stated", "nodes", "expected"), [(16.0, None, 16_000.0), (None, 1, 8_000.0), (None, 2, None)]
)
def test_the_rate_of_one_gpu_becomes_that_of_the_run_where_its_gpus_are_known(
    stated: float | None, nodes: int | None, expected: float | None
) -> None:
    said: list[Reading] = [TrainingProgress(RUN, JOB, tokens_per_second_per_gpu=1_000.0)]
    said += [msgspec.structs.replace(MODEL, gpus=stated)] + ([JobNodes(JOB, nodes)] if nodes else [])
    readings = Node().tick(*said, made=held())
    assert [r.tokens_per_second for r in readings if isinstance(r, TrainingProgress)] == [expected]


def test_of_runs_that_are_no_more_nothing_is_kept() -> None:
    node = Node(any=ModelSettings(flops_per_token=1e10))
    for number in range(100):
        node.tick(TrainingProgress(f"junk{number}", JOB, tokens=1.0, last_event_timestamp_seconds=T0))
    assert [len(kept) for kept in (node.runs._rates, node.runs._logs)] == [1, 1]


def test_that_no_model_is_stated_is_said_once_for_all_runs(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    with caplog.at_level("INFO"):
        for number in range(5):
            node.tick(TrainingProgress(f"run{number}", JOB, last_event_timestamp_seconds=T0), made=held())
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_a_rate_that_was_logged_before_the_run_hung_says_nothing_of_now() -> None:
    node = Node()
    assert of(TrainingEfficiency, node.tick(NOW, MODEL, made=held(), seconds=500))[0].mfu_ratio is not None
    readings = node.tick(NOW, MODEL, made=held(), seconds=101)
    assert of(TrainingEfficiency, readings)[0].mfu_ratio is None
    assert of(TrainingMfuMissing, readings)[0].missing == "token_rate"


def test_more_than_one_is_flagged_and_not_cut(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    readings = node.tick(NOW, msgspec.structs.replace(MODEL, flops_per_token=4.844e11), made=held())
    assert of(TrainingEfficiency, readings)[0].mfu_ratio == pytest.approx(5.51, abs=5e-3)
    assert "utilisation is 5.51: parameters, precision or GPUs are stated wrongly" in caplog.text


def test_tokens_become_a_rate_where_none_is_logged() -> None:
    node = Node()
    total = TrainingProgress(RUN, JOB, tokens=0.0, last_event_timestamp_seconds=T0)
    (first,) = of(TrainingProgress, node.tick(total))
    assert first.tokens_per_second is None
    later = TrainingProgress(RUN, JOB, tokens=9e5, last_event_timestamp_seconds=T0 + 10)
    readings = node.tick(later, MODEL, made=held(), seconds=10)
    assert of(TrainingProgress, readings)[0].tokens_per_second == 90_000.0
    assert of(TrainingEfficiency, readings)[0].mfu_ratio == pytest.approx(0.551, abs=5e-4)


def test_a_resumed_run_has_its_rate_while_it_repeats_what_was_lost() -> None:
    """It trains at the speed of before: no rate of 0, which is what alerts take for a drop."""
    node, state = Node(), RunState(RUN)
    state.owner = JOB
    rates = []
    for second in (*range(0, 3_600, 10), *range(1_800, 3_600, 10)):
        state.take("tokens_total", second * 1e5, second, node.clock.wall_s())
        (made,) = of(TrainingProgress, node.tick(state.progress(), seconds=10))
        rates.append(made.tokens_per_second)
    assert made.tokens_total == 3_590e5, "the counter stands until the run is past it again"
    assert [number for number, rate in enumerate(rates) if rate is None] == [0, 360], "one point is no rate"
    assert {rate for rate in rates if rate is not None} == {1e5}


def test_the_owner_becomes_the_job() -> None:
    said = [
        TrainingRun(RUN, "pod/7", "nemo"),
        TrainingProgress(RUN, "pod/7", step=1.0),
        TrainingPhase(RUN, "pod/7", "train", 1.0),
        TrainingModel(RUN, "pod/7", 4.8e10),
    ]
    readings = Node().tick(*said, job_of={"pod/7": "k8s/9"})
    assert len(readings) == 6  # and what is missing
    assert {reading.job_id for reading in readings} == {"k8s/9"}  # type: ignore[attr-defined]  # all have one


def test_of_two_members_that_say_the_same_one_is_heard() -> None:
    """Prometheus would refuse two series of one name and job, and a counter must not jump between two."""
    jobs = {"pod/7": "k8s/9", "pod/8": "k8s/9"}
    node = Node()

    def steps(seven_s: float, eight_s: float) -> list[float | None]:
        said = [
            TrainingProgress(RUN, "pod/7", step=7.0, last_event_timestamp_seconds=T0 + seven_s),
            TrainingProgress(RUN, "pod/8", step=8.0, last_event_timestamp_seconds=T0 + eight_s),
        ]
        return [progress.step for progress in of(TrainingProgress, node.tick(*said, job_of=jobs))]

    assert steps(1, 2) == [8.0]
    assert steps(3, 2) == [8.0]
    assert steps(60, 2) == [8.0]
    assert steps(123, 2) == [7.0]
    assert steps(123, 124) == [7.0]


def test_a_member_is_heard_with_all_that_it_says() -> None:
    said = [
        TrainingRun(RUN, "pod/7", ""),
        TrainingRun(RUN, "pod/8", ""),
        TrainingProgress(RUN, "pod/7", step=1.0, last_event_timestamp_seconds=T0),
        TrainingProgress(RUN, "pod/8", step=2.0, last_event_timestamp_seconds=T0 + 1),
    ]
    readings = Node().tick(*said, job_of={"pod/7": "k8s/9", "pod/8": "k8s/9"})
    assert [progress.step for progress in of(TrainingProgress, readings)] == [2.0]
    assert len(of(TrainingRun, readings)) == 1


def test_runs_of_one_name_in_two_jobs_stay_apart() -> None:
    said = [TrainingProgress(RUN, f"slurm/{n}", step=float(n)) for n in (1, 2)]
    assert len(of(TrainingProgress, Node().tick(*said))) == 2


def test_without_runs_there_is_nothing() -> None:
    assert Node().tick(made=held()) == []


def test_the_activity_of_tensor_cores_gives_an_estimate() -> None:
    node = Node()
    silent = TrainingProgress(RUN, JOB, step=1.0)

    def active(seconds: float) -> list[Reading]:
        return [GpuActive(str(n), f"GPU-{n}", tensor_active_seconds=seconds) for n in range(8)]

    assert of(TrainingHardwareFlops, node.tick(silent, *active(100.0), made=held())) == []
    (estimate,) = of(TrainingHardwareFlops, node.tick(silent, *active(102.5), made=held(), seconds=5))
    assert estimate.flops == pytest.approx(0.5 * 8 * 9.89e14, rel=1e-3)
    assert of(TrainingHardwareFlops, node.tick(silent, made=held())) == []


def used(joules: float, cost: float) -> list[Reading]:
    return [
        JobEnergy(JOB, "gpu", "counter", joules * 0.75),
        JobEnergy(JOB, "cpu", "estimated", joules * 0.25),
        JobCost(JOB, "USD", "energy", cost / 2),
        JobCost(JOB, "USD", "gpu", cost / 2),
    ]


def test_what_was_used_since_the_last_checkpoint() -> None:
    node = Node()
    assert of(TrainingSinceCheckpoint, node.tick(NOW, made=used(1_000.0, 1.0))) == []
    saved = msgspec.structs.replace(NOW, last_checkpoint_timestamp_seconds=T0 + 10)
    readings = node.tick(saved, made=used(2_000.0, 2.0))
    assert of(TrainingSinceCheckpoint, readings) == [TrainingSinceCheckpoint(RUN, JOB, 0.0)]
    readings = node.tick(saved, made=used(5_000.0, 2.5))
    assert of(TrainingSinceCheckpoint, readings) == [TrainingSinceCheckpoint(RUN, JOB, 3_000.0)]
    assert of(TrainingSinceCheckpointCost, readings) == [TrainingSinceCheckpointCost(RUN, JOB, "USD", 0.5)]
    again = msgspec.structs.replace(NOW, last_checkpoint_timestamp_seconds=T0 + 60)
    assert of(TrainingSinceCheckpoint, node.tick(again, made=used(6_000.0, 3.0)))[0].energy_joules == 0.0


def test_a_checkpoint_from_before_the_agent_is_not_guessed() -> None:
    node = Node()
    saved = msgspec.structs.replace(NOW, last_checkpoint_timestamp_seconds=T0 - 10)
    assert of(TrainingSinceCheckpoint, node.tick(saved, made=used(1_000.0, 1.0))) == []
    assert of(TrainingSinceCheckpoint, node.tick(saved, made=used(2_000.0, 1.0))) == []
