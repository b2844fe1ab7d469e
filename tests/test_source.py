"""A source whose last word is handed on while it is silent."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator

import pytest

from clusterwatt.readings.agent import CollectorState
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.host import CpuCount
from clusterwatt.source import Account, Source
from tests.clocks import FakeClock


class Feed:
    name = "feed"

    def __init__(self) -> None:
        self.silent = False

    def collect(self) -> Iterator[Reading]:
        yield CpuCount(cpus=1.0)
        if self.silent:
            yield Failure(item="", reason="silent", detail="nobody answers")


def a_pass(source: Source, clock: FakeClock) -> CollectorState:
    came = threading.Event()
    assert source.start(clock.monotonic_s(), came.set)
    assert came.wait(5)
    (state,) = (r for r in source.state(clock.monotonic_s()) if isinstance(r, CollectorState))
    return state


def test_a_silent_source_is_down_and_ages_while_its_last_word_stands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    clock, feed = FakeClock(), Feed()
    source = Source(feed, 60.0, clock, Account("feed", clock))
    assert a_pass(source, clock) == CollectorState("feed", up=1.0, age_seconds=0.0, stuck_seconds=0.0)
    feed.silent = True
    for minute in (1, 2):
        clock.advance(60.0)
        state = a_pass(source, clock)
        assert (state.up, state.age_seconds) == (0.0, 60.0 * minute)
        assert source.fresh(clock.monotonic_s())[CpuCount] == (CpuCount(cpus=1.0),)
    feed.silent = False
    clock.advance(60.0)
    assert a_pass(source, clock).up == 1.0
    assert [record.getMessage() for record in caplog.records] == [
        "feed: silent nobody answers",
        "feed: reads again",
    ]
    source.close()


def test_the_log_names_the_cause_that_is_when_it_is_no_longer_the_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    account = Account("slurm_queue", clock)
    account.pass_failed(OSError(errno.EMSGSIZE, "squeue printed more than 268435456 bytes"))
    for _ in range(4):
        clock.advance(60.0)
        account.pass_failed(OSError(errno.EIO, "squeue ended with 1: no word"))
    assert [record.getMessage().partition("] ")[2] for record in caplog.records] == [
        "squeue printed more than 268435456 bytes",
        "squeue ended with 1: no word",
    ]
