"""GPM as a collector of its own: up, age, stuck, nothing at all where no GPU has it."""

from __future__ import annotations

from clusterwatt.driver.frames import DriverState, Frame, GpmFrame
from clusterwatt.driver.gpm_agent import GpmState
from clusterwatt.readings.agent import CollectorState
from clusterwatt.readings.base import Failure

BORN_S = 1000.0


def frame(
    sent_s: float,
    *,
    offered: bool | None = True,
    read_s: float | None = None,
    call_since_s: float | None = None,
    failures: tuple[Failure, ...] = (),
) -> Frame:
    gpm = GpmFrame(offered, read_s, call_since_s, (), failures)
    return Frame(sent_s, DriverState(up=True), 1, (), gpm=gpm)


def made() -> GpmState:
    return GpmState(BORN_S, 1.0, 0.8)


def said(state: GpmState, now_s: float) -> CollectorState:
    (reading,) = state.state(now_s)
    return reading


def test_nothing_is_said_before_a_gpu_has_and_where_none_has_gpm() -> None:
    state = made()
    assert list(state.state(BORN_S)) == []
    state.heard(frame(1001.0, offered=None))
    assert list(state.state(1001.0)) == []
    state.heard(frame(1002.0, offered=False))
    assert list(state.state(1002.0)) == []


def test_up_while_samples_come_and_down_when_they_are_stale() -> None:
    state = made()
    state.heard(frame(1001.0))
    assert said(state, 1001.0) == CollectorState("gpm", up=0.0, age_seconds=1.0, stuck_seconds=0.0)
    state.heard(frame(1002.0, read_s=1001.9))
    assert said(state, 1002.0).up == 1.0
    state.heard(frame(1006.0, read_s=1001.9))
    now = said(state, 1006.0)
    assert now.up == 0.0
    assert round(now.age_seconds, 1) == 4.1


def test_a_call_that_hangs_is_stuck_also_when_it_is_the_first() -> None:
    for offered in (True, None):
        state = made()
        state.heard(frame(1010.0, offered=offered, call_since_s=1003.0))
        now = said(state, 1011.0)
        assert (now.up, now.stuck_seconds) == (0.0, 8.0)


def test_age_grows_while_no_host_speaks() -> None:
    state = made()
    state.heard(frame(1002.0, read_s=1002.0))
    now = said(state, 1062.0)
    assert (now.up, now.age_seconds) == (0.0, 60.0)


def test_failures_are_taken_once() -> None:
    state = made()
    failure = Failure("GPU-a", "permission")
    state.heard(frame(1001.0, failures=(failure,)))
    state.heard(frame(1002.0, failures=(failure,)))
    assert state.take_failures() == [failure, failure]
    assert state.take_failures() == []
