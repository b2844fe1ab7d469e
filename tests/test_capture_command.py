"""`clusterwatt capture` and `--replay` as a person runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from clusterwatt import cli
from clusterwatt.nvml import bundle

CLUSTERWATT = (sys.executable, "-m", "clusterwatt")
DEADLINE_S = 60


def run(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*CLUSTERWATT, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == status, done.stderr
    return done


def series(page: str, name: str) -> list[str]:
    return re.findall(rf"^clusterwatt_{name}\{{.*$", page, re.M)


def test_what_is_captured_here_is_replayed_there(tmp_path: Path) -> None:
    file = str(tmp_path / "node.zip")
    said = run("capture", "--simulate", "h100", "--set", "simulate.gpus=2", "--seconds", "0.5", file).stdout
    assert re.fullmatch(rf"{re.escape(file)}: \d+ calls in \d+ s, \d+ bytes\n", said)
    assert bundle.read(Path(file)).manifest.pseudonyms
    page = run("once", "--replay", file).stdout
    assert len(series(page, "gpu_power_watts")) >= 2
    assert [line for line in series(page, "gpu_info") if 'simulated="replay"' in line]
    assert len(series(page, "gpu_info")) == 2


def test_a_file_that_is_no_bundle_ends_the_agent_with_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "x.zip"
    broken.write_bytes(b"PK")
    for command in ("once", "run"):
        said = run(command, "--replay", str(broken), "--listen", "127.0.0.1:0", status=1).stderr
        assert (
            said == f"clusterwatt: {broken}: no capture bundle, or only a part of one: its end is missing\n"
        )


def test_a_capture_without_a_place_to_go_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "node.zip"
    said = run("capture", "--simulate", "t4", "--seconds", "0.1", str(file), status=1).stderr
    assert said.splitlines()[-1] == (
        f"clusterwatt: {file}: the bundle cannot be written: No such file or directory"
    )


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "nan", "4000"])
def test_a_length_that_makes_no_sense_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["capture", f"--seconds={seconds}", "node.zip"]) == 2
    assert "expected more than 0 and at most 3600 seconds" in capsys.readouterr().err


def test_a_driver_is_recorded_or_simulated_not_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["once", "--replay", "node.zip", "--simulate", "h100"]) == 2
    assert "a driver is recorded or simulated, not both" in capsys.readouterr().err
