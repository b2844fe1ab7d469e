"""What joules and seconds are multiplied by, now: intensity of the grid, prices, PUE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from clusterwatt.attribution.entries import Amounts
from clusterwatt.attribution.words import Parts
from clusterwatt.meters.carbon import grams
from clusterwatt.meters.cost import energy_cost, gpu_cost
from clusterwatt.readings.work import (
    CarbonIntensity,
    ElectricityPrice,
    GpuPrice,
    PowerUsageEffectiveness,
)


class Rates(msgspec.Struct, frozen=True):
    """Rates of one instant; what no feed states is None, and what it would price has no price."""

    pue: float
    intensity: CarbonIntensity | None = None
    electricity: ElectricityPrice | None = None
    gpus: Mapping[str, GpuPrice] = {}

    @classmethod
    def of(cls, parts: Parts, pue: float) -> Rates:
        """The rates in use now; `pue` where no reading states it."""
        stated: tuple[PowerUsageEffectiveness, ...] = parts.get(PowerUsageEffectiveness, ())
        return cls(
            pue=stated[0].effectiveness if stated else pue,
            intensity=next(iter(parts.get(CarbonIntensity, ())), None),
            electricity=next(iter(parts.get(ElectricityPrice, ())), None),
            gpus={price.name: price for price in parts.get(GpuPrice, ())},
        )

    def priced_gpu(self, amounts: Amounts, name: str) -> Iterator[tuple[str, Amounts]]:
        """Amounts of a GPU of this model with their carbon and money, by currency.

        Where the GPU's time and its energy are paid in different currencies, the energy's money comes apart.
        """
        price = self.gpus.get(name)
        electricity = None if price is not None and price.includes_power else self.electricity
        amounts.carbon_grams = self._grams(amounts)
        money = self._energy_cost(amounts, electricity)
        if price is None:
            amounts.energy_cost = money
            yield ("" if money is None or electricity is None else electricity.currency), amounts
            return
        amounts.gpu_cost = gpu_cost(amounts.gpu_seconds, price.price_per_hour)
        if electricity is None or electricity.currency == price.currency:
            amounts.energy_cost = money
        elif money is not None:
            yield electricity.currency, Amounts(energy_cost=money)
        yield price.currency, amounts

    def priced_host(self, amounts: Amounts) -> tuple[str, Amounts]:
        """Amounts of a part of the host; its energy is in the price of the GPUs where theirs is."""
        rented = any(price.includes_power for price in self.gpus.values())
        electricity = None if rented else self.electricity
        amounts.carbon_grams = self._grams(amounts)
        amounts.energy_cost = self._energy_cost(amounts, electricity)
        return ("" if amounts.energy_cost is None or electricity is None else electricity.currency), amounts

    def _grams(self, amounts: Amounts) -> float | None:
        intensity = self.intensity
        return grams(amounts.joules, self.pue, None if intensity is None else intensity.grams_per_kwh)

    def _energy_cost(self, amounts: Amounts, electricity: ElectricityPrice | None) -> float | None:
        return energy_cost(
            amounts.joules, self.pue, None if electricity is None else electricity.price_per_kwh
        )
