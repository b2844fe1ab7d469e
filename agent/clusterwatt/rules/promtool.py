"""promtool, the checker that comes with Prometheus: found on PATH, or named."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

TIMEOUT_S = 600


class PromtoolError(Exception):
    """promtool cannot be had or does not start."""


def find(named: str | None) -> Path | None:
    """The program: the named one, else that on PATH; None when there is none. Raises PromtoolError."""
    if named is not None and shutil.which(named) is None:
        raise PromtoolError(f"{named}: no program of that name; it comes with Prometheus")
    found = shutil.which(named or "promtool")
    return Path(found).absolute() if found else None


def call(program: Path, arguments: Sequence[str | Path], folder: Path) -> tuple[bool, str]:
    """Whether promtool is content, and all that it said. Raises PromtoolError."""
    try:
        done = subprocess.run(
            [program, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise PromtoolError(f"{program}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise PromtoolError(f"{program} took longer than {TIMEOUT_S} s") from None
    return done.returncode == 0, done.stdout
