"""Sources and ticks: a hanging, failing or slow source costs its own series and nobody else's."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.pipeline import Pipeline
from clusterwatt.readings.agent import CollectorErrors, CollectorState
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.host import Load, Memory
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.source import Account, Source
from tests.clocks import FakeClock

DEADLINE_S = 5.0


class Scripted:
    """A collector that does what it is told."""

    def __init__(self, name: str, collect: Callable[[], list[Reading]]) -> None:
        self.name = name
        self._collect = collect

    def collect(self) -> list[Reading]:
        return self._collect()


class Bench:
    """A pipeline of scripted collectors under a clock that is moved by hand."""

    def __init__(self, **collectors: Callable[[], list[Reading]]) -> None:
        self.clock = FakeClock()
        self.sources = {
            name: Source(Scripted(name, collect), 1.0, self.clock, Account(name, self.clock))
            for name, collect in collectors.items()
        }
        self.snapshots: list[Snapshot] = []
        self.pipeline = Pipeline(list(self.sources.values()), None, self.clock, self.snapshots.append)

    def tick(self, seconds: float = 1.0) -> Snapshot:
        asyncio.run(self.pipeline.tick())
        snapshot = self.snapshots[-1]
        self.clock.advance(seconds)
        return snapshot

    def state(self, name: str) -> CollectorState:
        return next(s for s in self.snapshots[-1].of(CollectorState) if s.collector == name)


def counting() -> Iterator[Reading]:
    number = 0
    while True:
        number += 1
        yield Load(load1=float(number))


def steady() -> Callable[[], list[Reading]]:
    numbers = counting()
    return lambda: [next(numbers)]


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_tick_publishes_what_every_source_said() -> None:
    bench = Bench(a=steady(), b=lambda: [Memory(total_bytes=1.0)])
    snapshot = bench.tick()
    assert snapshot.of(Load) == (Load(load1=1.0),)
    assert snapshot.of(Memory) == (Memory(total_bytes=1.0),)
    assert [state.up for state in snapshot.of(CollectorState)] == [1.0, 1.0]


def test_a_hanging_source_keeps_no_other_from_going_on(release: threading.Event) -> None:
    calls: list[int] = []

    def hang() -> list[Reading]:
        calls.append(1)
        release.wait()
        return []

    bench = Bench(hangs=hang, well=steady())
    for expected in range(1, 11):
        assert bench.tick().of(Load) == (Load(load1=float(expected)),)
        assert bench.state("well").age_seconds == 0.0
    assert len(calls) == 1  # no second call behind the first
    state = bench.state("hangs")
    assert state.up == 0.0
    assert state.stuck_seconds == 9.0
    assert state.age_seconds == 9.0  # from the start until the first good reading


def test_a_source_that_comes_back_is_up_again(release: threading.Event) -> None:
    hanging = threading.Event()

    def hang_once() -> list[Reading]:
        if not hanging.is_set():
            hanging.set()
            release.wait()
        return [Load(load1=7.0)]

    bench = Bench(slow=hang_once)
    for _ in range(5):
        bench.tick()
    assert bench.snapshots[-1].of(Load) == ()
    release.set()
    began_s = time.monotonic()
    while not bench.tick().of(Load):
        assert time.monotonic() - began_s < DEADLINE_S
    assert bench.state("slow").up == 1.0
    assert bench.state("slow").stuck_seconds == 0.0


def test_what_answers_late_is_published_in_the_same_tick() -> None:
    in_time = threading.Event()

    def late() -> list[Reading]:
        in_time.wait(DEADLINE_S)
        return [Load(load1=1.0)]

    clock = FakeClock()
    snapshots: list[Snapshot] = []

    def publish(snapshot: Snapshot) -> None:
        snapshots.append(snapshot)
        in_time.set()  # the first page is out: now the late one may answer

    source = Source(Scripted("late", late), 1.0, clock, Account("late", clock))
    asyncio.run(Pipeline([source], None, clock, publish).tick())
    assert [len(snapshot.of(Load)) for snapshot in snapshots] == [0, 1]
    assert snapshots[0].tick < snapshots[1].tick


def test_what_answers_late_is_not_kept_back_by_what_hangs(release: threading.Event) -> None:
    first_page_is_out = threading.Event()
    clock = FakeClock()
    snapshots: list[Snapshot] = []

    def publish(snapshot: Snapshot) -> None:
        snapshots.append(snapshot)
        first_page_is_out.set()

    def late() -> list[Reading]:
        first_page_is_out.wait(DEADLINE_S)
        return [Load(load1=1.0)]

    def hang() -> list[Reading]:
        release.wait()
        return []

    sources = [
        Source(Scripted(name, call), 1.0, clock, Account(name, clock))
        for name, call in (("late", late), ("hangs", hang))
    ]
    asyncio.run(Pipeline(sources, None, clock, publish).tick())
    assert [len(snapshot.of(Load)) for snapshot in snapshots] == [0, 1]


def test_a_failing_source_keeps_its_readings_until_they_are_stale() -> None:
    fail = False

    def sometimes() -> list[Reading]:
        if fail:
            raise PermissionError("no")
        return [Load(load1=1.0)]

    bench = Bench(a=sometimes)
    bench.tick()
    fail = True
    present = [bool(bench.tick().of(Load)) for _ in range(5)]
    assert present == [True, True, True, False, False]
    assert bench.state("a").up == 0.0
    assert bench.snapshots[-1].of(CollectorErrors) == (
        CollectorErrors(collector="a", reason="permission", errors=5.0),
    )


def test_one_bad_item_is_counted_and_the_source_stays_up() -> None:
    bench = Bench(a=lambda: [Load(load1=1.0), Failure("mlx5_3/1", "io_error")])
    bench.tick()
    bench.tick()
    assert bench.state("a").up == 1.0
    assert bench.snapshots[-1].of(CollectorErrors)[0].errors == 2.0
    assert bench.snapshots[-1].of(Failure) == ()


def test_a_source_that_had_nothing_to_read_and_then_hangs_is_seen(release: threading.Event) -> None:
    first = True

    def empty_then_hangs() -> list[Reading]:
        nonlocal first
        if not first:
            release.wait()
        first = False
        return []

    bench = Bench(nfs=empty_then_hangs)
    assert bench.tick().of(CollectorState) == ()
    for _ in range(5):
        bench.tick()
    assert bench.state("nfs").up == 0.0
    assert bench.state("nfs").stuck_seconds == 4.0


def test_nothing_to_read_is_no_series() -> None:
    assert Bench(rdma=list).tick().of(CollectorState) == ()


def test_a_source_is_read_at_its_own_cadence() -> None:
    bench = Bench(often=steady())
    rarely = Source(
        Scripted("rarely", lambda: [Memory(total_bytes=bench.clock.monotonic_s())]),
        15.0,
        bench.clock,
        Account("rarely", bench.clock),
    )
    bench.pipeline.use([*bench.sources.values(), rarely], None)
    reads = {bench.tick().of(Memory)[0].total_bytes for _ in range(31)}
    assert len(reads) == 3


def test_three_failing_ticks_in_a_row_end_the_run_one_does_not() -> None:
    failures = iter([True, False, True, True, True])

    def publish(_: Snapshot) -> None:
        if next(failures):
            raise RuntimeError("a bug")

    pipeline = Pipeline([], None, SystemClock(), publish, every_s=0.05)
    with pytest.raises(RuntimeError, match="a bug"):
        asyncio.run(asyncio.wait_for(pipeline.run(asyncio.Event()), DEADLINE_S))
    assert next(failures, None) is None


def test_a_lasting_failure_is_one_line_and_its_end_another(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    failures = [Failure("mlx5_3/1", "io_error", "Input/output error")]
    bench = Bench(rdma=lambda: [Load(load1=1.0), *failures])
    for _ in range(100):
        bench.tick()
    assert [record.getMessage() for record in caplog.records] == [
        "rdma: mlx5_3/1: io_error Input/output error"
    ]
    failures.clear()
    bench.tick()
    assert caplog.records[-1].getMessage() == "rdma: mlx5_3/1: well again"
