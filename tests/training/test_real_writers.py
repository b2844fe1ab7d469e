"""Files of the real writers, read as TensorBoard's own reader reads them."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusterwatt.training import records
from clusterwatt.training.event_files import parse_name
from clusterwatt.training.tfevents import Events
from tests.machines import REPOSITORY

CAPTURES = REPOSITORY.parent / "shared" / "fixtures" / "tensorboard"
Scalars = list[tuple[str, float, int, float]]

with warnings.catch_warnings():  # of libraries that these bring along
    warnings.simplefilter("ignore")
    import numpy as np
    from tensorboard.backend.event_processing import event_file_loader
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.scalar import summary_v2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util import tensor_util
    from tensorboardX import SummaryWriter


def ours(path: Path) -> Scalars:
    data = path.read_bytes()
    found = records.find(data, synced=True, at_end=True)
    assert (found.corrupt, found.next_at) == (0, len(data))
    return Events(lambda _: True, from_start=True).scalars(found.records)


def theirs(path: Path) -> Scalars:
    """Every scalar that TensorBoard finds; its loader makes tensors of the plugin `scalars` of both forms."""
    scalars: Scalars = []
    plugins: dict[str, str] = {}
    for event in event_file_loader.EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            plugin = plugins.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
            if plugin == "scalars" and value.HasField("tensor"):
                number = float(tensor_util.make_ndarray(value.tensor).item())
                scalars.append((value.tag, number, event.step, event.wall_time))
    return scalars


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def tensorboard(folder: Path) -> None:
    writer = EventFileWriter(str(folder))
    for step in range(300):
        value = Summary.Value(tag="loss", simple_value=1 / (step + 1))
        writer.add_event(Event(wall_time=1.7e9 + step, step=step, summary=Summary(value=[value])))
    writer.close()


def tensorboard_tensors(folder: Path) -> None:
    writer = EventFileWriter(str(folder))
    for step, dtype in enumerate(
        (np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8, np.bool_)
    ):
        for tag in ("epoch_loss", "epoch_accuracy"):
            summary = summary_v2.scalar_pb(tag, 0.5)
            value = summary.value[0]
            value.tensor.CopyFrom(tensor_util.make_tensor_proto(np.array(1, dtype)))
            writer.add_event(Event(wall_time=1.7e9 + step, step=step, summary=summary))
    writer.close()


def tensorboard_x(folder: Path) -> None:
    writer = SummaryWriter(str(folder))
    for step in range(0, 40_000, 97):
        writer.add_scalar("train/loss", 3.0 / (step + 1), step, walltime=1.7e9 + step)
        writer.add_scalar("train/lr", step * 1e-6, step)
    writer.close()


def tensorboard_x_with_all_else(folder: Path) -> None:
    writer = SummaryWriter(str(folder))
    dice = np.random.default_rng(7)
    for step in range(5):
        writer.add_scalar("loss", float("nan") if step == 3 else step / 3, step)
        writer.add_histogram("weights", dice.normal(size=1000), step)
        writer.add_image("sample", dice.random((3, 300, 400)), step)
        writer.add_text("note", "words " * 100, step)
        writer.add_pr_curve("curve", dice.integers(2, size=50), dice.random(50), step)
        writer.add_scalar("lr", 0.5, step)
    writer.close()


WRITERS = (tensorboard, tensorboard_tensors, tensorboard_x, tensorboard_x_with_all_else)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_what_real_writers_write_is_read_as_tensorboard_reads_it(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    write(tmp_path)
    path = only_file(tmp_path)
    expected = theirs(path)
    assert len(expected) >= 10
    assert repr([tuple(scalar) for scalar in ours(path)]) == repr(expected)  # NaN is not equal to itself


def captures() -> Iterator[Path]:
    return CAPTURES.rglob("events.out.tfevents.*")


@pytest.mark.filterwarnings("ignore")
def test_files_of_other_people_are_read_as_tensorboard_reads_them() -> None:
    paths = list(captures())
    if not paths:
        pytest.skip("this machine has no captured files")
    for path in paths:
        expected = theirs(path)
        assert expected
        assert [tuple(scalar) for scalar in ours(path)] == expected


@pytest.mark.parametrize(
    ("write", "has_pid"), [(tensorboard, True), (tensorboard_x, False)], ids=("tensorboard", "tensorboardX")
)
@pytest.mark.filterwarnings("ignore")
def test_the_name_tells_the_host_that_wrote_it(
    write: Callable[[Path], None], has_pid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def name() -> str:
        return "node-7.cluster.local"

    monkeypatch.setattr(socket, "gethostname", name)
    write(tmp_path)
    parsed = parse_name(only_file(tmp_path).name)
    assert parsed.host == "node-7.cluster.local"
    assert (parsed.pid is not None) is has_pid
    assert parsed.created_s is not None
    assert parsed.created_s > 1.7e9
