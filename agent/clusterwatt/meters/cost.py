"""Money of energy and of GPU time, at the prices that held in the interval."""

from __future__ import annotations

from clusterwatt.meters.carbon import JOULES_PER_KWH

SECONDS_PER_HOUR = 3600.0


def energy_cost(joules: float | None, pue: float, price_per_kwh: float | None) -> float | None:
    """What an interval's energy cost, that of the site around it included; None where either is not known.

    For a GPU whose price includes power there is no price of energy: give None.
    """
    if joules is None or price_per_kwh is None:
        return None
    return joules / JOULES_PER_KWH * pue * price_per_kwh


def gpu_cost(gpu_seconds: float, price_per_hour: float | None) -> float | None:
    """What an interval of a GPU's time cost; seconds are times the share held. None without a price."""
    return None if price_per_hour is None else gpu_seconds / SECONDS_PER_HOUR * price_per_hour
