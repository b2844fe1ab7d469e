"""docs/COST.md: its book is right, its example is worked out, its service can be configured."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from clusterwatt import intensity_table
from clusterwatt.config import records
from clusterwatt.config.document import Origin
from clusterwatt.config.load import load
from clusterwatt.feeds import price_book
from clusterwatt.feeds.price_book import Pages
from clusterwatt.meters.carbon import grams
from clusterwatt.meters.cost import energy_cost, gpu_cost
from tests.machines import REPOSITORY

TEXT = (REPOSITORY / "docs" / "COST.md").read_text(encoding="utf-8")
SERVICE, BOOK = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
PUE = 1.25


def told(row: str) -> list[float]:
    """The numbers of a row of the example."""
    line = next(line for line in TEXT.splitlines() if line.startswith(f"| {row} "))
    return [float(cell) for cell in line.split("|")[2:-1]]


def known(*amounts: float | None) -> list[float]:
    assert None not in amounts
    return [amount for amount in amounts if amount is not None]


def rounded_to(digits: int, amounts: list[float]) -> object:
    return pytest.approx([*amounts, sum(amounts)], abs=0.5001 * 10**-digits)


def test_the_worked_example_is_right() -> None:
    record = records.parse(BOOK, Pages, Origin("COST.md", has_lines=True))
    book = price_book.checked(record)
    rate = book.gpu_rate("NVIDIA H100 80GB HBM3", "gpu-1")
    assert rate is not None
    assert not rate.includes_power
    evening = [
        datetime(2026, 11, 30, hour, tzinfo=ZoneInfo("Europe/Berlin")).timestamp() for hour in (18, 20)
    ]
    per_kwh = known(*(book.price_per_kwh(at_s) for at_s in evening))
    joules = [600.0 * 7200, 100.0 * 7200]
    intensity = intensity_table.rows()["DE"].grams_per_kwh
    of_energy = known(*(energy_cost(used, PUE, price) for used, price in zip(joules, per_kwh, strict=True)))
    of_gpu = known(*(gpu_cost(7200, rate.price_per_hour) for _ in joules))
    assert told("energy, kWh") == rounded_to(1, [used / 3.6e6 for used in joules])
    assert told("carbon, g") == rounded_to(2, known(*(grams(used, PUE, intensity) for used in joules)))
    assert told("money of energy, EUR") == rounded_to(4, of_energy)
    assert told("money of the GPU, EUR") == rounded_to(4, of_gpu)
    assert told("money, EUR") == rounded_to(4, [a + b for a, b in zip(of_energy, of_gpu, strict=True)])
    assert f"{of_energy[1] + of_gpu[1]:.4f} EUR of it" in TEXT


def test_the_service_can_be_configured(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("docs") / "clusterwatt.yaml"
    file.write_text(SERVICE)
    assert load(file, {}, ()).config.feeds.grid.service.header == "auth-token"
