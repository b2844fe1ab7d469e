"""The maintenance flag, from the command to the reading."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from clusterwatt import cli, maintenance, whole_file
from clusterwatt.clock import SystemClock
from clusterwatt.collectors.maintenance import MaintenanceCollector
from clusterwatt.config.model import MaintenanceCollector as Settings
from clusterwatt.maintenance import OFF, Maintenance
from clusterwatt.readings.host import NodeMaintenance
from tests.clocks import FakeClock


def command(path: Path, *words: str) -> int:
    return cli.main(["maintenance", *words, "--set", f"collectors.maintenance.file={path}"])


def test_a_flag_stands_until_it_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, clock = tmp_path / "state" / "maintenance", FakeClock()
    collector = MaintenanceCollector(Settings(file=str(path)), clock)
    assert list(collector.collect()) == [NodeMaintenance(maintenance=0.0)]
    assert command(path, "on") == 0
    clock.advance(1e6)
    assert list(collector.collect()) == [NodeMaintenance(maintenance=1.0)]
    assert command(path, "off") == command(path, "off") == 0
    assert list(collector.collect()) == [NodeMaintenance(maintenance=0.0)]
    said = capsys.readouterr().out.splitlines()
    assert said == ["in maintenance until `clusterwatt maintenance off`", *["not in maintenance"] * 2]


def test_a_flag_ends_by_itself_at_its_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "maintenance"
    assert command(path, "on", "--until", "2099-01-31T18:00Z") == 0
    until_s = 4_073_565_600.0
    assert maintenance.look(path, until_s - 1) == Maintenance(on=True, until_s=until_s)
    assert maintenance.look(path, until_s) == OFF
    assert capsys.readouterr().out.startswith("in maintenance until 2099-")
    assert [file.name for file in tmp_path.iterdir()] == ["maintenance"]


@pytest.mark.parametrize("content", [b"", b"\n", b"soon", b"\xff" * 1000, b"nan"])
def test_a_flag_that_says_no_time_stands(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "maintenance"
    path.write_bytes(content)
    assert maintenance.look(path, 1e9).on


def test_a_flag_that_holds_no_time_is_logged_once_with_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    path, clock = tmp_path / "maintenance", FakeClock()
    collector = MaintenanceCollector(Settings(file=str(path)), clock)
    for content in (b"", b"4073565600\n"):
        path.write_bytes(content)
        assert list(collector.collect()) == [NodeMaintenance(maintenance=1.0)]
    assert caplog.messages == []
    path.write_bytes(b"\xfe\xff soon")
    for _ in range(3):
        assert list(collector.collect()) == [NodeMaintenance(maintenance=1.0)]
    (line,) = caplog.messages
    assert line.startswith(f"{path}: ")
    assert "clusterwatt maintenance off" in line
    assert command(path, "status") == 0
    assert "no time" in capsys.readouterr().out


def test_a_full_disk_is_told_with_its_own_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(whole_file, "write", full)
    assert command(tmp_path / "maintenance", "on") == 1
    said = capsys.readouterr().err
    assert "free some space" in said
    assert "or root" not in said


def test_a_time_that_is_none_or_over_sets_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "maintenance"
    assert command(path, "on", "--until", "yesterday") == 2
    assert command(path, "on", "--until", "2001-01-01") == 1
    assert command(path, "status", "--until", "2099-01-01") == 1
    assert not path.exists()
    assert capsys.readouterr().err.count("\n") == 3


@pytest.mark.parametrize("text", ["+2h", "18:00"])
def test_a_flag_ends_after_a_while_or_at_the_next_time_of_day(tmp_path: Path, text: str) -> None:
    path, now_s = tmp_path / "maintenance", SystemClock().wall_s()
    assert command(path, "on", "--until", text) == 0
    until_s = maintenance.look(path, now_s).until_s
    assert until_s is not None
    assert now_s < until_s <= now_s + 86_400 + 3_700  # a day may have an hour more
    if text == "+2h":
        assert abs(until_s - now_s - 7_200) < 60


def test_what_is_no_time_is_told_with_what_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("2026-W50-1", "in two hours"):
        assert command(tmp_path / "maintenance", "on", "--until", text) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert said.startswith("clusterwatt maintenance: argument --until: expected +2h ")


def test_a_place_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert command(tmp_path / "file" / "maintenance", "on") == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "collectors.maintenance.file" in error


def test_what_is_no_file_is_told_at_once_and_can_be_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "maintenance"
    os.mkfifo(path)
    assert command(path, "status") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"clusterwatt: {path}: expected a plain file, found a pipe or device: ")
    assert "`clusterwatt maintenance off` removes it" in error
    assert command(path, "off") == 0
    assert not path.exists()
