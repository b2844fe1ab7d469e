"""Carbon and money of an interval, by hand."""

from __future__ import annotations

import pytest

from clusterwatt.meters.carbon import grams
from clusterwatt.meters.cost import energy_cost, gpu_cost

HOUR_OF_500_W = 500.0 * 3600


def test_g35_an_hour_of_500_watts_at_pue_1_25() -> None:
    assert grams(HOUR_OF_500_W, 1.25, 400.0) == pytest.approx(250.0)
    assert grams(HOUR_OF_500_W, 1.25, 300.0) == pytest.approx(187.5)


def test_g40_ten_kwh_at_pue_1_4_and_a_quarter_each() -> None:
    assert energy_cost(10 * 3.6e6, 1.4, 0.25) == pytest.approx(14 * 0.25)


def test_time_is_charged_by_the_share_held() -> None:
    assert gpu_cost(0.5 * 3600, 3.0) == pytest.approx(1.5)


def test_what_is_not_known_is_not_nothing() -> None:
    assert grams(None, 1.0, 400.0) is None
    assert grams(1.0, 1.0, None) is None
    assert energy_cost(None, 1.0, 0.25) is None
    assert energy_cost(1.0, 1.0, None) is None
    assert gpu_cost(1.0, None) is None
    assert energy_cost(0.0, 1.0, 0.25) == 0.0
