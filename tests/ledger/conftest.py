"""Ledgers of tests lie in memory: each commit is synced, and the disk of a busy machine takes its time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clocks import FakeClock
from tests.ledger.batches import MEMORY


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger that is not there yet, nor its folder."""
    return tmp_path / "state" / "ledger.db"
