"""The price book: tariffs by local time, prices by model and purchase, and mistakes with their place."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.config import records
from clusterwatt.config.document import Origin
from clusterwatt.config.problems import ConfigError
from clusterwatt.feeds import price_book
from clusterwatt.feeds.price_book import Book, Rate
from clusterwatt.simulate.cards import cards

HEAD = "as_of: 2026-09-30\ncurrency: EUR\n"
BERLIN = ZoneInfo("Europe/Berlin")
BY_TIME = (
    HEAD
    + """\
electricity:
  zone: DE
  time_zone: Europe/Berlin
  periods:
    - {price_per_kwh: 0.30, weekdays: [mon-fri], hours: [7-20], months: [11-2]}
    - {price_per_kwh: 0.25, weekdays: [mon-fri], hours: [7-20], months: [3-10]}
    - {price_per_kwh: 0.15, weekdays: [mon-fri], hours: [20-7]}
    - {price_per_kwh: 0.10, weekdays: [sat, sun]}
"""
)
WINTER_DAY, SUMMER_DAY, NIGHT, WEEKEND = 0.30, 0.25, 0.15, 0.10


def book(tmp_path: Path, text: str) -> Book:
    file = tmp_path / "book.yaml"
    file.write_text(text)
    return price_book.load(file)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        book(tmp_path, text)
    return str(caught.value).replace(str(tmp_path / "book.yaml"), "book")


def local(text: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


@pytest.mark.parametrize(
    ("time", "price"),
    [
        ("2026-11-30T06:59:59", NIGHT),  # a Monday
        ("2026-11-30T07:00", WINTER_DAY),
        ("2026-11-30T19:59:59", WINTER_DAY),
        ("2026-11-30T20:00", NIGHT),
        ("2026-11-30T00:00", NIGHT),
        ("2026-11-29T12:00", WEEKEND),
        ("2026-07-15T12:00", SUMMER_DAY),
        ("2026-02-27T12:00", WINTER_DAY),
        ("2026-03-02T12:00", SUMMER_DAY),
    ],
)
def test_time_of_use_is_local_time(tmp_path: Path, time: str, price: float) -> None:
    assert book(tmp_path, BY_TIME).price_per_kwh(local(time)) == price


def test_both_changes_of_the_clock_keep_to_the_hours_on_the_wall(tmp_path: Path) -> None:
    """On Friday before and Monday after the day tariff begins at 7 on the wall: 6 and 5 in UTC."""
    tariff = book(tmp_path, BY_TIME)

    def at(utc: str) -> float | None:
        return tariff.price_per_kwh(datetime.fromisoformat(utc).replace(tzinfo=timezone.utc).timestamp())

    assert (at("2026-03-27T05:59"), at("2026-03-27T06:00")) == (NIGHT, SUMMER_DAY)
    assert (at("2026-03-30T04:59"), at("2026-03-30T05:00")) == (NIGHT, SUMMER_DAY)
    assert (at("2026-10-23T04:59"), at("2026-10-23T05:00")) == (NIGHT, SUMMER_DAY)
    assert (at("2026-10-26T05:59"), at("2026-10-26T06:00")) == (NIGHT, SUMMER_DAY)
    # The hour that comes twice, and the one that is left out, have the price of their hour on the wall.
    hourly = HEAD + (
        "electricity:\n  time_zone: Europe/Berlin\n  periods:\n"
        "    - {price_per_kwh: 9, hours: [2-3]}\n    - {price_per_kwh: 1, hours: [3-2]}\n"
    )
    tariff = book(tmp_path, hourly)
    assert [at(f"2026-10-25T0{hour}:30") for hour in range(4)] == [9, 9, 1, 1]
    assert [at(f"2026-03-29T0{hour}:30") for hour in range(3)] == [1, 1, 1]


@given(st.floats(min_value=0, max_value=4e9))
def test_any_time_has_a_price(at_s: float) -> None:
    pages = HEAD + (
        "electricity:\n  time_zone: America/New_York\n  periods:\n"
        "    - {price_per_kwh: 1, hours: ['6:30-22']}\n    - {price_per_kwh: 2, hours: [22-6:30]}\n"
    )
    record = records.parse(pages, price_book.Pages, Origin("x", has_lines=True))
    local_time = datetime.fromtimestamp(at_s, ZoneInfo("America/New_York"))
    by_day = 390 <= local_time.hour * 60 + local_time.minute < 1320
    assert price_book.checked(record).price_per_kwh(at_s) == (1 if by_day else 2)


def test_one_price(tmp_path: Path) -> None:
    assert book(tmp_path, HEAD + "electricity: {price_per_kwh: '0.19'}\n").price_per_kwh(0.0) == 0.19
    assert book(tmp_path, HEAD).price_per_kwh(0.0) is None


GPUS = (
    HEAD
    + r"""
