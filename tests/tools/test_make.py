"""`make run` where something is missing: one line that says what to install, nothing half made."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKE = shutil.which("make") or pytest.skip("make is not here", allow_module_level=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with what `make run` reads first."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def stand_in(folder: Path, script: str) -> Path:
    """A `python3` that does what a shell script says."""
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return python


def make_run(checkout: Path, python: Path) -> list[str]:
    """What a user reads, without make's own closing line; the target has to fail."""
    done = subprocess.run(
        [MAKE, "run", f"PYTHON={python}"], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    lines = (done.stdout + done.stderr).splitlines()
    return [line for line in lines if not line.startswith("make")]


def test_python_is_missing(checkout: Path) -> None:
    (line,) = make_run(checkout, checkout / "nowhere")
    assert "is missing: sudo apt-get install -y python3 python3-venv" in line


def test_python_is_too_old(checkout: Path) -> None:
    python = stand_in(checkout, 'case "$2" in *version_info*) exit 1;; esac')
    (line,) = make_run(checkout, python)
    assert "older than 3.10" in line
    assert "PYTHON=" in line
    assert "apt-get" not in line  # no release that has such a Python offers a newer one by the same command


def test_venv_is_missing(checkout: Path) -> None:
    python = stand_in(checkout, 'case "$2" in *ensurepip*) exit 1;; esac')
    (line,) = make_run(checkout, python)
    assert line.endswith("sudo apt-get install -y python3-venv")


def test_an_environment_that_cannot_be_finished_is_removed(checkout: Path) -> None:
    python = stand_in(checkout, 'if [ "$1 $2" = "-m venv" ]; then mkdir -p .venv/bin; exit 1; fi')
    make_run(checkout, python)
    assert not (checkout / ".venv").exists()


def test_an_install_that_fails_leaves_nothing(checkout: Path) -> None:
    without_network = stand_in(checkout, "exit 1").rename(checkout / "without_network")
    make_environment = f"mkdir -p .venv/bin; cp {without_network} .venv/bin/python"
    python = stand_in(checkout, f'if [ "$1 $2" = "-m venv" ]; then {make_environment}; fi')
    make_run(checkout, python)
    assert not (checkout / ".venv").exists()


def test_what_an_interrupted_install_left_is_made_anew(checkout: Path) -> None:
    leftover = checkout / ".venv" / "lib"
    leftover.mkdir(parents=True)
    (checkout / ".venv" / "half-made").touch()
    python = stand_in(checkout, 'if [ "$1 $2" = "-m venv" ]; then ls .venv 2>&1; exit 1; fi')
    assert any("No such file" in line for line in make_run(checkout, python))


def environment(checkout: Path, *, at: Path, version: str = "3.11.2") -> None:
    """What an install leaves that was made in the folder `at`: it runs, and says what it was started as."""
    folder = checkout / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name, script in {
        "python": f'case "$1" in -V) echo Python {version};; *) exit 1;; esac',
        "clusterwatt": 'echo "started: $*"',
        "pip": f": {at}/.venv/bin/python",
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    (checkout / ".venv" / "made-to-run").touch()


def started(checkout: Path, *arguments: str) -> str:
    done = subprocess.run(
        [MAKE, "run", *arguments], cwd=checkout, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_an_environment_that_is_there_is_used(checkout: Path) -> None:
    environment(checkout, at=checkout)
    assert "started: run --listen 127.0.0.1:10777" in started(checkout)


def test_an_empty_address_is_the_usual_one(checkout: Path) -> None:
    environment(checkout, at=checkout)
    assert "started: run --listen 127.0.0.1:10777" in started(checkout, "LISTEN=")


@pytest.mark.parametrize("version", ["3.11.2", "3.13.0"])
def test_another_python_that_is_asked_for_is_taken(checkout: Path, version: str) -> None:
    environment(checkout, at=checkout)
    says = f'case "$1" in -V) echo Python {version};; -m) echo made anew; exit 1;; esac'
    said = started(checkout, f"PYTHON={stand_in(checkout, says)}")
    assert ("made anew" in said) == (version == "3.13.0")
    assert ("started" in said) == (version == "3.11.2")


def test_an_environment_that_was_moved_is_made_anew(checkout: Path) -> None:
    """Its programs begin with the path of the Python that they were made with."""
    environment(checkout, at=checkout / "before")
    python = stand_in(checkout, 'case "$1" in -V) echo Python 3.11.2;; -m) echo made anew; exit 1;; esac')
    assert "made anew" in started(checkout, f"PYTHON={python}")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_a_checkout_that_cannot_be_written_is_one_line() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        done = subprocess.run(
            [MAKE, "run"], cwd=folder, capture_output=True, text=True, check=False, user=65534
        )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("make")]
    assert done.returncode != 0
    assert lines == [f"{folder} cannot be written: copy it to a folder of your own and run make there"]
