"""One call at a time, nothing queued behind a call that hangs, nothing joined at exit."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from clusterwatt.worker import Countdown, Outcome, Worker
from tests.clocks import FakeClock


def test_a_result_and_its_times_are_reported() -> None:
    clock, done, outcomes = FakeClock(monotonic_s=5.0), threading.Event(), []

    def take(outcome: Outcome[int]) -> None:
        outcomes.append(outcome)
        done.set()

    worker = Worker("test", clock)
    assert worker.start(lambda: 42, take)
    assert done.wait(5)
    assert outcomes == [Outcome(result=42, error=None, started_s=5.0, ended_s=5.0)]
    assert worker.busy_since_s is None


def test_an_exception_is_an_outcome_and_the_next_call_runs() -> None:
    worker, done, outcomes = Worker("test", FakeClock()), threading.Event(), []
    for call in (lambda: 1 // 0, lambda: 7):
        done.clear()

        def take(outcome: Outcome[int]) -> None:
            outcomes.append(outcome)
            done.set()

        assert worker.start(call, take)
        assert done.wait(5)
    assert isinstance(outcomes[0].error, ZeroDivisionError)
    assert outcomes[1].result == 7


def test_a_report_that_fails_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    worker, done = Worker("test", FakeClock()), threading.Event()

    def fail(_: Outcome[None]) -> None:
        raise RuntimeError("a bug")

    assert worker.start(lambda: None, fail)
    assert worker.start(lambda: None, lambda _: done.set()) or worker.busy_since_s is not None
    if not done.wait(0.5):
        assert worker.start(lambda: None, lambda _: done.set())
    assert done.wait(5)
    assert "a bug" in caplog.text


def test_no_second_call_is_made_behind_one_that_hangs() -> None:
    clock, release, done = FakeClock(monotonic_s=1.0), threading.Event(), threading.Event()
    worker = Worker("test", clock)
    assert worker.start(release.wait, lambda _: done.set())
    clock.advance(60.0)
    assert not worker.start(lambda: None, lambda _: None)
    assert worker.busy_since_s == 1.0
    release.set()
    assert done.wait(5)
    assert worker.start(lambda: None, lambda _: None)


def test_a_stopped_worker_ends_its_thread_after_the_call_that_is_out() -> None:
    release, done = threading.Event(), threading.Event()
    worker = Worker("test", FakeClock())
    assert worker.start(release.wait, lambda _: done.set())
    worker.stop()
    release.set()
    worker._thread.join(5)
    assert done.is_set()
    assert not worker._thread.is_alive()


def test_a_process_with_a_hanging_worker_can_exit() -> None:
    script = (
        "import threading; from clusterwatt.worker import Worker; from clusterwatt.clock import SystemClock;"
        "Worker('hung', SystemClock()).start(threading.Event().wait, print)"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=20, check=False).returncode == 0


def test_a_countdown_calls_once_at_zero() -> None:
    calls: list[int] = []
    countdown = Countdown(100, lambda: calls.append(1))

    def tick_ten_times() -> None:
        for _ in range(10):
            countdown.tick()

    threads = [threading.Thread(target=tick_ten_times) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]
    countdown.tick()
    assert calls == [1]
