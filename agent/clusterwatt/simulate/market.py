"""Carbon, prices and budgets of a simulated cluster: examples, with day and night (UTC)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import AccountMonth, CarbonIntensity, ElectricityPrice, GpuPrice
from clusterwatt.simulate.troubles import Troubles

SOURCE, ZONE, CURRENCY = "example", "EXAMPLE", "EUR"
STATED_EVERY_S = 900.0
GPU_PRICE_PER_HOUR = 2.4
# What an account may spend in a month for each GPU of the cluster.
BUDGETS = {"language": 900.0, "vision": 520.0, "research": 560.0, "serving": 230.0, "platform": 60.0}


class Market:
    """Prices in use. `gpu_name`: the model of the GPUs, `gpus`: of the whole cluster."""

    def __init__(self, gpu_name: str, gpus: int, troubles: Troubles) -> None:
        self._gpu_name = gpu_name
        self._gpus = gpus
        self._troubles = troubles

    def grid(self, time_s: float) -> Iterator[Reading]:
        """Much sun at noon, much gas in the evening."""
        stated_s = math.floor(time_s / STATED_EVERY_S) * STATED_EVERY_S
        hour = stated_s % 86_400.0 / 3_600.0
        noon = math.exp(-(((hour - 12.5) / 3.2) ** 2))
        evening = math.exp(-(((hour - 19.0) / 2.2) ** 2))
        grams = 310.0 - 190.0 * noon + 140.0 * evening
        yield CarbonIntensity(SOURCE, ZONE, "average", round(grams), stated_s)

    def price(self, time_s: float) -> Iterator[Reading]:
        """Electricity by the hour, GPUs by their model, and budgets."""
        hour = time_s % 86_400.0 / 3_600.0
        per_kwh = 0.11 if hour < 6 or hour >= 22 else 0.31 if 17 <= hour < 21 else 0.19
        yield ElectricityPrice(SOURCE, ZONE, CURRENCY, per_kwh)
        yield GpuPrice(self._gpu_name, SOURCE, CURRENCY, GPU_PRICE_PER_HOUR)
        for account, each in BUDGETS.items():
            cut = self._troubles.now("budget", time_s, account)
            budget = each * self._gpus * (1.0 if cut is None else cut.amount)
            yield AccountMonth(account=account, currency=CURRENCY, cost=None, budget=budget)
