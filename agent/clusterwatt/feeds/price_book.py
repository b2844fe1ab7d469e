"""The price book: prices of energy and of hours of GPUs, and budgets of accounts (docs/COST.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timezone
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from clusterwatt.config import records
from clusterwatt.config.document import Origin
from clusterwatt.config.model import NotEmpty, Pattern
from clusterwatt.config.problems import Problem, shown
from clusterwatt.config.records import Record
from clusterwatt.feeds.tariff import Electricity, Money, Part, Tariff, tariff_of

EXAMPLE = "price-book.example.yaml"
HOURS_PER_YEAR = 8766.0  # of 365.25 days
OLD_DAYS = 366

Purchase = Literal["on_demand", "spot", "reserved", "owned"]


class Owned(Part, frozen=True):
    """A GPU's share of what was bought, spread over the hours in which it is used."""

    capital: Money
    lifetime_years: Annotated[float, Meta(gt=0, le=50)]
    utilisation_ratio: Annotated[float, Meta(gt=0, le=1)] = 1.0
    upkeep_per_year: Money = 0.0

    @property
    def per_hour(self) -> float:
        """Price of an hour of use."""
        per_year = self.capital / self.lifetime_years + self.upkeep_per_year
        return per_year / (HOURS_PER_YEAR * self.utilisation_ratio)


class Gpu(Part, frozen=True):
    """Prices of GPUs whose name, as the driver states it, has a match for the pattern `name`."""

    name: Pattern
    purchase: Purchase | None = None
    on_demand_per_hour: Money | None = None
    spot_per_hour: Money | None = None
    reserved_per_hour: Money | None = None
    owned: Owned | None = None
    includes_power: bool | None = None

    def per_hour(self, purchase: str) -> float | None:
        """The price when it is bought so; None when the book does not say."""
        if purchase == "owned":
            return None if self.owned is None else self.owned.per_hour
        price: float | None = getattr(self, f"{purchase}_per_hour")
        return price


class Node(Part, frozen=True):
    """How the GPUs of nodes whose whole name matches the pattern are bought."""

    name: Pattern
    purchase: Purchase


class Budget(Part, frozen=True):
    """What an account may spend in a calendar month."""

    account: NotEmpty
    per_month: Money


class Pages(Part, frozen=True):
    """The file."""

    as_of: NotEmpty
    currency: NotEmpty
    source: NotEmpty = "book"
    purchase: Purchase = "on_demand"
    electricity: Electricity | None = None
    gpus: tuple[Gpu, ...] = ()
    nodes: tuple[Node, ...] = ()
    budgets: tuple[Budget, ...] = ()


class Rate(msgspec.Struct, frozen=True):
    """What an hour of a GPU costs, and whether its energy is in the price."""

    price_per_hour: float
    includes_power: bool


class Book:
    """A book that was checked, ready to be asked."""

    def __init__(self, pages: Pages, as_of: date, tariff: Tariff | None) -> None:
        self.pages = pages
        self.as_of = as_of
        self._tariff = tariff

    def price_per_kwh(self, wall_s: float) -> float | None:
        """What a kilowatt-hour costs at a Unix time; None without a price of electricity."""
        if self._tariff is not None:
            return self._tariff.price_per_kwh(wall_s)
        electricity = self.pages.electricity
        return None if electricity is None else electricity.price_per_kwh

    def gpu_rate(self, name: str, node: str) -> Rate | None:
        """What an hour of a GPU of this name costs on a node; None when the book does not say."""
        gpu = next((gpu for gpu in self.pages.gpus if re.search(gpu.name, name)), None)
        if gpu is None:
            return None
        of_node = next((one.purchase for one in self.pages.nodes if re.fullmatch(one.name, node)), None)
        purchase = of_node or gpu.purchase or self.pages.purchase
        per_hour = gpu.per_hour(purchase)
        if per_hour is None:
            return None
        # Who rents a GPU has paid for its energy; who owns it has not.
        includes = purchase != "owned" if gpu.includes_power is None else gpu.includes_power
        return Rate(per_hour, includes)

    def notes(self, now_s: float) -> Iterator[str]:
        """What to know before the book is believed."""
        age_days = (datetime.fromtimestamp(now_s, timezone.utc).date() - self.as_of).days
        if age_days > OLD_DAYS:
            yield f"its prices are as of {self.as_of}, more than a year ago: bring them up to date"


def load(path: Path) -> Book:
    """The book in a file. Raises ConfigError, with one line for each mistake."""
    return checked(records.read(path, Pages))


def example() -> Book:
    """The book that is shipped, for simulated GPUs."""
    text = resources.files("clusterwatt").joinpath(f"data/{EXAMPLE}").read_text(encoding="utf-8")
    return checked(records.parse(text, Pages, Origin(EXAMPLE, has_lines=True)))


def checked(record: Record[Pages]) -> Book:
    """The book of pages that were read. Raises ConfigError with what is wrong between them."""
    problems: list[Problem] = []
    pages = record.content
    as_of = date.min
    try:
        as_of = date.fromisoformat(pages.as_of)
    except ValueError:
        said = f'expected a date as 2026-09-30, got "{shown(pages.as_of)}"'
        problems.append(record.problem("as_of", said))
    if not re.fullmatch(r"[A-Z]{3}", pages.currency):
        said = f'expected three capital letters as EUR (ISO 4217), got "{shown(pages.currency)}"'
        problems.append(record.problem("currency", said))
    tariff = tariff_of(pages.electricity, record, problems)
    problems += _gpus(record)
    problems += _budgets(record)
    record.settle(problems)
    return Book(pages, as_of, tariff)


def _gpus(record: Record[Pages]) -> Iterator[Problem]:
    pages = record.content
    for index, gpu in enumerate(pages.gpus):
        purchase = gpu.purchase or pages.purchase
        is_known = not any(map(record.is_wrong, ("purchase", f"gpus[{index}].purchase")))
        if gpu.per_hour(purchase) is None and is_known:
            missing = "owned" if purchase == "owned" else f"{purchase}_per_hour"
            said = f"missing: a price for purchase {purchase}, or say with purchase how it is bought"
            yield record.problem(f"gpus[{index}].{missing}", said)


def _budgets(record: Record[Pages]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, budget in enumerate(record.content.budgets):
        if budget.account in first:
            line = record.line(f"budgets[{first[budget.account]}]")
            said = f"{shown(budget.account)} has a budget on {line}: keep one of them"
            yield record.problem(f"budgets[{index}].account", said)
        first.setdefault(budget.account, index)
