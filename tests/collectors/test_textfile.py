"""Text files of other tools: what goes out, what is refused and counted, what it costs the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterwatt.catalog import faults
from clusterwatt.collectors import textfile
from clusterwatt.collectors.textfile import TextfileCollector
from clusterwatt.config.model import TextfileCollector as Settings
from clusterwatt.readings.agent import TextFamily, TextFile
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock
from tests.machines import put

FOLDER = "/var/lib/textfiles"
SETTINGS = Settings(directory=FOLDER)


class Folder:
    """A folder of text files below a root, and the collector that reads it."""

    def __init__(self, root: Path, settings: Settings = SETTINGS) -> None:
        self.root = root
        self.clock = FakeClock()
        (root / FOLDER.lstrip("/")).mkdir(parents=True)
        self.collector = TextfileCollector(Files(root, self.clock), settings, self.clock)

    def write(self, name: str, text: str, age_s: float = 0.0) -> Path:
        file = put(self.root, f"{FOLDER}/{name}", text)
        written_s = self.clock.wall_s() - age_s
        os.utime(file, (written_s, written_s))
        return file

    def collect(self) -> list[Reading]:
        return list(self.collector.collect())


def page(readings: list[Reading]) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {r.name: (r.kind, r.samples) for r in readings if isinstance(r, TextFamily)}


def errors(readings: list[Reading]) -> dict[str, float]:
    return {r.file: r.errors for r in readings if isinstance(r, TextFile)}


def refused(readings: list[Reading]) -> dict[str, str]:
    found = [reading for reading in readings if isinstance(reading, Failure)]
    assert {reading.reason for reading in found} <= {"refused"}
    return {reading.item: reading.detail for reading in found}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_good_file_goes_out(folder: Folder) -> None:
    folder.write(
        "smart.prom", '# HELP smart_ok Healthy.\n# TYPE smart_ok gauge\nsmart_ok{disk="a"} 1\n', age_s=60
    )
    assert folder.collect() == [
        TextFile(file="smart.prom", last_modified_timestamp_seconds=folder.clock.wall_s() - 60, errors=0),
        TextFamily(name="smart_ok", kind="gauge", help="Healthy.", samples=('smart_ok{disk="a"} 1',)),
    ]


def test_without_a_folder_there_is_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    assert list(TextfileCollector(Files(tmp_path, clock), Settings(), clock).collect()) == []


def test_a_folder_that_is_not_there_fails(tmp_path: Path) -> None:
    clock = FakeClock()
    with pytest.raises(FileNotFoundError):
        list(TextfileCollector(Files(tmp_path, clock), Settings(directory="/none"), clock).collect())


def test_only_finished_text_files_are_looked_at(folder: Folder) -> None:
    folder.write("a.prom.tmp", "a 1\n")
    folder.write(".a.prom", "a 1\n")
    folder.write("readme.txt", "a 1\n")
    assert folder.collect() == []


def test_a_bad_file_costs_only_itself_and_counts_while_it_is_there(folder: Folder) -> None:
    folder.write("bad.prom", "clusterwatt_up 1\n")
    folder.write("good.prom", "good 1\n")
    for times in (1, 2, 3):
        readings = folder.collect()
        assert page(readings) == {"good": ("untyped", ("good 1",))}
        assert errors(readings) == {"bad.prom": times, "good.prom": 0}
        assert refused(readings) == {"bad.prom": "line 1: clusterwatt_up is a name of ours"}
    folder.write("bad.prom", "better 1\n")
    readings = folder.collect()
    assert set(page(readings)) == {"better", "good"}
    assert errors(readings) == {"bad.prom": 3, "good.prom": 0}


def test_a_file_is_read_again_only_when_it_was_written(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder.write("a.prom", "a 1\n")
    folder.collect()
    real_open = os.open
    opened: list[str] = []

    def watch(path: str, flags: int) -> int:
        opened.append(path)
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", watch)
    assert page(folder.collect()) == {"a": ("untyped", ("a 1",))}
    assert opened == []
    folder.clock.advance(5)
    folder.write("a.prom", "a 2\n")
    assert page(folder.collect()) == {"a": ("untyped", ("a 2",))}
    assert opened == [str(file)]


def test_g02_a_file_that_goes_takes_its_series_along(folder: Folder) -> None:
    file = folder.write("a.prom", "a 1\n")
    folder.collect()
    file.unlink()
    assert folder.collect() == []


def test_an_old_file_is_refused_until_it_is_written_anew(tmp_path: Path) -> None:
    folder = Folder(tmp_path, Settings(directory=FOLDER, max_age_seconds=3600))
    folder.write("a.prom", "a 1\n")
    folder.clock.advance(3600)
    assert set(page(folder.collect())) == {"a"}
    folder.clock.advance(1)
    readings = folder.collect()
    assert page(readings) == {}
    assert errors(readings) == {"a.prom": 1}
    folder.write("a.prom", "a 1\n")
    assert set(page(folder.collect())) == {"a"}


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path, Settings(directory=FOLDER, max_file_bytes=8))
    folder.write("fits.prom", "fits 12\n")
    folder.write("large.prom", "large 12\n")
    readings = folder.collect()
    assert set(page(readings)) == {"fits"}
    assert refused(readings) == {"large.prom": "it is larger than 8 bytes"}


def test_the_file_that_exceeds_the_number_of_series_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path, Settings(directory=FOLDER, max_series=3))
    folder.write("a.prom", "a 1\nb 2\n")
    folder.write("b.prom", "c 1\nd 2\n")
    folder.write("c.prom", "e 1\n")
    readings = folder.collect()
    assert set(page(readings)) == {"a", "b", "e"}
    assert set(refused(readings)) == {"b.prom"}


def test_files_may_share_a_family_but_neither_a_series_nor_two_types(folder: Folder) -> None:
    folder.write("a.prom", '# HELP x First.\n# TYPE x gauge\nx{from="a"} 1\n')
    folder.write("b.prom", '# HELP x Second.\n# TYPE x gauge\nx{from="b"} 2\n')
    folder.write("c.prom", '# TYPE x counter\nx{from="c"} 3\nc 1\n')
    folder.write("d.prom", '# TYPE x gauge\nx{from="a"} 4\nd 1\n')
    readings = folder.collect()
    assert [r for r in readings if isinstance(r, TextFamily)] == [
        TextFamily(name="x", kind="gauge", help="First.", samples=('x{from="a"} 1', 'x{from="b"} 2'))
    ]
    assert set(refused(readings)) == {"c.prom", "d.prom"}


def test_what_is_no_plain_file_is_refused_without_waiting(folder: Folder) -> None:
    os.mkfifo(folder.root / FOLDER.lstrip("/") / "pipe.prom")
    (folder.root / FOLDER.lstrip("/") / "folder.prom").mkdir()
    readings = folder.collect()
    assert set(refused(readings)) == {"pipe.prom", "folder.prom"}


def test_a_file_that_may_not_be_read_is_refused(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("a.prom", "a 1\n")

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "open", refuse)
    readings = folder.collect()
    assert "Permission denied" in refused(readings)["a.prom"]


def test_names_keep_the_rules() -> None:
    assert list(faults(textfile.METRICS)) == []
