"""The Python interpreters of this machine that the agent must run on, and an environment for each of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MINOR_VERSIONS = range(10, 15)  # 3.10 to 3.14: `requires-python` and what is released
DOES_IT_START_S = 20


def others() -> dict[str, Path]:
    """Version ("3.12") and path of each supported interpreter that starts, without the one that runs this."""
    found = {}
    for minor in MINOR_VERSIONS:
        version = f"3.{minor}"
        if minor == sys.version_info.minor:
            continue
        for path in _candidates(version):
            if _can_make_environments(path, version):
                found[version] = path
                break
    return found


def ends(found: Mapping[str, Path]) -> dict[str, Path]:
    """The oldest and the newest of them: what breaks on one in between breaks on an end as well, mostly."""
    return {version: found[version] for version in sorted(found, key=_minor)[:: max(1, len(found) - 1)]}


def environment(version: str, python: Path) -> Path:
    """The interpreter of `.venv-<version>`, with the agent and what its unit tests need installed.

    The environment is kept until `pyproject.toml` changes. Raises CalledProcessError when it cannot be made.
    """
    folder = ROOT / f".venv-{version}"
    stamp = folder / "made-for"
    state = f"{python} {hashlib.sha256((ROOT / 'pyproject.toml').read_bytes()).hexdigest()}"
    if not (stamp.exists() and stamp.read_text() == state):
        shutil.rmtree(folder, ignore_errors=True)
        _quietly(python, "-m", "venv", folder)
        _quietly(folder / "bin/python", "-m", "pip", "install", "--no-compile", "-e", f"{ROOT}[test]")
        stamp.write_text(state)
    return folder / "bin/python"


def _minor(version: str) -> int:
    return int(version.partition(".")[2])


def _candidates(version: str) -> Iterator[Path]:
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield Path(folder) / f"python{version}"
    yield from sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))


def _can_make_environments(path: Path, version: str) -> bool:
    """Whether it starts (pyenv leaves shims that do not), is what it is called, and can make environments."""
    check = "import ensurepip, ssl, sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [path, "-c", check], capture_output=True, text=True, timeout=DOES_IT_START_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def _quietly(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
