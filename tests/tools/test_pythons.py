"""Which interpreters the checks run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools import pythons


@pytest.mark.parametrize(
    ("found", "ends"),
    [
        ([], []),
        (["3.10"], ["3.10"]),
        (["3.10", "3.12"], ["3.10", "3.12"]),
        (["3.10", "3.12", "3.13"], ["3.10", "3.13"]),
        (["3.14", "3.9", "3.12", "3.13"], ["3.14", "3.9"]),
    ],
)
def test_the_ends_are_the_oldest_and_the_newest(found: list[str], ends: list[str]) -> None:
    assert set(pythons.ends({version: Path(version) for version in found})) == set(ends)


def test_a_shim_that_does_not_start_is_no_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minor in pythons.MINOR_VERSIONS:
        shim = tmp_path / f"python3.{minor}"
        shim.write_text("#!/bin/sh\necho 'not installed here' >&2\nexit 127\n")
        shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert pythons.others() == {}
