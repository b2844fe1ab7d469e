"""A ledger with known contents, and a zone that every machine agrees on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.report.books import ledger

__all__ = ["ledger"]


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The local zone is Berlin's."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
