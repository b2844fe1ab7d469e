"""Helm, which the package `helm-binary` brings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HELM = Path(sys.executable).with_name("helm")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        [HELM, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def template(chart: Path, *settings: str, version: str = "1.34", release: str = "clusterwatt") -> str:
    """What the chart renders with `--set` of each setting. Raises ValueError: Helm refuses."""
    sets = [argument for setting in settings for argument in ("--set", setting)]
    where = ("--namespace", "clusterwatt", "--kube-version", version)
    done = run("template", release, chart, *where, *sets)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return done.stdout
