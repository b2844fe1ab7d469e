"""Prices in use now, from the price book, and the PUE that is configured."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from clusterwatt.catalog import STANDARD, Table
from clusterwatt.clock import Clock
from clusterwatt.config.model import Price as Settings
from clusterwatt.config.problems import ConfigError
from clusterwatt.feeds import price_book
from clusterwatt.feeds.price_book import Book
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.work import AccountMonth, ElectricityPrice, GpuPrice, PowerUsageEffectiveness

log = logging.getLogger("clusterwatt.feeds.price")

ELECTRICITY = Table(ElectricityPrice, labels=("source", "zone", "currency"))
GPU = Table(GpuPrice, labels=("name", "source", "currency"))
PUE = Table(PowerUsageEffectiveness)
METRICS = (
    ELECTRICITY.gauge(
        "electricity_price_per_kwh", "Price of a kilowatt-hour, in use now.", "price_per_kwh", level=STANDARD
    ),
    GPU.gauge(
        "gpu_price_per_hour",
        "Price of an hour of a GPU of this model on this node, in use now.",
        "price_per_hour",
        level=STANDARD,
    ),
    PUE.gauge(
        "power_usage_effectiveness",
        "Energy of the site over energy of its computers, as configured.",
        "effectiveness",
        level=STANDARD,
    ),
)


class PriceCollector:
    """Reads the book when it changes, and says at each pass what holds now.

    `names`: models of the GPUs of this node, as in `gpu_info`; asked on the collector's thread.
    `node`: name of this node, for entries of the book that are for some nodes only.
    `example`: whether GPUs are simulated now; then, without a book, the shipped one is used.
    """

    name = "price"

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        names: Callable[[], Collection[str]],
        *,
        node: str = "",
        example: Callable[[], bool] = bool,
    ) -> None:
        self._path = Path(settings.book) if settings.book else None
        self._clock = clock
        self._names = names
        self._node = node
        self._example = example
        self._book: Book | None = None
        self._read: tuple[int, ...] | None = None
        self._wrong = ""
        self._unpriced: set[str] = set()

    def collect(self) -> Iterator[Reading]:
        """Prices and budgets; a `Failure` of the whole while the book cannot be read."""
        failure = None
        if self._path is not None:
            failure = self._refresh()
        elif self._book is None and self._example():
            self._book = price_book.example()
        if self._book is not None and (self._path is not None or self._example()):
            yield from self._prices(self._book)
        if failure is not None:
            yield failure

    def _prices(self, book: Book) -> Iterator[Reading]:
        source, currency = book.pages.source, book.pages.currency
        electricity = book.pages.electricity
        per_kwh = book.price_per_kwh(self._clock.wall_s())
        if electricity is not None and per_kwh is not None:
            yield ElectricityPrice(source, electricity.zone, currency, per_kwh)
        for name in sorted(set(self._names())):
            rate = book.gpu_rate(name, self._node)
            if rate is not None:
                yield GpuPrice(name, source, currency, rate.price_per_hour, rate.includes_power)
            elif book.pages.gpus and name not in self._unpriced:
                self._unpriced.add(name)
                log.warning(
                    "the price book has no price for %s as this node buys it: its time has no price", name
                )
        for budget in book.pages.budgets:
            yield AccountMonth(account=budget.account, currency=currency, cost=None, budget=budget.per_month)

    def _refresh(self) -> Failure | None:
        """Read the book if it is another than before; a wrong one leaves the one that there is."""
        assert self._path is not None  # `collect` has seen to it
        try:
            status = os.stat(self._path)
        except OSError as error:
            found, wrong = None, f"{self._path}: cannot be read: {error.strerror}"
        else:
            found, wrong = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns), self._wrong
        changed = found != self._read or (found is None and not self._wrong)
        if found is not None and changed:
            wrong = self._take()
        self._read, self._wrong = found, wrong
        if not wrong:
            return None
        consequence = f"the one as of {self._book.as_of} stands" if self._book else "nothing has a price"
        return Failure("", "bad_book", f"{wrong}; {consequence}", ongoing=not changed)

    def _take(self) -> str:
        assert self._path is not None  # as above
        try:
            book = price_book.load(self._path)
        except ConfigError as error:
            more = len(error.problems) - 1
            return str(error.problems[0]) + (f" (and {more} more mistakes)" if more else "")
        for note in book.notes(self._clock.wall_s()):
            log.warning("%s: %s", self._path, note)
        self._book = book
        self._unpriced.clear()
        return ""


def effectiveness(pue: float) -> Iterator[Reading]:
    """The PUE as a reading; none where it is not configured."""
    if pue > 1:
        yield PowerUsageEffectiveness(effectiveness=pue)


def time_zone(settings: Settings) -> str:
    """Name of the zone of the configured book's tariff; empty where there is none. Raises ConfigError."""
    pages = price_book.load(Path(settings.book)).pages if settings.book else None
    return "" if pages is None or pages.electricity is None else pages.electricity.time_zone


def check(settings: Settings) -> None:
    """Read the configured book once. Raises ConfigError with all its mistakes."""
    if settings.book:
        price_book.load(Path(settings.book))
