"""Attribution and ledger in a tick: nothing is booked before the ledger has said where the books stand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clusterwatt.attribution.entries import Baseline
from clusterwatt.bookkeeping import RECOVER_WITHIN_S, Bookkeeping
from clusterwatt.config.model import Config
from clusterwatt.ledger.keeper import Keeper
from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import LedgerState
from tests.clocks import FakeClock


class Node:
    """Bookkeeping on a clock of the test's, and how often something was booked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock()
        self.booked = 0
        self.told = True
        settings = msgspec.structs.replace(Config().ledger, path=str(folder / "ledger.db"))
        self.keeper = Keeper(settings, self.clock)
        self.books = Bookkeeping(Config(), self.clock, "boot", self.keeper)

        def take(*_: Any, **__: Any) -> Iterator[Reading]:
            self.booked += 1
            return iter(())

        monkeypatch.setattr(self.books._accounting, "take", take)

    def tick(self) -> list[Reading]:
        return self.books.take({}, {}, (), now_s=self.clock.monotonic_s(), every_s=1.0)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made = Node(tmp_path, monkeypatch)
    yield made
    made.books.stop(5.0)


def test_a_ledger_that_opens_late_is_waited_for_and_says_how_it_fares(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as late:
        late.setattr(node.keeper, "recovered", lambda: None)
        assert any(isinstance(reading, LedgerState) for reading in node.tick())
        assert node.booked == 0
    node.keeper.wait(30.0)
    node.tick()
    assert node.booked == 1


def test_signals_that_the_ledger_keeps_are_told_until_books_begin(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.keeper.wait(30.0)
    told = node.keeper.recovered()
    assert told is not None
    earlier = Baseline(counter_joules=1.0, read_wall_s=1.0, signal="utilization", held=())
    monkeypatch.setattr(
        node.keeper,
        "recovered",
        lambda: msgspec.structs.replace(told, baselines={"GPU-a": earlier}) if node.told else None,
    )
    node.told = False
    assert node.books.signals == {}
    node.tick()
    node.told = True
    assert node.books.signals == {"GPU-a": "utilization"}, "before the tick that books first"
    node.tick()
    assert node.books.signals == {}


def test_a_ledger_that_never_opens_is_not_waited_for_for_ever(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.keeper, "recovered", lambda: None)
    node.clock.advance(RECOVER_WITHIN_S - 1)
    node.tick()
    assert node.booked == 0
    node.clock.advance(1.0)
    node.tick()
    assert node.booked == 1
