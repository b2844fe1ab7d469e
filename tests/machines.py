"""The trees of tests/roots, captures of real machines, and files made for one test."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.clock import Clock
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock

REPOSITORY = Path(__file__).parents[1]
ROOTS = REPOSITORY / "tests" / "roots"
CAPTURES = REPOSITORY.parent / "shared" / "fixtures"


def machine(name: str, clock: Clock | None = None) -> Files:
    """The files of a machine in tests/roots."""
    return Files(ROOTS / name, clock or FakeClock())


def capture(path: str) -> Path:
    """A file or folder of captures that do not belong to this repository; skips the test without them."""
    found = CAPTURES / path
    if not found.exists():
        pytest.skip(f"this machine has no captures at {CAPTURES}")
    return found


def put(root: Path, path: str, content: str | bytes) -> Path:
    """Write a file below a root; its folders are made."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file
