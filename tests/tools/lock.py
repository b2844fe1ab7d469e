"""`make lock`: pin what the image is built from, by version and hash, for every Python that we support.

By uv, which resolves for several Pythons at once; it is fetched into a folder of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path

from tests.tools.apt import CACHE

ROOT = Path(__file__).resolve().parents[2]
FOLDER = CACHE.parent / "uv"
OPTIONS = (
    *("--generate-hashes", "--universal", "--python-version", "3.10", "--only-binary", ":all:"),
    *("--no-annotate", "--no-header", "--quiet", "--upgrade"),
)


def main() -> None:
    """Write both files."""
    if not (FOLDER / "bin/uv").exists():
        venv.create(FOLDER, with_pip=True)
        subprocess.run([FOLDER / "bin/pip", "install", "--quiet", "uv"], check=True)
    (needs,) = re.findall(r"^requires = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    compile_: list[str | Path] = [FOLDER / "bin/uv", "pip", "compile", *OPTIONS]
    subprocess.run(
        [*compile_, "--extra", "all", "pyproject.toml", "-o", "requirements.lock"], cwd=ROOT, check=True
    )
    build = "\n".join(re.findall(r'"([^"]+)"', needs))
    subprocess.run(
        [*compile_, "-", "-o", "requirements-build.lock"], cwd=ROOT, check=True, input=build, text=True
    )
    sys.stdout.write("requirements.lock and requirements-build.lock are written: run make check\n")


if __name__ == "__main__":
    main()
