"""What the price collector says: nothing without a book, prices of what is there, never a wrong book."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

import pytest

from clusterwatt.config.model import Price
from clusterwatt.config.problems import ConfigError
from clusterwatt.feeds.price import PriceCollector, check, effectiveness, time_zone
from clusterwatt.readings.base import Failure
from clusterwatt.readings.work import AccountMonth, ElectricityPrice, GpuPrice, PowerUsageEffectiveness
from tests.clocks import FakeClock

H100 = "NVIDIA H100 80GB HBM3"
BOOK = r"""
as_of: 2026-09-30
currency: EUR
electricity:
  zone: DE
  time_zone: UTC
  periods:
    - {price_per_kwh: 0.30, hours: [7-20]}
    - {price_per_kwh: 0.15, hours: [20-7]}
gpus:
  - {name: \bH100\b, on_demand_per_hour: 3}
budgets:
  - {account: vision, per_month: 5000}
"""
EVENING = datetime(2026, 11, 30, 19, 59, 55, tzinfo=timezone.utc).timestamp()


def prices(
    book: Path | str, clock: FakeClock | None = None, *names: str, **options: object
) -> PriceCollector:
    settings = Price(book=str(book))
    return PriceCollector(settings, clock or FakeClock(EVENING), lambda: names, **options)  # type: ignore[arg-type]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    file = tmp_path / "book.yaml"
    file.write_text(BOOK)
    return file


def test_without_a_book_nothing_has_a_price() -> None:
    assert list(prices("", None, H100).collect()) == []


def test_prices_of_the_gpus_that_are_there(book: Path, caplog: pytest.LogCaptureFixture) -> None:
    collector = prices(book, None, H100, H100, "Tesla T4")
    assert (
        list(collector.collect())
        == list(collector.collect())
        == [
            ElectricityPrice("book", "DE", "EUR", 0.30),
            GpuPrice(H100, "book", "EUR", 3.0, includes_power=True),
            AccountMonth("vision", "EUR", None, 5000.0),
        ]
    )
    (record,) = caplog.records
    assert "no price for Tesla T4" in record.getMessage()


def test_the_price_changes_with_the_hour(book: Path) -> None:
    clock = FakeClock(EVENING)
    collector = prices(book, clock)
    before = next(iter(collector.collect()))
    clock.advance(5.0)
    after = next(iter(collector.collect()))
    assert isinstance(before, ElectricityPrice)
    assert isinstance(after, ElectricityPrice)
    assert (before.price_per_kwh, after.price_per_kwh) == (0.30, 0.15)


def test_pue_is_told_when_it_is_configured() -> None:
    assert list(effectiveness(1.4)) == [PowerUsageEffectiveness(1.4)]
    assert list(effectiveness(1.0)) == []


def test_simulated_gpus_have_example_prices_and_a_book_goes_before_them(book: Path) -> None:
    electricity, gpu, *_ = prices("", None, H100, example=lambda: True).collect()
    assert isinstance(electricity, ElectricityPrice)
    assert isinstance(gpu, GpuPrice)
    assert electricity.source == gpu.source == "example"
    electricity, *_ = prices(book, None, H100, example=lambda: True).collect()
    assert isinstance(electricity, ElectricityPrice)
    assert electricity.source == "book"


def failures(collector: PriceCollector) -> list[Failure]:
    return [reading for reading in collector.collect() if isinstance(reading, Failure)]


def test_a_book_that_is_made_wrong_leaves_the_last_right_one(book: Path) -> None:
    collector = prices(book)
    assert not failures(collector)
    replace(book, BOOK.replace("EUR", "euro"))
    (failure,) = failures(collector)
    assert (failure.item, failure.reason, failure.ongoing) == ("", "bad_book", False)
    assert failure.detail == (
        f'{book}:3:1: currency: expected three capital letters as EUR (ISO 4217), got "euro"; '
        "the one as of 2026-09-30 stands"
    )
    assert [failure.ongoing for failure in failures(collector)] == [True]
    assert ElectricityPrice("book", "DE", "EUR", 0.30) in list(collector.collect())
    book.unlink()
    assert [failure.ongoing for failure in failures(collector)] == [False]
    assert [failure.ongoing for failure in failures(collector)] == [True]
    replace(book, BOOK.replace("0.30", "0.31"))
    assert not failures(collector)
    assert ElectricityPrice("book", "DE", "EUR", 0.31) in list(collector.collect())


def test_a_book_that_comes_later_is_taken(tmp_path: Path) -> None:
    book = tmp_path / "book.yaml"
    collector = prices(book)
    (failure,) = collector.collect()
    assert isinstance(failure, Failure)
    assert failure.detail == f"{book}: cannot be read: No such file or directory; nothing has a price"
    replace(book, BOOK)
    assert not failures(collector)


def test_the_start_refuses_a_wrong_book(book: Path) -> None:
    check(Price(book=str(book)))
    check(Price())
    replace(book, "nonsense: 1\n")
    with pytest.raises(ConfigError, match="nonsense: unknown"):
        check(Price(book=str(book)))


def replace(book: Path, text: str) -> None:
    """Write a file anew and put it in the place of the old one, as editors and mounted volumes do."""
    new = book.with_suffix(".new")
    new.write_text(text)
    os.replace(new, book)


def test_the_zone_in_which_months_begin_is_that_of_the_tariff(tmp_path: Path) -> None:
    book = tmp_path / "book.yaml"
    head = "as_of: 2026-01-01\ncurrency: EUR\n"
    book.write_text(f"{head}electricity:\n  price_per_kwh: 0.2\n  time_zone: Europe/Berlin\n")
    assert time_zone(Price(book=str(book))) == "Europe/Berlin"
    book.write_text(head)
    assert time_zone(Price(book=str(book))) == ""
    assert time_zone(Price()) == ""
