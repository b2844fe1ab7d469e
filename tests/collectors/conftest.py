"""What the tests of collectors share."""

from __future__ import annotations

import pytest

from tests.faulty import FaultyReads


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> FaultyReads:
    """Reads that fail for chosen files."""
    return FaultyReads(monkeypatch)
