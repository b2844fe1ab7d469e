"""The carbon intensity in use: table, constant, service, and what stands in for a silent one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest

from clusterwatt import intensity_table
from clusterwatt.config.model import Grid, GridService
from clusterwatt.feeds.fetch import SilentError
from clusterwatt.feeds.grid import GridCollector
from clusterwatt.feeds.service import Stated
from clusterwatt.meters.carbon import grams
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.work import CarbonIntensity
from clusterwatt.source import Account
from tests.clocks import FakeClock
from tests.feeds.web import Web, body, serving

NOON = datetime(2026, 11, 30, 12, tzinfo=timezone.utc).timestamp()


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as server:
        yield server


def intensities(readings: list[Reading]) -> list[CarbonIntensity]:
    return [reading for reading in readings if isinstance(reading, CarbonIntensity)]


def collected(settings: Grid, clock: FakeClock | None = None, *, example: bool = False) -> list[Reading]:
    return list(GridCollector(settings, clock or FakeClock(NOON), example=lambda: example).collect())


def test_g35_a_carbon_service_that_answers_with_nothing(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    """500 W at PUE 1.25: 400 g/kWh while that is young, then the constant of 300; never 0, never NaN."""
    caplog.set_level("INFO")
    clock = FakeClock(NOON)
    service = GridService(url=web.url, value_path="carbonIntensity", max_age_seconds=3600.0)
    grid = GridCollector(Grid(grams_per_kwh=300.0, zone="DE", service=service, every_seconds=10.0), clock)
    account = Account("grid", clock)
    web.answer = body(b'{"carbonIntensity": 400}')

    def in_use() -> CarbonIntensity:
        (intensity,) = intensities(account.without_failures(grid.collect()))
        return intensity

    def grams_an_hour() -> float:
        found = grams(500.0 * 3600, 1.25, in_use().grams_per_kwh)
        assert found is not None
        assert math.isfinite(found)
        assert found > 0
        return found

    assert grams_an_hour() == pytest.approx(250.0)
    assert in_use().source == "127.0.0.1"
    assert in_use().stated_timestamp_seconds == NOON
    bad = [body(b""), body(b"", 503), body(b'{"carbonIntensity": null}')]
    for step in range(1, 2 * 360):  # two hours in tens of seconds
        clock.advance(10.0)
        web.answer = bad[step % 3]
        before = len(web.requests)
        found = grams_an_hour()
        assert len(web.requests) - before <= 1
        assert found == pytest.approx(250.0 if step < 360 else 187.5), step
        assert account.failing == (step >= 30)
    fallback = in_use()
    assert (fallback.source, fallback.basis, fallback.stated_timestamp_seconds) == (
        "configured",
        "average",
        None,
    )
    # Good for five minutes, then once a minute: 1 + 115.
    assert len(web.requests) == 1 + (7200 - 300) // 60
    web.answer = body(b'{"carbonIntensity": 410}')
    clock.advance(60.0)
    assert in_use().grams_per_kwh == 410.0
    assert not account.failing
    said = [record.getMessage() for record in caplog.records]
    changes = [line for before, line in zip(["", *said], said, strict=False) if state(line) != state(before)]
    assert [state(line) for line in changes] == ["silent", "fallback", "reads again"]
    # A bad state is said again every ten minutes while it lasts, and at no other time.
    assert len(said) <= len(changes) + 7200 // 600


def state(line: str) -> str:
    return next((word for word in ("silent", "fallback", "reads again") if word in line), "")


def test_the_table_by_zone_with_its_year() -> None:
    assert collected(Grid(zone="FR")) == [
        CarbonIntensity(
            "owid-ember", "FR", "average", 44.2, datetime(2024, 1, 1, tzinfo=timezone.utc).timestamp()
        )
    ]
    assert intensities(collected(Grid(zone="US-TX")))[0].source == "egrid2016"


def test_nothing_configured_is_nothing_and_no_failure() -> None:
    assert collected(Grid()) == []


def test_simulated_gpus_have_the_mean_of_the_world_marked_as_an_example() -> None:
    (world,) = intensities(collected(Grid(), example=True))
    assert (world.source, world.zone, world.grams_per_kwh) == ("example", "WORLD", 473.0)
    assert intensities(collected(Grid(zone="SE"), example=True))[0].source == "owid-ember"


def test_a_constant_goes_before_the_table() -> None:
    assert collected(Grid(zone="FR", grams_per_kwh=20.0)) == [
        CarbonIntensity("configured", "FR", "average", 20.0, None)
    ]


@pytest.mark.parametrize(
    ("zone", "words"), [("CF", "is 0 in the table"), ("EH", "is of 2009"), ("US-WA", "is of 2016")]
)
def test_suspicious_and_old_rows_are_warned_of_once(
    zone: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    grid = GridCollector(Grid(zone=zone), FakeClock(NOON))
    assert list(grid.collect()) == list(grid.collect())
    (record,) = caplog.records
    assert words in record.getMessage()


def test_the_table_is_whole() -> None:
    rows = intensity_table.rows()
    assert len(rows) == 266
    assert all(0 <= row.grams_per_kwh < 1_500 for row in rows.values())
    assert not list(intensity_table.cautions(rows["FR"], 2026))


def silent(*_: object) -> Stated:
    raise SilentError("down")


def with_service(answers: list[Stated | None], clock: FakeClock, **changes: object) -> GridCollector:
    """A collector whose service gives these answers, None for a failure."""

    def ask(*_: object) -> Stated:
        answer = answers.pop(0)
        if answer is None:
            raise SilentError("down")
        return answer

    service = GridService(url="https://grid.example/v3", value_path="v", **changes)  # type: ignore[arg-type]
    return GridCollector(Grid(zone="FR", service=service), clock, ask=ask)


def test_marginal_intensity_is_never_replaced_by_an_average() -> None:
    clock = FakeClock(NOON)
    grid = with_service([Stated(600.0, None), *[None] * 200], clock, basis="marginal", max_age_seconds=600.0)
    assert intensities(list(grid.collect()))[0].basis == "marginal"
    clock.advance(599.0)
    assert intensities(list(grid.collect()))[0].grams_per_kwh == 600.0
    clock.advance(61.0)
    (failure,) = grid.collect()
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.item) == ("no_value", "")
    assert failure.detail == "grid.example: down; energy has no carbon until it answers"


def test_a_silent_service_from_the_start_leaves_the_table() -> None:
    grid = with_service([None], FakeClock(NOON))
    value, failure = grid.collect()
    assert isinstance(value, CarbonIntensity)
    assert value.source == "owid-ember"
    assert isinstance(failure, Failure)
    assert failure.reason == "fallback"


def test_age_counts_from_the_time_for_which_a_value_is_stated() -> None:
    clock = FakeClock(NOON)
    grid = with_service([Stated(50.0, NOON - 3000), *[None] * 9], clock, max_age_seconds=3600.0)
    assert intensities(list(grid.collect()))[0].stated_timestamp_seconds == NOON - 3000
    clock.advance(599.0)
    assert intensities(list(grid.collect()))[0].grams_per_kwh == 50.0
    clock.advance(1.0)
    assert intensities(list(grid.collect()))[0].source == "owid-ember"


@pytest.mark.parametrize("hours", [-3, 3, -(10**15), 10**15])
def test_a_value_for_another_time_is_none(hours: float) -> None:
    grid = with_service([Stated(50.0, NOON + hours * 3600)], FakeClock(NOON))
    assert intensities(list(grid.collect()))[0].source == "owid-ember"


def test_a_step_of_the_calendar_makes_no_value_older() -> None:
    clock = FakeClock(NOON)
    grid = with_service([Stated(50.0, None), *[None] * 9], clock)
    list(grid.collect())
    clock.step_wall(86_400.0)
    clock.advance(400.0)
    assert intensities(list(grid.collect()))[0].grams_per_kwh == 50.0
