"""Helm, compiled by Go from its module, which the module proxy serves; below `.cache/go`.

Debian has no package of it, and some machines reach registries only. The first time takes minutes, later ones
nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.tools.apt import CACHE, Unavailable

MODULE = "helm.sh/helm/v3/cmd/helm@v3.16.4"
BIN = CACHE.parent / "go" / "bin"
TIMEOUT_S = 900


def find() -> Path | None:
    """Helm 3 or later on PATH, or the one that was compiled here."""
    on_path = shutil.which("helm")
    for path in (Path(on_path) if on_path else None, BIN / "helm"):
        if path is not None and path.exists() and _is_helm(path):
            return path
    return None


def fetch() -> Path:
    """Helm, compiled when it is not here yet. Raises Unavailable."""
    found = find()
    if found is not None:
        return found
    go = shutil.which("go")
    if go is None:
        raise Unavailable("neither helm nor go is on PATH")
    environment = os.environ | {"GOBIN": str(BIN)}
    try:
        done = subprocess.run(
            [go, "install", MODULE],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"go install {MODULE} took longer than {TIMEOUT_S} s") from error
    path = BIN / "helm"
    if done.returncode != 0 or not _is_helm(path):
        raise Unavailable(f"go install {MODULE}: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    return path


def template(chart: Path, *settings: str, version: str = "1.34", release: str = "clusterwatt") -> str:
    """What the chart renders with `--set` of each setting. Raises Unavailable; ValueError: Helm refuses."""
    sets = [argument for setting in settings for argument in ("--set", setting)]
    command = [str(fetch()), "template", release, str(chart), "--namespace", "clusterwatt"]
    done = subprocess.run(
        [*command, "--kube-version", version, *sets],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return done.stdout


def _is_helm(path: Path) -> bool:
    """Whether it is Kubernetes' Helm: there is an Emacs package and a synthesizer of that name."""
    try:
        done = subprocess.run(
            [path, "version", "--short"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.startswith(("v3.", "v4."))


if __name__ == "__main__":
    try:
        print(fetch())
    except Unavailable as error:
        sys.exit(str(error))
