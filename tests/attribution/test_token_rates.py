from __future__ import annotations

import pytest

from clusterwatt.attribution.token_rates import TokenRate

T0 = 1_700_000_000.0


def test_one_total_is_no_rate() -> None:
    assert TokenRate().take(1e9, T0, T0) is None


def test_the_rate_is_by_the_runs_own_clock() -> None:
    rate = TokenRate()
    rate.take(0.0, T0, T0 + 3)
    assert rate.take(1_000.0, T0 + 10, T0 + 14) == 100.0


def test_ticks_between_two_logs_change_nothing() -> None:
    rate = TokenRate()
    rate.take(0.0, T0, T0)
    rates = {rate.take(1_000.0, T0 + 10, T0 + 10 + tick) for tick in range(20)}
    assert rates == {100.0}


def test_an_event_without_new_tokens_is_no_point() -> None:
    rate = TokenRate()
    rate.take(0.0, T0, T0)
    rate.take(1_000.0, T0 + 10, T0 + 10)
    assert rate.take(1_000.0, T0 + 15, T0 + 15) == 100.0


def test_the_mean_is_over_two_minutes() -> None:
    rate = TokenRate()
    for second in range(0, 600, 10):
        slow = rate.take(second * 100.0, T0 + second, T0 + second)
    assert slow == 100.0
    for second in range(600, 800, 10):
        fast = rate.take(60_000.0 + (second - 600) * 200.0, T0 + second, T0 + second)
    assert fast == 200.0


def test_who_logs_rarely_has_the_rate_between_two_logs() -> None:
    rate = TokenRate()
    rate.take(0.0, T0, T0)
    rate.take(60_000.0, T0 + 600, T0 + 600)
    assert rate.take(180_000.0, T0 + 1_200, T0 + 1_200) == 200.0


def test_a_run_that_hangs_slows_down_to_nothing() -> None:
    rate = TokenRate()
    rate.take(0.0, T0, T0)
    rate.take(1_000.0, T0 + 10, T0 + 10)
    assert rate.take(1_000.0, T0 + 10, T0 + 50) == pytest.approx(20.0)
    assert rate.take(1_000.0, T0 + 10, T0 + 200) == 0.0


def test_a_run_that_starts_over_has_no_negative_rate() -> None:
    rate = TokenRate()
    rate.take(0.0, T0, T0)
    rate.take(1e6, T0 + 10, T0 + 10)
    assert rate.take(0.0, T0 + 20, T0 + 20) is None
    assert rate.take(1_000.0, T0 + 30, T0 + 30) == 100.0


def test_what_is_kept_is_bounded() -> None:
    rate = TokenRate()
    for second in range(10_000):
        rate.take(float(second), T0 + second, T0 + second)
    assert len(rate._points) <= 122
