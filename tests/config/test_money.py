"""Settings for carbon and money: what is refused, and in which words."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterwatt import cli
from clusterwatt.config.load import load
from clusterwatt.config.problems import ConfigError
from clusterwatt.meters.cost import energy_cost


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What a command changes in its process, and a process that goes on must have back."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, signals)
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def refusal(*sets: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(None, {}, sets)
    return str(caught.value)


def test_g40_pue_as_text_is_a_number(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text('meters: {pue: "1.4"}\n')
    for config in (
        load(file, {}, ()).config,
        load(None, {"CLUSTERWATT_METERS__PUE": "1.4"}, ()).config,
        load(None, {}, ['meters.pue="1.4"']).config,
    ):
        kwh = 10.0
        assert kwh * config.meters.pue == pytest.approx(14.0)
        assert energy_cost(kwh * 3.6e6, config.meters.pue, 0.25) == pytest.approx(3.50)


@pytest.mark.parametrize("pue", ["0.9", '"1,4"', ".nan", "-1", "0"])
def test_g40_pue_out_of_range_ends_the_start_with_key_and_range(
    pue: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"meters:\n  pue: {pue}\n")
    assert cli.main(["run", "--config", str(file)]) != 0
    said = capsys.readouterr().err
    assert said.startswith(f"{file}:2:3: meters.pue: expected a number from 1 to 10, got ")
    assert said.count("\n") == 1


def test_a_zone_that_is_not_in_the_table_is_refused_with_the_one_that_was_meant() -> None:
    assert refusal("feeds.grid.zone=US-TXX").startswith(
        '--set: feeds.grid.zone: not in the table: "US-TXX"; did you mean US-TX?'
    )
    assert load(None, {}, ["feeds.grid.zone=my-site", "feeds.grid.grams_per_kwh=20"]).config
    service = ["feeds.grid.service.url=https://grid.example/", "feeds.grid.service.value_path=v"]
    assert load(None, {}, ["feeds.grid.zone=FR-south", *service]).config


NO_NAME = 'expected the name of a header, got "X: y": it consists of letters, digits and hyphens'
NO_ADDRESS = (
    'expected an address such as https://host/path, got "file:///etc/passwd": it begins with http:// or '
    "https:// and a host"
)


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["url=https://grid.example/"], "value_path: expected where the number stands in the answer"),
        (["header=auth-token"], "header_file: expected the file with the value of the header"),
        (["header_file=/etc/key"], "header: expected the name of the header, as auth-token"),
        (["header=X: y"], f"header: {NO_NAME}"),
        (["url=file:///etc/passwd"], f"url: {NO_ADDRESS}"),
        (["every_seconds=60"], "every_seconds: expected a number from 300 to 86400, got 60"),
        (
            ["every_seconds=3600", "max_age_seconds=600"],
            "max_age_seconds: expected at least every_seconds (3600), got 600",
        ),
    ],
)
def test_a_service_that_cannot_be_asked_is_refused(sets: list[str], said: str) -> None:
    assert refusal(*[f"feeds.grid.service.{text}" for text in sets]) == f"--set: feeds.grid.service.{said}"


@pytest.mark.parametrize("command", ["check-config", "once", "run"])
def test_a_wrong_price_book_ends_the_command_with_its_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = tmp_path / "book.yaml"
    book.write_text("as_of: 2026-09-30\ncurrency: EUR\nelectricity: {price_per_kwh: 0,19}\n")
    argv = [command, "--set", f"feeds.price.book={book}", "--set", f"ledger.path={tmp_path / 'l.db'}"]
    assert cli.main(argv) == 2
    said = capsys.readouterr().err
    assert f"{book}:3:" in said
    assert "electricity" in said
