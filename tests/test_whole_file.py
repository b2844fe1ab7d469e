"""A file is replaced whole or stays as it was, and nobody finds a draft."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from clusterwatt import whole_file


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def replace_with_half(path: Path) -> None:
    with whole_file.replacing(path) as draft:
        draft.write(b"half of the n")
        raise ZeroDivisionError


def test_a_file_is_made_and_replaced_for_everybody_to_read(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    whole_file.write(path, "[]\n")
    whole_file.write(path, "[1]\n")
    assert path.read_text() == "[1]\n"
    assert mode_of(path) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_what_reads_the_old_file_reads_it_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    whole_file.write(path, "old")
    with path.open() as reader:
        whole_file.write(path, "new")
        assert reader.read() == "old"


def test_a_draft_that_fails_changes_nothing_and_goes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    whole_file.write(path, "old")
    with pytest.raises(ZeroDivisionError):
        replace_with_half(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_draft_is_neither_seen_under_its_name_nor_read_by_others(tmp_path: Path) -> None:
    """Prometheus reads `*.json` and `*.yaml` of a folder; what is for its owner only is so from its start."""
    path = tmp_path / "capture.json"
    with whole_file.replacing(path, mode=0o600):
        (draft,) = tmp_path.iterdir()
        assert mode_of(draft) == 0o600
        assert draft.name.startswith(".")
        assert draft.suffix != ".json"
    assert mode_of(path) == 0o600


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        whole_file.write(tmp_path / "no" / "file", "")


def killed(path: Path, written_s: float) -> None:
    """A draft of the file as a writer leaves it that was killed."""
    draft = path.with_name(f".{path.name}.k1ll3d__.draft")
    draft.touch()
    os.utime(draft, (written_s, written_s))


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_drafts_of_killed_writers_go_after_an_hour(tmp_path: Path) -> None:
    killed(tmp_path / "old", 100.0)
    killed(tmp_path / "new", 3_000.0)
    (tmp_path / ".other").touch()
    os.utime(tmp_path / ".other", (0, 0))
    whole_file.remove_abandoned(tmp_path, 4_000.0)
    assert names(tmp_path) == {".new.k1ll3d__.draft", ".other"}


def test_who_writes_a_file_anew_removes_its_abandoned_drafts_and_nothing_else(tmp_path: Path) -> None:
    """Targets and flags lie in folders of other programs, and no agent need run there to clean up."""
    path = tmp_path / "targets[1].json"
    killed(path, 0.0)
    killed(tmp_path / "of-others", 0.0)
    whole_file.write(path, "[]\n")
    assert names(tmp_path) == {path.name, ".of-others.k1ll3d__.draft"}


def test_a_draft_that_somebody_writes_at_the_same_time_is_left_to_them(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with whole_file.replacing(path) as mine:
        whole_file.write(path, "theirs")
        mine.write(b"mine")
    assert path.read_text() == "mine"
