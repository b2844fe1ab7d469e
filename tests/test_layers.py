"""Which module may import which: the contracts in pyproject.toml hold, and would notice a breach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "agent")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_no_module_imports_one_above_it() -> None:
    ended = lint_imports(ROOT)
    assert ended.returncode == 0, ended.stdout
    assert " 0 broken" in ended.stdout


def test_imports_against_the_direction_are_noticed(tmp_path: Path) -> None:
    """Each import breaks one contract: a breach that nobody notices is no contract."""
    shutil.copytree(ROOT / "agent", tmp_path / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module, line in {
        "readings/base.py": "import clusterwatt.pipeline",
        "pipeline.py": "import pynvml",
        "source.py": "import aiohttp\nimport h2\nimport time",
        "app.py": "import yaml",
        "bookkeeping.py": "import sqlite3",
        "wanted.py": "import clusterwatt.config.load",
        "config/model/section.py": "import clusterwatt.config.load",
    }.items():
        path = tmp_path / "agent" / "clusterwatt" / module
        path.write_text(f"{path.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")
    ended = lint_imports(tmp_path)
    assert ended.returncode != 0
    assert " 0 kept, 9 broken" in ended.stdout, ended.stdout


def test_whoever_looks_for_a_module_finds_where_things_live() -> None:
    said = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = said.partition("## Where things live")[2].partition("\n## ")[0]
    modules = [
        f"{path.name}/" if path.is_dir() else path.name
        for path in (ROOT / "agent" / "clusterwatt").iterdir()
        if (path.is_dir() or path.suffix == ".py") and not path.name.startswith("__")
    ]
    assert [name for name in modules if f"`{name}`" not in places] == []
