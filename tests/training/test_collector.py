"""Runs followed on disk: appended, resumed, replaced, rotated, deleted, of this node or of others."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from clusterwatt.config.model import Training
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.training import (
    TrainingNonfinite,
    TrainingProgress,
    TrainingQuality,
    TrainingRun,
    TrainingScalar,
)
from clusterwatt.training import collector as module
from clusterwatt.training.collector import TrainingCollector
from clusterwatt.training.writers import Process
from tests.clocks import FakeClock
from tests.training.event_bytes import VERSION, EventFile, event, field, number, record, scalar
from tests.training.test_records import R0, R1, R2

R = TypeVar("R", bound=Reading)

T0 = 1_700_000_000.0
HERE = "events.out.tfevents.1700000000.here.1.0"


class Node:
    """A collector over folders, on a node called `here`, and what it said last."""

    def __init__(self, top: Path, *, host: str = "here", **settings: Any) -> None:
        self.clock = FakeClock(wall_s=T0)
        self.processes: dict[int, Process] = {}
        self.members: dict[str, str] = {}
        self.readings: list[Reading] = []
        settings.setdefault("directories", (str(top),))
        self.collector = TrainingCollector(
            "",
            msgspec.convert(settings, Training),
            self.clock,
            host=host,
            process=self.processes.get,
            members=lambda: self.members,
        )

    def look(self, after_s: float = 1.0) -> list[Reading]:
        self.clock.advance(after_s)
        self.readings = list(self.collector.collect())
        return self.readings

    def of(self, kind: type[R]) -> list[R]:
        return [reading for reading in self.readings if isinstance(reading, kind)]

    def runs(self) -> list[str]:
        return [reading.run for reading in self.of(TrainingRun)]

    def progress(self, run: str = "run") -> TrainingProgress:
        (found,) = [reading for reading in self.of(TrainingProgress) if reading.run == run]
        return found

    def loss(self, split: str = "train", run: str = "run") -> float | None:
        found = [each for each in self.of(TrainingQuality) if (each.run, each.split) == (run, split)]
        return found[0].loss if found else None

    def nonfinite(self, run: str = "run") -> Mapping[str, float]:
        return {each.tag: each.nonfinite for each in self.of(TrainingNonfinite) if each.run == run}


def write(path: Path, content: bytes, written_s: float = T0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(content)
    os.utime(path, (written_s, written_s))


def test_g24_a_half_written_record_is_waited_for(tmp_path: Path) -> None:
    node, path = Node(tmp_path), tmp_path / "run" / HERE
    write(path, R0 + R1 + R2[:20])
    node.look()
    assert (node.loss(), node.progress().step) == (0.25, 7)
    assert node.of(Failure) == []
    write(path, R2[20:])
    node.look()
    assert (node.loss(), node.progress().step) == (0.125, 8)
    assert node.of(Failure) == []


def test_links_are_not_followed(tmp_path: Path) -> None:
    """The agent may read what who made the link may not."""
    elsewhere = tmp_path / "secret" / HERE
    write(elsewhere, R0 + R1)
    node, path = Node(tmp_path / "runs"), tmp_path / "runs" / "run" / HERE
    path.parent.mkdir(parents=True)
    path.symlink_to(elsewhere)
    (tmp_path / "runs" / "other").symlink_to(elsewhere.parent)
    node.look()
    assert node.runs() == []


def test_a_link_that_takes_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "secret" / HERE
    write(elsewhere, R0 + R1 + R2)
    node, path = Node(tmp_path / "runs"), tmp_path / "runs" / "run" / HERE
    write(path, R0 + R1)
    node.look()
    assert node.progress().step == 7
    path.unlink()
    path.symlink_to(elsewhere)
    for _ in range(3):
        node.look()
        assert all(each.step == 7 for each in node.of(TrainingProgress))


def test_g25_the_event_with_the_latest_wall_time_is_exported(tmp_path: Path) -> None:
    node = Node(tmp_path, host="h")
    first = tmp_path / "run" / "events.out.tfevents.1700000000.h.1.0"
    second = tmp_path / "run" / "events.out.tfevents.1700000100.h.2.0"
    write(first, VERSION + scalar("loss", 0.5, 5000, T0 + 50))
    node.look()
    assert node.progress().step == 5000
    write(second, VERSION + scalar("loss", math.nan, 1200, T0 + 150))
    node.look(10)
    assert node.progress().step == 1200
    assert node.loss() is None
    write(first, scalar("loss", math.nan, 5005, T0 + 190) + scalar("loss", 0.4, 5010, T0 + 200))
    node.look()
    assert node.progress().step == 5010
    assert node.loss() == pytest.approx(0.4)
    assert node.nonfinite()["loss"] == 2  # no record of either is skipped
    first.unlink()
    second.unlink()
    node.look()
    assert node.readings == []


def test_a_value_that_is_not_finite_is_counted_and_never_shown(tmp_path: Path) -> None:
    node, path = Node(tmp_path), tmp_path / "run" / HERE
    write(path, VERSION + scalar("loss", 0.5, 1, T0))
    node.look()
    assert node.nonfinite() == {"loss": 0, "gradient_norm": 0}
    write(path, scalar("loss", math.inf, 2, T0 + 2) + scalar("grad_norm", math.nan, 2, T0 + 2))
    node.look()
    assert node.loss() is None
    assert node.progress().gradient_norm is None
    assert node.progress().step == 2
    assert node.nonfinite() == {"loss": 1, "gradient_norm": 1}
    write(path, scalar("loss", 0.25, 3, T0 + 3))
    node.look()
    assert node.loss() == 0.25
    assert node.nonfinite() == {"loss": 1, "gradient_norm": 1}


def test_what_a_run_wrote_before_the_agent_began_is_not_counted_again(tmp_path: Path) -> None:
    path = tmp_path / "run" / HERE
    half = scalar("loss", math.nan, 3, T0)
    write(path, VERSION + scalar("loss", math.nan, 1, T0) + half[:20])
    node = Node(tmp_path)
    node.look()
    assert node.nonfinite()["loss"] == 0
    assert node.loss() is None
    write(path, half[20:])
    node.look()
    assert node.nonfinite()["loss"] == 1


def test_a_run_that_begins_later_is_counted_from_its_start(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.look()
    write(tmp_path / "run" / HERE, VERSION + scalar("loss", math.nan, 1, T0))
    node.look(10)
    assert node.nonfinite()["loss"] == 1


def test_folders_that_appear_later_and_nested_ones_are_found(tmp_path: Path) -> None:
    top = tmp_path / "later"
    node = Node(top)
    assert node.look() == []
    write(top / "a" / "b" / "c" / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    node.look(10)
    assert node.runs() == ["a/b/c"]
    write(top / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    node.look(10)
    assert node.runs() == ["a/b/c", "later"]


def test_two_folders_with_runs_of_one_name_are_two_runs(tmp_path: Path) -> None:
    tops = [tmp_path / name for name in ("x", "y")]
    for top in tops:
        write(top / "run" / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    node = Node(tmp_path, directories=[str(top) for top in tops])
    node.look()
    assert node.runs() == sorted([str(tops[1] / "run"), "run"])


def test_overlapping_folders_show_a_run_once(tmp_path: Path) -> None:
    write(tmp_path / "a" / "run" / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    node = Node(tmp_path, directories=[str(tmp_path / "a"), str(tmp_path)])
    for _ in range(3):
        node.look()
        assert len(node.runs()) == 1


def test_a_file_that_is_replaced_is_read_anew(tmp_path: Path) -> None:
    node, path = Node(tmp_path), tmp_path / "run" / HERE
    write(path, VERSION + scalar("loss", 0.5, 90, T0 + 1) * 50)
    node.look()
    new = tmp_path / "new"
    write(new, VERSION + scalar("loss", 0.75, 1, T0 + 2))
    new.rename(path)
    node.look()
    assert (node.loss(), node.progress().step) == (0.75, 1)


def test_a_file_that_is_cut_off_is_read_anew(tmp_path: Path) -> None:
    node, path = Node(tmp_path), tmp_path / "run" / HERE
    write(path, VERSION + scalar("loss", 0.5, 90, T0 + 1) * 50)
    node.look()
    path.write_bytes(b"")
    write(path, VERSION + scalar("loss", 0.75, 1, T0 + 2))
    node.look()
    assert (node.loss(), node.progress().step) == (0.75, 1)


def test_a_file_that_is_renamed_is_followed_on_without_being_read_again(tmp_path: Path) -> None:
    node, path = Node(tmp_path), tmp_path / "run" / HERE
    write(path, VERSION)
    node.look()
    write(path, scalar("loss", math.nan, 1, T0))
    node.look()
    assert node.nonfinite()["loss"] == 1
    moved = path.with_name(path.name + ".bak")
    path.rename(moved)
    node.clock.advance(10)
    write(moved, scalar("loss", 0.5, 2, T0 + 1))
    node.look()
    assert node.nonfinite()["loss"] == 1
    assert node.loss() == 0.5


def test_corruption_in_the_middle_is_told_once_and_the_rest_is_read(tmp_path: Path) -> None:
    node, path = Node(tmp_path), tmp_path / "run" / HERE
    broken = bytearray(scalar("loss", 0.5, 1, T0))
    broken[30] ^= 1
    write(path, VERSION + bytes(broken) + scalar("loss", 0.25, 2, T0 + 1))
    node.look()
    assert node.loss() == 0.25
    assert [failure.reason for failure in node.of(Failure)] == ["corrupt"]
    node.look()
    assert node.of(Failure) == []


def test_a_large_file_is_read_from_its_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GiB that hold nothing take no room on disk; what is read of them is counted."""
    path = tmp_path / "run" / HERE
    write(path, VERSION)
    with path.open("r+b") as file:
        file.truncate(2 << 30)
    write(path, b"".join(scalar("loss", 1 / step, step, T0 + step) for step in range(1, 2001)))
    read = 0
    pread = os.pread

    def counting(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal read
        data = pread(descriptor, size, offset)
        read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    node = Node(tmp_path)
    node.look()
    assert node.progress().step == 2000
    assert read <= 1 << 20
    write(path, scalar("loss", 0.5, 2001, T0 + 2001))
    before = read
    node.look()
    assert node.progress().step == 2001
    assert read - before < 200


def test_from_the_start_a_large_file_is_worked_off_in_several_passes(tmp_path: Path) -> None:
    path = tmp_path / "run" / HERE
    steps = 60_000
    write(path, VERSION + b"".join(scalar("loss", 1.0, step, T0) for step in (1, 2)))
    image = record(bytes(300_000))
    write(path, (scalar("loss", 1.0, 3, T0) * 2000 + image) * 40 + scalar("loss", 0.5, steps, T0 + 1))
    node = Node(tmp_path, read_from="start")
    passes = 0
    while not node.of(TrainingProgress) or node.progress().step != steps:
        node.look()
        passes += 1
        assert passes < 20
    assert passes > 1
    assert node.of(Failure) == []


def test_old_runs_are_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number_of in range(300):
        write(tmp_path / f"old{number_of}" / HERE, VERSION + scalar("loss", 0.5, 1, T0), T0 - 86_400)
    write(tmp_path / "live" / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    opened: list[str] = []
    real = os.open

    def counting(path: str, flags: int, *rest: Any, **more: Any) -> int:
        opened.append(str(path))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", counting)
    node = Node(tmp_path)
    node.look()
    node.look()
    assert node.runs() == ["live"]
    assert {Path(path).parent.name for path in opened if "tfevents" in path} == {"live"}


def test_an_old_run_that_goes_on_is_found_again_and_one_that_falls_silent_goes(tmp_path: Path) -> None:
    path = tmp_path / "run" / HERE
    write(path, VERSION + scalar("loss", 0.5, 1, T0), T0 - 86_400)
    node = Node(tmp_path)
    assert node.look() == []
    write(path, scalar("loss", 0.25, 2, T0 + 60), T0 + 60)
    node.look(61)
    assert node.loss() == 0.25
    node.look(86_400)
    assert node.readings == []


def test_no_file_is_kept_open(tmp_path: Path) -> None:
    for number_of in range(50):
        write(tmp_path / f"run{number_of}" / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    node = Node(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    node.look()
    assert len(node.runs()) == 50
    assert len(os.listdir("/proc/self/fd")) == before


def test_there_is_a_bound_on_runs_and_the_ones_written_last_stand(tmp_path: Path) -> None:
    for minute in range(5):
        write(tmp_path / f"run{minute}" / HERE, VERSION + scalar("loss", 0.5, 1, T0), T0 - 600 + 60 * minute)
    node = Node(tmp_path, max_runs=3)
    node.look()
    assert node.runs() == ["run2", "run3", "run4"]
    assert [failure.reason for failure in node.of(Failure)] == ["too_many"]
    node.look()
    assert [failure.ongoing for failure in node.of(Failure)] == [True]
    write(tmp_path / "new" / HERE, VERSION + scalar("loss", 0.5, 1, T0), T0 + 10)
    node.look(10)
    assert node.runs() == ["new", "run3", "run4"]
    node.look(10)
    assert node.runs() == ["new", "run3", "run4"]


def test_a_run_that_is_left_out_is_told_though_a_pass_takes_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(2):
        write(tmp_path / f"run{index}" / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    node = Node(tmp_path, max_runs=1)
    monkeypatch.setattr(node.clock, "monotonic_s", itertools.count(1_000.0, 0.001).__next__)
    node.look()
    assert [(failure.reason, failure.ongoing) for failure in node.of(Failure)] == [("too_many", False)]


@pytest.mark.parametrize(
    ("name", "host", "settings", "shown"),
    [
        ("events.out.tfevents.1700000000.here.1.0", "here", {}, True),
        ("events.out.tfevents.1700000000.HERE.1.0", "here", {}, True),
        ("events.out.tfevents.1700000000.here.cluster.local.1.0", "here", {}, True),
        ("events.out.tfevents.1700000000.here.1.0", "here.cluster.local", {}, True),
        ("events.out.tfevents.1700000000.here.1.0.v2", "here", {}, True),
        ("events.out.tfevents.1700000000.here", "here", {}, True),
        ("events.out.tfevents.1700000000.here2.1.0", "here", {}, False),
        ("events.out.tfevents.1700000000.there.1.0", "here", {}, False),
        ("events.out.tfevents.1700000000.there.1.0", "here", {"hosts": ["the.*"]}, True),
        ("events.out.tfevents.1700000000.there.1.0", "here", {"any_host": True}, True),
        ("my.tfevents", "here", {}, False),
        ("my.tfevents", "here", {"any_host": True}, True),
        ("checkpoint.1700000000.here.1.0", "here", {"any_host": True}, False),
    ],
)
def test_a_run_on_shared_storage_is_shown_by_the_node_that_wrote_it(
    tmp_path: Path, name: str, host: str, settings: dict[str, Any], shown: bool
) -> None:
    write(tmp_path / "run" / name, VERSION + scalar("loss", 0.5, 1, T0))
    node = Node(tmp_path, host=host, **settings)
    node.look()
    assert bool(node.runs()) is shown


def test_a_container_of_the_node_is_told_by_its_host_name(tmp_path: Path) -> None:
    write(
        tmp_path / "run" / "events.out.tfevents.1700000000.0a1b2c3d4e5f.7.0",
        VERSION + scalar("loss", 0.5, 1, T0),
    )
    node = Node(tmp_path)
    assert node.look() == []
    node.members["0a1b2c3d4e5f"] = "container/0a1b2c3d4e5f"
    node.look(10)
    assert node.of(TrainingRun) == [TrainingRun("run", "container/0a1b2c3d4e5f", "")]


def test_the_owner_is_that_of_the_process_that_writes(tmp_path: Path) -> None:
    path = tmp_path / "run" / HERE
    write(path, VERSION + scalar("loss", 0.5, 1, T0))
    uid = path.stat().st_uid
    node = Node(tmp_path)
    node.processes[1] = Process("slurm/4242", T0 - 10, uid)
    node.look()
    assert {reading.job_id for reading in node.readings if isinstance(reading, TrainingProgress)} == {
        "slurm/4242"
    }
    write(tmp_path / "run" / "events.out.tfevents.1700000050.here.2.0", VERSION)
    node.processes[2] = Process("slurm/4343", T0 + 45, uid)
    node.look(60)
    assert node.progress().job_id == "slurm/4343"  # resumed by another job
    write(tmp_path / "run" / "events.out.tfevents.1700000100.here.3.0", VERSION)
    node.look(60)
    assert node.progress().job_id == ""  # and by one of which nothing is known


@pytest.mark.parametrize(("started_s", "same_user"), [(T0 + 60, True), (T0 - 60, False)])
def test_a_pid_that_was_given_out_again_or_means_another_owns_nothing(
    tmp_path: Path, started_s: float, same_user: bool
) -> None:
    path = tmp_path / "run" / HERE
    write(path, VERSION + scalar("loss", 0.5, 1, T0))
    uid = path.stat().st_uid + (not same_user)
    node = Node(tmp_path)
    node.processes[1] = Process("unit/cron.service", started_s, uid)
    node.look()
    assert node.progress().job_id == ""


def test_the_job_may_stand_in_the_path(tmp_path: Path) -> None:
    write(tmp_path / "alice" / "4242" / "tb" / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    node = Node(tmp_path, job_from_path=r"/(?P<job>[0-9]+)/tb/")
    node.look()
    assert node.progress("alice/4242/tb").job_id == "slurm/4242"


def test_keras_folders_are_one_run(tmp_path: Path) -> None:
    write(tmp_path / "run" / "train" / HERE, VERSION + scalar("epoch_loss", 0.5, 1, T0))
    write(
        tmp_path / "run" / "validation" / HERE,
        VERSION
        + scalar("epoch_loss", 0.75, 1, T0 + 1)
        + scalar("evaluation_loss_vs_iterations", 0.75, 500, T0 + 1)
        + scalar("epoch_learning_rate", 9.0, 1, T0 + 1),
    )
    node = Node(tmp_path)
    node.look()
    assert node.of(TrainingRun) == [TrainingRun("run", "", "keras")]
    assert (node.loss("train"), node.loss("eval")) == (0.5, 0.75)
    assert node.progress().learning_rate is None
    assert node.progress().step == 500  # iterations stand before epochs


def test_own_tags_and_allowed_scalars(tmp_path: Path) -> None:
    write(
        tmp_path / "run" / HERE,
        VERSION
        + scalar("my/objective", 0.5, 1, T0)
        + scalar("moe/z_loss", 0.125, 1, T0)
        + scalar("moe/broken", math.nan, 1, T0)
        + scalar("other", 1.0, 1, T0),
    )
    node = Node(tmp_path, tags={"my/objective": "train_loss"}, scalars=["moe/.*"])
    node.look()
    assert node.loss() == 0.5
    assert node.of(TrainingScalar) == [TrainingScalar("run", "", "moe/z_loss", 0.125)]


def test_a_run_without_a_known_tag_shows_step_and_time(tmp_path: Path) -> None:
    write(tmp_path / "run" / HERE, VERSION + scalar("whatever", 0.5, 12, T0 - 3))
    node = Node(tmp_path)
    node.look()
    assert node.progress() == TrainingProgress("run", "", step=12, last_event_timestamp_seconds=T0 - 3)


def test_a_checkpoint_in_the_session_log_is_shown(tmp_path: Path) -> None:
    write(
        tmp_path / "run" / HERE,
        VERSION + scalar("loss", 0.5, 1, T0) + record(event(T0 - 5, 1) + field(7, number(1, 3))),
    )
    node = Node(tmp_path)
    node.look()
    assert node.progress().last_checkpoint_timestamp_seconds == T0 - 5


@pytest.mark.parametrize("wall_s", [T0 + 1e6, 0.0, -1.0, math.nan, math.inf, 1.7e12])
def test_an_event_of_no_possible_time_does_not_stand_as_the_newest(tmp_path: Path, wall_s: float) -> None:
    node, path = Node(tmp_path), tmp_path / "run" / HERE
    write(path, VERSION + scalar("loss", 0.5, 9, wall_s) + scalar("loss", 0.25, 1, T0))
    node.look()
    assert (node.loss(), node.progress().step) == (0.25, 1)
    assert [failure.reason for failure in node.of(Failure)] == ["clock"]


def test_a_clock_that_is_set_back_stops_no_run(tmp_path: Path) -> None:
    """What was logged while the node was an hour ahead is not the newest for an hour."""
    node, path = Node(tmp_path), tmp_path / "run" / HERE
    write(path, VERSION + scalar("loss", 9.0, 9, T0))
    node.look()
    node.clock.step_wall(-3_600)
    node.look()
    write(path, scalar("loss", 2.0, 10, node.clock.wall_s()))
    node.look()
    assert (node.loss(), node.progress().step) == (2.0, 10)
    assert node.progress().last_event_timestamp_seconds == pytest.approx(node.clock.wall_s(), abs=60)


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A folder for everybody, and a user who may not read everything, as root may."""
    folder = Path(tempfile.mkdtemp(prefix="runs-", dir="/tmp"))
    folder.chmod(0o777)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65_534)
    try:
        yield folder
    finally:
        os.seteuid(user)
        shutil.rmtree(folder)


def test_a_folder_that_may_not_be_read_costs_no_other(as_nobody: Path) -> None:
    tmp_path = as_nobody
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    write(tmp_path / "run" / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    node = Node(tmp_path)
    node.look()
    assert node.runs() == ["run"]
    assert [(failure.reason, failure.ongoing) for failure in node.of(Failure)] == [("permission", False)]
    node.look()
    assert [(failure.reason, failure.ongoing) for failure in node.of(Failure)] == [("permission", True)]
    closed.chmod(0o700)
    node.look(60)
    assert node.of(Failure) == []


def test_a_file_that_cannot_be_read_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bad", "good"):
        write(tmp_path / name / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    pread = os.pread

    def failing(descriptor: int, size: int, offset: int) -> bytes:
        if "/bad/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(5, "Input/output error")
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", failing)
    node = Node(tmp_path)
    node.look()
    assert node.runs() == ["good"]
    assert [failure.reason for failure in node.of(Failure)] == ["io_error"]
    monkeypatch.undo()
    node.look()
    assert node.runs() == ["bad", "good"]


def test_a_folder_that_goes_takes_its_run_along(tmp_path: Path) -> None:
    write(tmp_path / "run" / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    node = Node(tmp_path)
    node.look()
    shutil.rmtree(tmp_path / "run")
    assert node.look() == []
    node.look(120)
    write(tmp_path / "run" / HERE, VERSION + scalar("loss", 0.25, 1, T0 + 100), T0 + 100)
    node.look(10)
    assert node.loss() == 0.25


def test_all_files_get_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BYTES_A_PASS", 1 << 20)
    for name in "abcd":
        write(tmp_path / name / HERE, VERSION + scalar("loss", 0.5, 1, T0) * 16_000)
    node = Node(tmp_path)
    for _ in range(4):
        node.look()
    assert node.runs() == ["a", "b", "c", "d"]


def test_settings_without_folders_cost_nothing(tmp_path: Path) -> None:
    assert Node(tmp_path, directories=[]).look() == []


def test_the_helper_that_writes_files_writes_what_is_read(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "run")
    file.log(3, T0, loss=0.5, lr=0.125)
    os.utime(file.path, (T0, T0))
    node = Node(tmp_path)
    node.look()
    assert (node.progress().learning_rate, node.loss()) == (0.125, 0.5)


def test_corruption_after_the_tail_is_told(tmp_path: Path) -> None:
    path = tmp_path / "run" / HERE
    write(path, VERSION + scalar("loss", 0.5, 1, T0) * 500)
    node = Node(tmp_path, tail_bytes=5000)
    node.look()
    assert node.of(Failure) == []  # the tail begins in the middle of a record
    write(path, b"broken" + scalar("loss", 0.25, 2, T0 + 1))
    node.look()
    assert [failure.reason for failure in node.of(Failure)] == ["corrupt"]
    assert node.loss() == 0.25


def test_a_folder_is_listed_again_only_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    write(folder / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    for each in (folder, tmp_path):
        os.utime(each, (T0 - 100, T0 - 100))
    listed: list[str] = []
    scandir = os.scandir

    def counting(path: str) -> Any:
        listed.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counting)
    node = Node(tmp_path)
    for _ in range(5):
        node.look(60)
    assert listed == [str(tmp_path), str(folder)]
    write(
        folder / "events.out.tfevents.1700000001.here.2.0",
        VERSION + scalar("loss", 0.25, 2, T0 + 1),
        T0 + 300,
    )
    os.utime(folder, (T0 + 290, T0 + 290))
    node.look(60)
    assert listed[2:] == [str(folder)]
    assert node.loss() == 0.25


def test_a_change_within_the_tick_of_the_file_systems_clock_is_seen(tmp_path: Path) -> None:
    write(tmp_path / "a" / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    os.utime(tmp_path, (T0, T0))
    node = Node(tmp_path)
    node.look()
    write(tmp_path / "b" / HERE, VERSION + scalar("loss", 0.5, 1, T0))
    os.utime(tmp_path, (T0, T0))
    node.look(10)
    assert node.runs() == ["a", "b"]
