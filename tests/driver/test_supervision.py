"""When a driver host is started, given up and replaced."""

from __future__ import annotations

import pytest

from clusterwatt.config.model import Driver
from clusterwatt.driver.supervision import Order, Supervision

SETTINGS = Driver(silent_seconds=15.0, grace_seconds=10.0, max_replacements_per_hour=3)


def running(settings: Driver = SETTINGS, at_s: float = 0.0) -> Supervision:
    supervision = Supervision(settings)
    assert supervision.order(at_s) is Order.START
    supervision.started(at_s)
    return supervision


def silence(supervision: Supervision, from_s: float) -> float:
    """The host falls silent and does not leave; returns when it is given up."""
    asked_s = from_s + 15.0
    assert supervision.order(asked_s - 0.1) is Order.NOTHING
    assert supervision.order(asked_s) is Order.ASK_TO_LEAVE
    assert supervision.order(asked_s + 9.9) is Order.NOTHING
    return asked_s + 10.0


def start_when_due(supervision: Supervision, now_s: float) -> float:
    while supervision.order(now_s) is not Order.START:
        now_s += 1.0
        assert now_s < 1e5
    supervision.started(now_s)
    return now_s


def test_the_first_crash_is_followed_within_three_seconds_the_next_ones_ever_later() -> None:
    supervision, now_s, pauses = running(), 0.0, []
    for _ in range(10):
        supervision.ended(now_s)
        ended_s = now_s
        while supervision.order(now_s) is not Order.START:
            now_s += 0.25
        supervision.started(now_s)
        pauses.append(now_s - ended_s)
    assert pauses[0] < 3.0
    assert pauses == sorted(pauses)
    assert pauses[-1] == 60.0  # G-07: no slower than one a minute


def test_a_host_that_was_well_for_a_minute_is_restarted_quickly_again() -> None:
    supervision = running()
    for end_s in (0.0, 10.0, 20.0, 30.0):
        supervision.ended(end_s)
        supervision.started(end_s + 5.0)
    supervision.heard(120.0)
    supervision.ended(120.0)
    assert supervision.order(121.0) is Order.START


def test_a_host_that_speaks_is_left_alone_for_ever() -> None:
    supervision = running()
    for second in range(1, 10_000):
        supervision.heard(float(second))
        assert supervision.order(second + 14.0) is Order.NOTHING


def test_a_silent_host_is_never_killed_unless_allowed() -> None:
    supervision = running()
    given_up_s = silence(supervision, 0.0)
    assert supervision.order(given_up_s) is Order.ABANDON
    assert start_when_due(supervision, given_up_s) < given_up_s + 3.0


def test_a_silent_host_is_killed_once_when_allowed_and_abandoned_when_that_does_not_help() -> None:
    supervision = running(Driver(silent_seconds=15.0, grace_seconds=10.0, kill_hung=True))
    given_up_s = silence(supervision, 0.0)
    assert supervision.order(given_up_s) is Order.KILL
    assert supervision.order(given_up_s + 9.9) is Order.NOTHING
    assert supervision.order(given_up_s + 10.0) is Order.ABANDON


def test_there_is_never_a_second_leftover() -> None:
    supervision = running()
    now_s = silence(supervision, 0.0)
    assert supervision.order(now_s) is Order.ABANDON
    now_s = start_when_due(supervision, now_s)
    now_s = silence(supervision, now_s)
    assert [supervision.order(now_s + later) for later in (0.0, 60.0, 7200.0)] == [Order.NOTHING] * 3
    assert supervision.off_reason == "hung"
    supervision.leftover_ended()
    assert supervision.order(now_s + 7201.0) is Order.ABANDON
    start_when_due(supervision, now_s + 7201.0)
    assert supervision.off_reason == ""


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_only_so_many_replacements_an_hour_then_off_with_a_reason(allowed: int) -> None:
    supervision = running(Driver(silent_seconds=15.0, grace_seconds=10.0, max_replacements_per_hour=allowed))
    now_s = 0.0
    for _ in range(allowed):
        now_s = silence(supervision, now_s)
        supervision.ended(now_s)  # it left when asked to
        now_s = start_when_due(supervision, now_s)
        assert now_s < 3000.0
    now_s = silence(supervision, now_s)
    supervision.ended(now_s)
    assert [supervision.order(now_s + later) for later in (60.0, 600.0)] == [Order.NOTHING] * 2
    assert supervision.off_reason == "gave_up"
    assert start_when_due(supervision, now_s + 600.0) >= 3600.0
