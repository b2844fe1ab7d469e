from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

from clusterwatt.config.model import Training as Settings
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.training import (
    TrainingModel,
    TrainingNonfinite,
    TrainingPhase,
    TrainingPhaseStart,
    TrainingProgress,
    TrainingQuality,
    TrainingRun,
    TrainingScalar,
)
from clusterwatt.training.report import Report
from clusterwatt.training.reported import Mailbox, ReportedRuns
from clusterwatt.training.state import RunState
from tests.clocks import FakeClock

R = TypeVar("R", bound=Reading)
T0 = 1_700_000_000.0


class Node:
    """Reports go in, readings come out."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.clock = FakeClock(wall_s=T0)
        self.mailbox = Mailbox()
        self.runs = ReportedRuns(self.mailbox, settings or Settings(), self.clock)
        self.followed: dict[str, RunState] = {}

    def report(self, *reports: Report, owner: str = "slurm/1") -> list[Reading]:
        for report in reports:
            assert self.mailbox.report(report, owner)
        return self.readings()

    def readings(self) -> list[Reading]:
        failures = list(self.runs.take(self.followed))
        return [*failures, *self.runs.readings(self.followed)]


def of(kind: type[R], readings: list[Reading]) -> list[R]:
    return [reading for reading in readings if isinstance(reading, kind)]


def report(run: str = "a", time_s: float = T0, scalars: Mapping[str, float] = {}, **more: object) -> Report:
    return Report(run=run, time_s=time_s, scalars=scalars, **more)  # type: ignore[arg-type]  # by name


def test_what_is_reported_is_known() -> None:
    node = Node()
    scalars = {"loss": 2.5, "val_loss": 2.75, "lr": 0.1, "grad_norm": 1.5, "tokens_per_second": 100.0}
    readings = node.report(report(scalars=scalars, step=7.0, tokens=5_000.0, framework="PyTorch"))
    assert of(TrainingRun, readings) == [TrainingRun("a", "slurm/1", "PyTorch")]
    assert of(TrainingProgress, readings) == [
        TrainingProgress(
            run="a",
            job_id="slurm/1",
            step=7.0,
            gradient_norm=1.5,
            learning_rate=0.1,
            tokens_total=5_000.0,
            tokens=5_000.0,
            tokens_per_second=100.0,
            last_event_timestamp_seconds=T0,
        )
    ]
    assert of(TrainingQuality, readings) == [
        TrainingQuality("a", "slurm/1", "train", 2.5, None),
        TrainingQuality("a", "slurm/1", "eval", 2.75, None),
    ]
    assert of(TrainingNonfinite, readings) == [
        TrainingNonfinite("a", "slurm/1", "loss", 0.0),
        TrainingNonfinite("a", "slurm/1", "gradient_norm", 0.0),
    ]


def test_a_report_without_a_step_leaves_it_as_it_was() -> None:
    node = Node()
    node.report(report(step=7.0))
    (progress,) = of(TrainingProgress, node.report(report(time_s=T0 + 1, scalars={"loss": 1.0})))
    assert progress.step == 7.0
    assert progress.last_event_timestamp_seconds == T0 + 1


def test_not_finite_values_are_counted_and_the_loss_is_absent_until_it_is_finite_again() -> None:
    node = Node()
    node.report(report(scalars={"loss": 2.0}))
    readings = node.report(report(time_s=T0 + 1, nonfinite={"loss": 3, "grad_norm": 1, "lr": 1}))
    assert of(TrainingQuality, readings) == []
    counts = {reading.tag: reading.nonfinite for reading in of(TrainingNonfinite, readings)}
    assert counts == {"loss": 3.0, "gradient_norm": 1.0}
    readings = node.report(report(time_s=T0 + 2, scalars={"loss": 1.0}, nonfinite={"loss": 1}))
    assert of(TrainingQuality, readings)[0].loss == 1.0
    assert of(TrainingNonfinite, readings)[0].nonfinite == 4.0
    numbers = [getattr(r, f) for r in readings for f in r.__struct_fields__]
    assert all(math.isfinite(number) for number in numbers if isinstance(number, float))


def test_a_norm_that_overflows_under_loss_scaling_is_no_broken_one() -> None:
    node = Node()
    node.report(report(step=1.0, scalars={"loss_scale": 1024.0}))
    readings = node.report(
        report(time_s=T0 + 1, step=2.0, scalars={"loss_scale": 512.0}, nonfinite={"grad_norm": 1})
    )
    assert of(TrainingNonfinite, readings)[1].nonfinite == 0.0


def test_other_tags_come_with_an_allow_list_only() -> None:
    assert of(TrainingScalar, Node().report(report(scalars={"router/z": 1.0}))) == []
    allowing = Node(Settings(scalars=("router/.*",)))
    assert of(TrainingScalar, allowing.report(report(scalars={"router/z": 1.0, "x": 1.0}))) == [
        TrainingScalar("a", "slurm/1", "router/z", 1.0)
    ]


def test_phases_are_a_state_set_and_a_checkpoint_is_there_when_its_phase_ends() -> None:
    node = Node()
    assert of(TrainingPhase, node.report(report(step=1.0))) == []
    readings = node.report(report(phase="train", phase_time_s=T0))
    assert {p.phase: p.current for p in of(TrainingPhase, readings)} == {
        "warmup": 0.0,
        "train": 1.0,
        "eval": 0.0,
        "checkpoint": 0.0,
    }
    assert of(TrainingPhaseStart, readings) == [TrainingPhaseStart("a", "slurm/1", T0)]
    readings = node.report(report(phase="checkpoint", phase_time_s=T0 + 10))
    assert of(TrainingProgress, readings)[0].last_checkpoint_timestamp_seconds is None
    readings = node.report(report(time_s=T0 + 21, phase="train", phase_time_s=T0 + 20))
    assert of(TrainingProgress, readings)[0].last_checkpoint_timestamp_seconds == T0 + 20
    assert of(TrainingPhaseStart, readings)[0].start_timestamp_seconds == T0 + 20


def test_all_phases_of_one_pass_count() -> None:
    node = Node()
    readings = node.report(
        report(phase="checkpoint", phase_time_s=T0 + 1), report(phase="train", phase_time_s=T0 + 2)
    )
    assert of(TrainingProgress, readings)[0].last_checkpoint_timestamp_seconds == T0 + 2


def test_the_same_phase_again_began_when_it_began() -> None:
    node = Node()
    node.report(report(phase="train"))
    readings = node.report(report(time_s=T0 + 5, phase="train"))
    assert of(TrainingPhaseStart, readings)[0].start_timestamp_seconds == T0


def test_a_late_report_of_an_earlier_phase_changes_nothing() -> None:
    node = Node()
    node.report(report(phase="eval", phase_time_s=T0 + 10))
    readings = node.report(report(phase="train", phase_time_s=T0))
    assert of(TrainingPhaseStart, readings)[0].start_timestamp_seconds == T0 + 10


def test_what_the_model_costs_is_kept() -> None:
    node = Node()
    node.report(report(flops_per_token=4.8e10, precision="bf16"))
    readings = node.report(report(gpus=8.0))
    assert of(TrainingModel, readings) == [TrainingModel("a", "slurm/1", 4.8e10, "bf16", 8.0)]


def test_two_jobs_may_give_their_runs_one_name() -> None:
    node = Node()
    node.report(report(step=1.0), owner="slurm/1")
    readings = node.report(report(step=2.0), owner="slurm/2")
    assert {(p.job_id, p.step) for p in of(TrainingProgress, readings)} == {
        ("slurm/1", 1.0),
        ("slurm/2", 2.0),
    }


def test_files_and_reports_of_a_run_are_one() -> None:
    node = Node()
    state = node.followed["a"] = RunState("a")
    state.owner = "slurm/1"
    state.take("train_loss", 2.0, step=3, wall_s=T0)
    readings = node.report(report(time_s=T0 + 1, phase="train", tokens=10.0))
    assert of(TrainingRun, readings) == []  # the collector says what the files hold
    assert of(TrainingPhaseStart, readings) == [TrainingPhaseStart("a", "slurm/1", T0 + 1)]
    progress = state.progress()
    assert (progress.job_id, progress.step, progress.tokens_total) == ("slurm/1", 3.0, 10.0)


def test_a_run_that_reports_before_its_files_are_found_goes_on_as_one() -> None:
    node = Node()
    node.report(report(phase="train"))
    node.followed["a"] = RunState("a")
    node.followed["a"].owner = "slurm/1"
    assert of(TrainingRun, node.readings()) == []
    readings = node.report(report(time_s=T0 + 1, step=1.0))
    assert of(TrainingRun, readings) == []
    assert node.followed["a"].progress().step == 1.0
    assert [reading.start_timestamp_seconds for reading in of(TrainingPhaseStart, readings)] == [T0]


def test_nobody_takes_over_files_whose_owner_is_not_known_yet() -> None:
    node = Node()
    files = node.followed["a"] = RunState("a")
    files.take("train_loss", 2.0, step=3, wall_s=T0)
    readings = node.report(report(step=99.0, phase="eval"), owner="slurm/666")
    assert of(TrainingRun, readings) == [TrainingRun("a", "slurm/666", "")]
    assert (files.owner, files.progress().step) == ("", 3.0)
    files.owner = "slurm/1"
    readings = node.report(report(time_s=T0 + 1, phase="train"), owner="slurm/1")
    assert {(p.job_id, p.phase) for p in of(TrainingPhase, readings) if p.current} == {
        ("slurm/1", "train"),
        ("slurm/666", "eval"),
    }


def test_files_of_another_job_are_another_run() -> None:
    node = Node()
    node.followed["a"] = RunState("a")
    node.followed["a"].owner = "slurm/2"
    readings = node.report(report(step=1.0), owner="slurm/1")
    assert of(TrainingRun, readings) == [TrainingRun("a", "slurm/1", "")]
    assert node.followed["a"].progress().step is None


def test_who_does_not_say_whose_it_is_reports_for_nobodys_files() -> None:
    node = Node()
    files = node.followed["a"] = RunState("a")
    files.owner = "slurm/1"
    node.report(report(step=1.0, phase="train"), owner="slurm/1")
    readings = node.report(report(time_s=T0 + 1, step=99.0, phase="eval"), owner="")
    assert of(TrainingRun, readings) == [TrainingRun("a", "", "")]
    assert files.progress().step == 1.0
    assert {(p.job_id, p.phase) for p in of(TrainingPhase, readings) if p.current} == {
        ("slurm/1", "train"),
        ("", "eval"),
    }


def test_what_was_reported_of_nobodys_files_is_not_said_of_the_job_that_they_turn_out_to_be_of() -> None:
    node = Node()
    files = node.followed["a"] = RunState("a")
    node.report(report(step=1.0, phase="eval"), owner="")
    assert files.progress().step == 1.0
    files.owner = "slurm/1"
    assert of(TrainingPhase, node.readings()) == []
    readings = node.report(report(time_s=T0 + 1, step=99.0, phase="eval"), owner="")
    assert {p.job_id for p in of(TrainingPhase, readings)} == {""}
    assert files.progress().step == 1.0


def test_an_owner_that_is_found_between_two_reports_leaves_the_later_one_alone() -> None:
    node = Node()
    files = node.followed["a"] = RunState("a")
    node.report(report(step=1.0), owner="")
    files.owner = "slurm/1"
    readings = node.report(report(time_s=T0 + 1, step=99.0), owner="")
    assert of(TrainingRun, readings) == [TrainingRun("a", "", "")]
    assert files.progress().step == 1.0


def test_a_run_whose_files_are_let_go_goes_with_them() -> None:
    node = Node()
    node.followed["a"] = RunState("a")
    node.followed["a"].owner = "slurm/1"
    node.report(report(phase="train"))
    node.followed.clear()
    assert node.readings() == []


def test_a_silent_run_is_forgotten() -> None:
    node = Node(Settings(live_seconds=60.0))
    assert node.report(report())
    node.clock.advance(59)
    assert node.readings()
    node.clock.advance(2)
    assert node.readings() == []


def test_who_makes_up_names_takes_the_room_of_nobody_else() -> None:
    node = Node(Settings(max_runs=40))
    for number in range(100):
        node.report(report(f"junk{number}", time_s=T0 + number), owner="slurm/666")
    readings = node.report(report("a"), owner="slurm/1")
    names = [reading.run for reading in of(TrainingRun, readings)]
    assert names == [*(f"junk{number}" for number in range(68, 100)), "a"]
    assert of(Failure, readings) == []


def test_who_makes_up_jobs_as_well_takes_the_room_of_nobody_whom_the_kernel_names() -> None:
    node = Node()
    node.report(report("honest"), owner="slurm/1")
    for number in range(400):
        made_up = report(f"junk{number}", time_s=T0 + number)
        assert node.mailbox.report(made_up, f"slurm/{number}", known=False)
        node.readings()
    readings = node.report(*(report(f"run{number}") for number in range(30)), owner="slurm/2")
    names = {reading.run for reading in of(TrainingRun, readings)}
    assert {"honest", *(f"run{number}" for number in range(30))} < names
    assert {name for name in names if name.startswith("junk")} == {f"junk{n}" for n in range(336, 400)}
    assert of(Failure, readings) == []


def test_runs_are_bounded() -> None:
    node = Node(Settings(max_runs=2))
    readings = node.report(*(report(run) for run in "abc"))
    assert [reading.run for reading in of(TrainingRun, readings)] == ["a", "b"]
    assert [failure.reason for failure in of(Failure, readings)] == ["too_many"]


def test_the_mailbox_is_bounded() -> None:
    mailbox = Mailbox()
    heavy = report(scalars=dict.fromkeys(map(str, range(256)), 1.0))
    taken = sum(mailbox.report(heavy, "") for _ in range(100))
    assert taken == 31
    assert len(mailbox.take()) == 31
    assert mailbox.report(heavy, "")


def test_a_clock_that_is_set_back_stops_no_run() -> None:
    """The node was an hour ahead; what is logged next is the newest, and nothing is of the future."""
    node = Node()
    node.report(report(scalars={"loss": 9.0}, step=9.0, phase="checkpoint", phase_time_s=T0))
    node.clock.step_wall(-3_600)
    now_s = node.clock.wall_s()
    shown = of(TrainingProgress, node.readings())
    assert [progress.last_event_timestamp_seconds for progress in shown] == [now_s]
    readings = node.report(report(time_s=now_s + 5, scalars={"loss": 2.0}, step=10.0, phase="train"))
    assert [one.phase for one in of(TrainingPhase, readings) if one.current] == ["train"]
    assert [one.start_timestamp_seconds for one in of(TrainingPhaseStart, readings)] == [now_s + 5]
    assert [one.loss for one in of(TrainingQuality, readings)] == [2.0]
    assert [one.step for one in of(TrainingProgress, readings)] == [10.0]