gpus:
  - {name: \bH100\b, on_demand_per_hour: 3.99, spot_per_hour: 1.25, reserved_per_hour: 2.0}
  - name: A100
    purchase: owned
    owned: {capital: 35000, lifetime_years: 4, utilisation_ratio: 0.9}
  - {name: L4, on_demand_per_hour: 0.5, includes_power: false}
nodes:
  - {name: spot-.*, purchase: spot}
"""
)


def test_prices_by_model_and_purchase(tmp_path: Path) -> None:
    prices = book(tmp_path, GPUS)
    assert prices.gpu_rate("NVIDIA H100 80GB HBM3", "gpu1") == Rate(3.99, True)
    assert prices.gpu_rate("NVIDIA H100 80GB HBM3", "spot-7") == Rate(1.25, True)
    assert prices.gpu_rate("NVIDIA H100 80GB HBM3", "my-spot-7") == Rate(3.99, True)
    assert prices.gpu_rate("NVIDIA L4", "gpu1") == Rate(0.5, False)
    assert prices.gpu_rate("NVIDIA L4", "spot-7") is None
    assert prices.gpu_rate("Tesla T4", "gpu1") is None


def test_an_owned_gpu_costs_capital_over_the_hours_of_its_use(tmp_path: Path) -> None:
    rate = book(tmp_path, GPUS).gpu_rate("NVIDIA A100-SXM4-80GB", "gpu1")
    assert rate is not None
    assert rate.price_per_hour == pytest.approx(1.11, abs=0.005)
    assert not rate.includes_power  # its energy comes on top


PERIODS = HEAD + "electricity:\n  time_zone: Europe/Berlin\n  periods:\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "book: the file is empty"),
        ("- 1\n", "book:1:1: expected a section of settings, got a list"),
        ("currency: EUR\n", "book:1:1: as_of: missing: expected text that is not empty"),
        ("as_of: autumn\ncurrency: EUR\n", 'book:1:1: as_of: expected a date as 2026-09-30, got "autumn"'),
        (
            "as_of: 2026-09-30\ncurrency: euro\n",
            'book:2:1: currency: expected three capital letters as EUR (ISO 4217), got "euro"',
        ),
        (HEAD + "electrcity: 1\n", "book:3:1: electrcity: unknown; did you mean electricity?"),
        (HEAD + "currency: USD\n", "book:3:1: currency: given twice: keep one"),
        (
            HEAD + "electricity: {price_per_kwh: '0,19'}\n",
            'book:3:15: electricity.price_per_kwh: expected a number from 0 to 1000000000, got "0,19"',
        ),
        (
            HEAD + "electricity: {zone: DE}\n",
            "book:3:1: electricity.price_per_kwh: missing: a price, or periods with a time_zone",
        ),
        (
            PERIODS.replace("Berlin", "Berlni") + "    - {price_per_kwh: 1}\n",
            'book:4:3: electricity.time_zone: expected a time zone as Europe/Berlin, got "Europe/Berlni"',
        ),
        (
            PERIODS + "    - {price_per_kwh: 1, hours: [7-20]}\n",
            "book:5:3: electricity.periods: no price on Mon in Jan from 00:00 to 07:00: add a period for it",
        ),
        (
            PERIODS + "    - {price_per_kwh: 1, months: [1-11]}\n",
            "book:5:3: electricity.periods: no price on Mon in Dec from 00:00 to 24:00: add a period for it",
        ),
        (
            PERIODS + "    - {price_per_kwh: 1}\n    - {price_per_kwh: 2, weekdays: [sat], hours: [7-20]}\n",
            (
                "book:7:7: electricity.periods[1]: overlaps the period on line 6, as on Sat in Jan at 07:00: "
                "let one end where the other begins"
            ),
        ),
        (
            PERIODS + "    - {price_per_kwh: 1, hours: [7-25]}\n",
            'book:6:34: electricity.periods[0].hours[0]: expected hours as 7-20, 6:30-22 or 22-6, got "7-25"',
        ),
        (
            PERIODS + "    - {price_per_kwh: 1, weekdays: [monday]}\n",
            (
                "book:6:37: electricity.periods[0].weekdays[0]: expected mon to sun, or a range as mon-fri, "
                'got "monday"'
            ),
        ),
        (
            HEAD + "gpus:\n  - {name: H100, spot_per_hour: 1}\n",
            (
                "book:4:5: gpus[0].on_demand_per_hour: missing: a price for purchase on_demand, or say with "
                "purchase how it is bought"
            ),
        ),
        (
            HEAD + "gpus:\n  - {name: '[', on_demand_per_hour: 1}\n",
            (
                'book:4:6: gpus[0].name: expected a regular expression, got "[": unterminated character set '
                "at position 0"
            ),
        ),
        (
            HEAD + "budgets:\n  - {account: a, per_month: 1}\n  - {account: a, per_month: 2}\n",
            "book:5:6: budgets[1].account: a has a budget on line 4: keep one of them",
        ),
        (
            HEAD + "gpus:\n  - {name: A, purchase: owned, owned: {capital: 1, lifetime_years: 0}}\n",
            "book:4:52: gpus[0].owned.lifetime_years: expected a number > 0 and <= 50, got 0",
        ),
    ],
)
def test_mistakes_are_one_line_with_place_and_remedy(tmp_path: Path, text: str, said: str) -> None:
    assert refusal(tmp_path, text) == said


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = "as_of: x\ncurrency: x\nelectricity: {}\n"
    assert len(refusal(tmp_path, text).splitlines()) == 3


def test_a_book_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        price_book.load(tmp_path / "none.yaml")


def test_the_example_prices_every_simulated_card_and_says_that_it_is_one() -> None:
    example = price_book.example()
    assert example.pages.source == "example"
    assert example.price_per_kwh(0.0) is not None
    for card in cards().values():
        assert example.gpu_rate(card.name, "node") is not None, card.name


def test_old_prices_are_told(tmp_path: Path) -> None:
    prices = book(tmp_path, HEAD)
    (note,) = prices.notes(local("2027-11-30T12:00"))
    assert "as of 2026-09-30, more than a year ago" in note
    assert not list(prices.notes(local("2026-11-30T12:00")))


def test_all_mistakes_of_a_book_are_told_at_once(tmp_path: Path) -> None:
    """Of a wrong name, a wrong type, a wrong value, what is missing, and what does not go together."""
    text = (
        "as_of: yesterday\n"
        "curency: EUR\n"
        "electricity:\n"
        "  time_zone: Europe/Berlyn\n"
        "  periods:\n"
        "  - {price_per_kwh: cheap, weekdays: [mo]}\n"
        "gpus:\n"
        "- {name: H100, spot_per_hour: 1}\n"
        "- {name: '[', on_demand_per_hour: 1}\n"
        "- {name: A100, purchase: stolen}\n"
        "budgets:\n"
        "- {account: a, per_month: 1}\n"
        "- {account: a, per_month: 2}\n"
    )
    told = [line.split(": ")[:2] for line in refusal(tmp_path, text).splitlines()]
    assert told == [
        ["book:1:1", "as_of"],
        ["book:2:1", "curency"],
        ["book:4:3", "electricity.time_zone"],
        ["book:6:6", "electricity.periods[0].price_per_kwh"],
        ["book:6:39", "electricity.periods[0].weekdays[0]"],
        ["book:8:3", "gpus[0].on_demand_per_hour"],
        ["book:9:4", "gpus[1].name"],
        ["book:10:16", "gpus[2].purchase"],
        ["book:13:4", "budgets[1].account"],
    ]
