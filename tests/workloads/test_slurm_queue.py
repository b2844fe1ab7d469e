"""What waits in Slurm's queue, from answers in the form of squeue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.config.load import load
from clusterwatt.config.model import SlurmQueue as Settings
from clusterwatt.config.model import node_name
from clusterwatt.learnt import Learnt
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.work import SchedulerPending
from clusterwatt.wanted import Known, wanted
from clusterwatt.workloads.slurm_queue import COLUMNS, SlurmQueueCollector, counted
from tests.clocks import FakeClock

NONE = "N/A"
PARTITIONS = b"PartitionName=train AllowGroups=ALL State=UP\nPartitionName=debug AllowGroups=ALL State=UP"


def line(**asked: str) -> bytes:
    """A job as squeue prints it: columns without a blank between them, cut where they are too long."""
    usual = {"numnodes": "1", "numtasks": "1", "sockets": "*", "partition": "train"}
    words = {name.replace("_", "-"): text for name, text in asked.items()}
    columns = {**dict.fromkeys(COLUMNS, NONE), **usual, **words}
    return b"".join(columns[name].encode()[:width].ljust(width) for name, width in COLUMNS.items())


class Slurm:
    """Stands in for the commands; an answer that is an error is raised behind its first line."""

    def __init__(self, *jobs: bytes, partitions: bytes | OSError = PARTITIONS) -> None:
        self.jobs: Sequence[bytes | OSError] = jobs
        self.partitions = partitions
        self.commands: list[Sequence[str]] = []

    def lines(self, command: Sequence[str], _: float) -> Iterator[bytes]:
        self.commands.append(command)
        answer: Sequence[bytes | OSError] = self.jobs
        if not command[0].endswith("squeue"):
            whole = self.partitions
            answer = [whole] if isinstance(whole, OSError) else whole.splitlines()
        for each in answer:
            if isinstance(each, OSError):
                raise each
            yield each

    def collector(self) -> SlurmQueueCollector:
        return SlurmQueueCollector(Settings(), self.lines)


def told(readings: list[Reading]) -> dict[str, tuple[float, float]]:
    return {one.partition: (one.jobs, one.gpus) for one in readings if isinstance(one, SchedulerPending)}


def waits(*jobs: bytes) -> dict[str, tuple[float, float]]:
    return told(list(Slurm(*jobs).collector().collect()))


def test_an_empty_partition_is_there_with_0() -> None:
    assert waits(line(tres_per_node="gres:gpu:2")) == {"train": (1, 2), "debug": (0, 0)}
    assert waits() == {"train": (0, 0), "debug": (0, 0)}


@pytest.mark.parametrize(
    ("asked", "gpus"),
    [
        ({}, 0),
        ({"tres_per_node": "gres:gpu:2", "numnodes": "4"}, 8),  # 22.05
        ({"tres_per_node": "gpu:2"}, 2),  # 20.11
        ({"tres_per_node": "gres/gpu:a100:2", "numnodes": "3"}, 6),  # 23.11
        ({"tres_per_node": "gres:gpu"}, 1),
        ({"tres_per_node": "gres/gpu:h100"}, 1),
        ({"tres_per_node": "gres/gpu:1g.10gb:3"}, 3),
        ({"tres_per_node": "gres:nvme:4,gres:gpu:v100:1,gres:gpu:a100:2"}, 3),
        ({"tres_per_node": "gres:shard:4"}, 0),
        ({"tres_per_node": "gres:gpumem:4"}, 0),
        ({"tres_per_job": "gres:gpu:16", "numnodes": "2"}, 16),
        ({"tres_per_task": "cpu=4,gres/gpu=1", "numtasks": "8"}, 8),  # 24.05
        ({"tres_per_socket": "gres:gpu:2", "sockets": "2", "numnodes": "3"}, 12),
        ({"tres_per_job": "gres:gpu:8", "tres_per_node": "gres:gpu:4", "numnodes": "2"}, 8),
        # Where Slurm accounts GPUs it states their number itself.
        ({"tres_alloc": "cpu=4,mem=1G,node=2,billing=4,gres/gpu=16", "tres_per_task": "gres:gpu:1"}, 16),
        ({"tres_alloc": "cpu=4,gres/gpu=16,gres/gpu:a100=16"}, 16),
        ({"tres_alloc": "cpu=4,gres/gpu:a100=12,gres/gpu:h100=4"}, 16),
        ({"tres_per_node": "gres:gpu:1k"}, 1024),
    ],
)
def test_gpus_that_a_job_asks_for(asked: dict[str, str], gpus: int) -> None:
    assert waits(line(**asked))["train"] == (1, gpus)


def test_a_list_that_does_not_fit_its_column_is_not_read_to_its_cut_end() -> None:
    cut = ",".join(f"license/of_some_program_{number:04d}=1" for number in range(20))
    assert len(cut) > 256
    begins = cut[:240].rpartition(",")[0]
    almost = (begins + ",gres/gpu=" + "9" * 64)[: COLUMNS["tres-alloc"]]
    assert waits(line(tres_alloc=almost, tres_per_job="gres:gpu:16"))["train"] == (1, 16)


def test_each_task_of_an_array_is_a_job() -> None:
    task = line(tres_per_node="gres:gpu:2")
    assert waits(task, task, task)["train"] == (3, 6)


def test_a_job_that_may_run_in_several_partitions_is_counted_in_its_first() -> None:
    assert waits(line(partition="debug,train", tres_per_node="gpu:2")) == {"debug": (1, 2), "train": (0, 0)}


def test_a_question_that_fails_says_nothing_of_the_queue() -> None:
    slurm = Slurm(line())
    slurm.jobs = [line(), OSError("slurm_load_jobs error: Unable to contact slurm controller")]
    with pytest.raises(OSError, match="Unable to contact"):
        list(slurm.collector().collect())
    with pytest.raises(OSError, match="no job"):
        waits(b"squeue: warning: something else")


def test_partitions_that_cannot_be_asked_for_stay_as_they_were() -> None:
    slurm = Slurm(line())
    collector = slurm.collector()
    assert told(list(collector.collect())) == {"train": (1, 0), "debug": (0, 0)}
    slurm.partitions, slurm.jobs = OSError("no"), [line(partition="new")]
    readings = list(collector.collect())
    assert told(readings) == {"train": (0, 0), "debug": (0, 0), "new": (1, 0)}
    assert [one.item for one in readings if isinstance(one, Failure)] == ["partitions"]
    slurm.partitions = b"PartitionName=new"
    assert told(list(collector.collect())) == {"new": (1, 0)}


def test_commands_are_those_of_the_folder() -> None:
    slurm = Slurm()
    list(SlurmQueueCollector(Settings(commands="/opt/slurm/bin"), slurm.lines).collect())
    assert [command[0] for command in slurm.commands] == ["/opt/slurm/bin/squeue", "/opt/slurm/bin/scontrol"]
    list(slurm.collector().collect())
    assert slurm.commands[2][0] == "squeue"


@given(st.text(alphabet="gpures:/=,12k ", max_size=40))
def test_any_list_of_resources_has_a_count(text: str) -> None:
    assert counted(text) >= 0


@pytest.mark.parametrize(
    ("settings", "asks"),
    [
        ([], False),
        (["workloads.slurm_queue.enabled=true"], True),
        (["workloads.slurm_queue.enabled=true", f"workloads.slurm_queue.on_node={node_name()}"], True),
        (["workloads.slurm_queue.enabled=true", "workloads.slurm_queue.on_node=another"], False),
    ],
)
def test_one_agent_asks_and_only_where_it_is_told_to(settings: list[str], *, asks: bool) -> None:
    config = load(None, {}, settings).config
    names = {one.name for one in wanted(config, FakeClock(), Known(lambda: None, Learnt(None, FakeClock())))}
    assert ("slurm_queue" in names) is asks


def test_a_range_of_nodes_counts_its_lower_bound() -> None:
    assert waits(line(numnodes="2-4", tres_per_node="gres:gpu:8"))["train"] == (1, 16)


def test_a_line_that_is_no_job_takes_no_other_down() -> None:
    readings = list(Slurm(line(numnodes="?"), line(), line(partition="")).collector().collect())
    assert told(readings)["train"] == (1, 0)
    assert [one.item for one in readings if isinstance(one, Failure)] == ["jobs"]
