"""Quantities that keep failing or that take long are asked for less often, and reported once."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

import pytest

from clusterwatt.nvml.session import Session
from clusterwatt.readings.base import Failure
from clusterwatt.simulate.faults import Rule
from clusterwatt.simulate.nvml import uninstall
from clusterwatt.source import Account
from tests.clocks import FakeClock
from tests.nvml.drivers import Bench

MEMORY = "nvmlDeviceGetMemoryInfo"
UNKNOWN, NOT_FOUND = 999, 6
ENERGY, MEMORY_TEMPERATURE = (83, 0), (82, 0)


@pytest.fixture
def bench() -> Iterator[Bench]:
    yield Bench().open()
    uninstall()


def hits(rule: Rule, bench: Bench, seconds: int, *, field: bool = False) -> list[int]:
    """The seconds at which the broken quantity was asked for, when it is wanted once a second."""
    device, asked = bench.device(), []
    for second in range(seconds):
        before = rule.hits
        if field:
            device.fields([ENERGY, MEMORY_TEMPERATURE])
        else:
            device.ask(MEMORY)
        if rule.hits > before:
            asked.append(second)
        bench.clock.advance(1.0)
    return asked


def test_what_keeps_failing_is_asked_for_less_often_down_to_every_five_minutes(bench: Bench) -> None:
    rule = bench.faults.fail(MEMORY, UNKNOWN)
    asked = hits(rule, bench, 3_600)
    assert asked[:31] == list(range(31))  # for half a minute as always
    assert asked[31:39] == [32, 36, 44, 60, 92, 156, 284, 540]
    assert {later - earlier for earlier, later in itertools.pairwise(asked[39:])} == {300}


def test_it_comes_back_at_its_usual_pace(bench: Bench) -> None:
    device = bench.device()
    rule = bench.faults.fail(MEMORY, UNKNOWN)
    hits(rule, bench, 100)
    bench.faults.clear(rule)
    bench.clock.advance(300.0)
    for _ in range(3):
        assert device.ask(MEMORY) is not None
    bench.faults.fail(MEMORY, UNKNOWN, calls=1)
    assert device.ask(MEMORY) is None
    assert device.ask(MEMORY) is not None  # one failure after that means as little as the first


def test_a_quantity_that_has_nothing_to_say_now_is_not_in_trouble(bench: Bench) -> None:
    rule = bench.faults.fail(MEMORY, NOT_FOUND)
    assert hits(rule, bench, 10) == list(range(10))


def test_a_field_that_fails_costs_only_itself(bench: Bench) -> None:
    device = bench.device()
    bench.faults.fail("nvmlDeviceGetFieldValues", UNKNOWN, field=ENERGY[0])
    for _ in range(60):
        assert MEMORY_TEMPERATURE in device.fields([ENERGY, MEMORY_TEMPERATURE])
        bench.clock.advance(1.0)
    assert len([f for f in device.take_failures() if not f.ongoing]) == 34  # seconds 0 to 30, 32, 36, 44


def test_a_call_for_many_fields_that_fails_is_one_failure(bench: Bench) -> None:
    device = bench.device()
    device.fields([ENERGY, MEMORY_TEMPERATURE])
    rule = bench.faults.fail("nvmlDeviceGetFieldValues", UNKNOWN)
    asked = hits(rule, bench, 50, field=True)
    assert asked == [*range(31), 32, 36, 44]
    assert len(device.take_failures()) == len(asked)


def test_a_failure_says_when_it_is_tried_again_and_between_that_it_goes_on(bench: Bench) -> None:
    device = bench.device()
    bench.faults.fail(MEMORY, UNKNOWN)
    said = []
    for _ in range(34):
        device.ask(MEMORY)
        said.append([(failure.detail, failure.ongoing) for failure in device.take_failures()])
        bench.clock.advance(1.0)
    failed = f"{MEMORY}: UNKNOWN (999)"
    assert said[:30] == [[(failed, False)]] * 30
    assert said[30:32] == [[(f"{failed}; asked again in 2 s", ongoing)] for ongoing in (False, True)]
    assert said[32:] == [[(f"{failed}; asked again in 4 s", ongoing)] for ongoing in (False, True)]


def test_a_gpu_that_answered_nothing_is_not_waited_for(bench: Bench) -> None:
    device = bench.device()
    rule = bench.faults.fail(MEMORY, UNKNOWN)
    hits(rule, bench, 100)
    bench.faults.clear(rule)
    assert device.ask(MEMORY) is None
    device.lose_no_time()
    assert device.ask(MEMORY) is not None


class SlowDriver:
    """A driver in which a call takes time."""

    def __init__(self, call: str, seconds: float) -> None:
        self.bench = Bench()
        self.bench.session = Session(simulated=True, clock=self.bench.clock, slow_s=0.4)
        self.bench.open()
        self.seconds, self.calls = seconds, 0
        library, original = self.bench.library, self.bench.library.meet

        def meet(name: str, board: int | None, *, narrowed: bool = False) -> list[Rule]:
            if name == call:
                self.calls += 1
                self.bench.clock.advance(self.seconds)
            return original(name, board, narrowed=narrowed)

        library.meet = meet  # type: ignore[method-assign]  # lets time pass inside the call


@pytest.mark.parametrize("call", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetFieldValues"])
def test_a_slow_call_is_made_less_often_and_its_answers_count(call: str) -> None:
    slow = SlowDriver(call, 0.5)
    device, failures, answers = slow.bench.device(), [], 0
    for _ in range(120):
        answer = device.ask(MEMORY) if call == MEMORY else device.fields([ENERGY]) or None
        answers += answer is not None
        failures += device.take_failures()
        slow.bench.clock.advance(1.0)
    assert answers == slow.calls
    assert slow.calls <= 30  # of 120
    counted = [failure for failure in failures if not failure.ongoing]
    assert {failure.reason for failure in counted} == {"slow"}
    assert counted[0].detail == f"{call} takes 0.50 s; asked again in 2 s"
    slow.seconds = 0.1
    slow.bench.clock.advance(300.0)
    before = slow.calls
    for _ in range(5):
        device.fields([ENERGY])
        device.ask(MEMORY)
    assert slow.calls == before + 5
    uninstall()


def test_one_slow_call_means_nothing() -> None:
    slow = SlowDriver(MEMORY, 20.0)
    device = slow.bench.device()
    assert device.ask(MEMORY) is not None
    slow.seconds = 0.0
    assert device.ask(MEMORY) is not None
    assert device.take_failures() == []
    uninstall()


def test_what_goes_on_is_neither_counted_nor_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    account = Account("gpu", FakeClock())
    tried = Failure(item="GPU-a", reason="unknown", detail="x")
    for failure in (tried, *[Failure("GPU-a", "unknown", "x", ongoing=True)] * 5, tried):
        assert account.without_failures([failure]) == []
    assert account.errors == {"unknown": 2}
    assert len(caplog.records) == 1
    account.without_failures([])
    assert [record.getMessage() for record in caplog.records][1:] == ["gpu: GPU-a: well again"]
