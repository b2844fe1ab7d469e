"""What Slurm says of the node, from answers in the form of sinfo."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.config.load import load
from clusterwatt.config.model import SlurmNode as Settings
from clusterwatt.learnt import Learnt
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.work import SchedulerNode
from clusterwatt.wanted import Known, wanted
from clusterwatt.workloads.slurm_node import GRES_WIDTH, STATE_WIDTH, SlurmNodeCollector, gpus, withdrawn
from tests.clocks import FakeClock


def line(state: str, gres: str = "gpu:8") -> bytes:
    """A node as sinfo prints it: columns without a blank between them."""
    return (state[:STATE_WIDTH].ljust(STATE_WIDTH) + gres[:GRES_WIDTH].ljust(GRES_WIDTH)).encode()


class Slurm:
    """Stands in for sinfo."""

    def __init__(self, *answer: bytes | OSError) -> None:
        self.answer: Sequence[bytes | OSError] = answer
        self.commands: list[Sequence[str]] = []

    def lines(self, command: Sequence[str], _: float) -> Iterator[bytes]:
        self.commands.append(command)
        for each in self.answer:
            if isinstance(each, OSError):
                raise each
            yield each


def told(*answer: bytes, **settings: bool) -> list[Reading]:
    return list(SlurmNodeCollector(Settings(**settings), FakeClock(), Slurm(*answer).lines).collect())  # type: ignore[arg-type] # one of its flags


@pytest.mark.parametrize(
    ("state", "is_withdrawn"),
    [
        ("idle", False),
        ("mixed-", False),
        ("allocated+", False),
        ("completing", False),
        ("idle~", False),  # sleeps, to save power
        ("idle#", False),
        ("reserved", False),
        ("planned", False),
        ("unknown", False),
        ("down", False),  # nobody has said that it should be
        ("down*", False),
        ("inval", False),
        ("idle@", False),  # a reboot is asked for, and jobs may still run
        ("drained", True),
        ("drained*", True),
        ("draining", True),
        ("draining@", True),
        ("maint", True),
        ("maint*", True),
        ("down$", True),
        ("reboot^", True),
        ("down^", True),
        ("fail*", True),
        ("failing", True),
    ],
)
def test_states_in_which_somebody_has_taken_the_node_out(state: str, *, is_withdrawn: bool) -> None:
    assert told(line(state)) == [SchedulerNode("slurm", maintenance=is_withdrawn, gpus=8)]


@pytest.mark.parametrize(
    ("gres", "number"),
    [
        ("(null)", None),
        ("", None),
        ("gpu:8", 8),
        ("gpu:8(S:0-1)", 8),
        ("gpu:a100:8(S:0-1)", 8),
        ("gpu:a100:4(S:0,2),gpu:h100:4(S:1,3),nvme:2", 8),
        ("gpu:h100:8,shard:h100:32", 8),
        ("mps:800", None),
        ("gpu:1g.10gb:14", None),  # instances are no GPUs
        ("gpu:a100:6,gpu:a100_3g.20gb:4(S:1)", None),
    ],
)
def test_gpus_that_the_node_should_have(gres: str, number: int | None) -> None:
    assert told(line("idle", gres)) == [SchedulerNode("slurm", maintenance=False, gpus=number)]


def test_a_node_in_several_partitions_is_one_node() -> None:
    assert told(line("drained"), line("drained")) == [SchedulerNode("slurm", maintenance=True, gpus=8)]


def test_a_site_whose_drains_are_no_maintenance_says_so() -> None:
    said = told(line("drained"), drain_is_maintenance=False)
    assert said == [SchedulerNode("slurm", maintenance=False, gpus=8)]


def test_its_own_node_is_asked_for_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmctld then answers with one node in place of its whole table."""
    monkeypatch.setattr("platform.node", lambda: "gpu17.cluster.example")
    monkeypatch.delenv("NODE_NAME", raising=False)
    slurm = Slurm(line("idle"))
    for settings in (Settings(), Settings(node_name="n-17", commands="/opt/slurm/bin")):
        list(SlurmNodeCollector(settings, FakeClock(), slurm.lines).collect())
    assert [(command[0], command[-1]) for command in slurm.commands] == [
        ("sinfo", "--nodes=gpu17"),
        ("/opt/slurm/bin/sinfo", "--nodes=n-17"),
    ]


def test_what_slurm_said_last_stands_while_it_cannot_be_asked() -> None:
    slurm = Slurm(line("drained"))
    clock = FakeClock()
    collector = SlurmNodeCollector(Settings(), clock, slurm.lines)
    said = list(collector.collect())
    for silence in (
        OSError(errno.EIO, "sinfo ended with 1"),
        TimeoutError(errno.ETIMEDOUT, "sinfo took long"),
    ):
        slurm.answer = [silence]
        clock.advance(40_000.0)
        problem, *rest = collector.collect()
        assert isinstance(problem, Failure)
        assert (problem.item, rest) == ("", said)
    clock.advance(40_000.0)
    with pytest.raises(OSError, match="took long"):  # after a day nobody may be kept from hearing of the node
        list(collector.collect())
    slurm.answer = [line("idle")]
    assert list(collector.collect()) == [SchedulerNode("slurm", maintenance=False, gpus=8)]


@pytest.mark.parametrize("answer", [(), (b"",), (b"sinfo: warning: something",), (OSError("no controller"),)])
def test_before_slurm_has_ever_spoken_nothing_is_said(answer: tuple[bytes | OSError, ...]) -> None:
    with pytest.raises(OSError, match=r"no controller|node_name|no state"):
        list(SlurmNodeCollector(Settings(), FakeClock(), Slurm(*answer).lines).collect())


@given(st.text(alphabet="drainedgpu:=/,(S:0)12k$*^ ", max_size=40))
def test_any_text_is_a_state_or_none_and_has_a_count_or_none(text: str) -> None:
    assert (gpus(text) or 0) >= 0
    with contextlib.suppress(OSError):
        withdrawn(text)


@pytest.mark.parametrize(("settings", "asks"), [([], False), (["workloads.slurm_node.enabled=true"], True)])
def test_it_is_asked_only_where_the_site_wants_it(settings: list[str], *, asks: bool) -> None:
    config = load(None, {}, settings).config
    names = {one.name for one in wanted(config, FakeClock(), Known(lambda: None, Learnt(None, FakeClock())))}
    assert ("slurm_node" in names) is asks
