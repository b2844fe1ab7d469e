"""Amounts in columns: one row for everything that was booked on a job under one account and currency."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import msgspec

from clusterwatt.attribution.entries import Amounts, Entry, plus

COMPONENTS = ("gpu", "cpu", "dram", "other")
METHODS = ("counter", "integrated", "estimated")
IDLE = "idle"


class Totals(msgspec.Struct, gc=False):
    """What was booked, in the columns of the table `total`, in their order. None: nothing is known.

    `idle_...` is the part of held GPUs that did nothing. `energy_cost` and `gpu_cost` add up.
    """

    gpu_seconds: float | None = None
    idle_gpu_seconds: float | None = None
    unobserved_seconds: float | None = None
    observed_seconds: float | None = None
    activity_seconds: float | None = None
    tensor_observed_seconds: float | None = None
    tensor_seconds: float | None = None
    gpu_counter_joules: float | None = None
    gpu_integrated_joules: float | None = None
    gpu_estimated_joules: float | None = None
    cpu_counter_joules: float | None = None
    cpu_integrated_joules: float | None = None
    cpu_estimated_joules: float | None = None
    dram_counter_joules: float | None = None
    dram_integrated_joules: float | None = None
    dram_estimated_joules: float | None = None
    other_counter_joules: float | None = None
    other_integrated_joules: float | None = None
    other_estimated_joules: float | None = None
    idle_joules: float | None = None
    carbon_grams: float | None = None
    energy_cost: float | None = None
    gpu_cost: float | None = None
    idle_cost: float | None = None

    def plus(self, more: Totals) -> Totals:
        """The sum of both, as a new row."""
        return Totals(*(plus(getattr(self, name), getattr(more, name)) for name in COLUMNS))

    def energy(self) -> Iterator[tuple[str, str, float]]:
        """Component, method and joules of every kind of energy that is known."""
        for (component, method), column in ENERGY.items():
            joules: float | None = getattr(self, column)
            if joules is not None:
                yield component, method, joules

    def opened(self) -> Totals:
        """The same columns, each at 0."""
        return Totals(*(None if getattr(self, name) is None else 0.0 for name in COLUMNS))


COLUMNS = Totals.__struct_fields__
ENERGY = {
    (component, method): f"{component}_{method}_joules" for component, method in product(COMPONENTS, METHODS)
}


def totals_of(entry: Entry, amounts: Amounts) -> Totals:
    """Amounts of an entry, put into columns."""
    row = Totals(
        carbon_grams=amounts.carbon_grams, energy_cost=amounts.energy_cost, gpu_cost=amounts.gpu_cost
    )
    if amounts.joules is not None:
        setattr(row, ENERGY[entry.component, entry.method], amounts.joules)
    if entry.component == "gpu":
        row.gpu_seconds = amounts.gpu_seconds
        row.unobserved_seconds = amounts.unobserved_seconds
        row.idle_gpu_seconds = amounts.gpu_seconds if entry.state == IDLE else 0.0
        if amounts.observed_seconds:
            row.observed_seconds = amounts.observed_seconds
            row.activity_seconds = amounts.activity_seconds
        if amounts.tensor_observed_seconds:
            row.tensor_observed_seconds = amounts.tensor_observed_seconds
            row.tensor_seconds = amounts.tensor_seconds
    if entry.state == IDLE:
        row.idle_joules = amounts.joules
        row.idle_cost = plus(amounts.energy_cost, amounts.gpu_cost)
    return row


def known_of(amounts: Amounts) -> tuple[bool, ...]:
    """Which of the columns of an entry `totals_of` fills."""
    return (
        amounts.joules is None,
        amounts.carbon_grams is None,
        amounts.energy_cost is None,
        amounts.gpu_cost is None,
        amounts.observed_seconds > 0,
        amounts.tensor_observed_seconds > 0,
    )
