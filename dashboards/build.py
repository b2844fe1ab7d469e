"""Writes the boards as JSON: `python -m dashboards.build`; with `--check`, says whether they are as written."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dashboards.boards import BOARDS
from dashboards.grafana import as_json

FOLDER = Path(__file__).parent / "json"


def written() -> dict[str, str]:
    """Text by name of file."""
    return {f"{board.name}.json": as_json(board) for board in BOARDS}


def main(arguments: list[str]) -> int:
    """Write the files, or compare them; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dashboards.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when a file differs")
    check = parser.parse_args(arguments).check
    files = written()
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    if check:
        for name in sorted(files.keys() | there.keys()):
            if files.get(name) != there.get(name):
                sys.stderr.write(f"{FOLDER / name}: not as written; run `make docs`\n")
        return int(files != there)
    FOLDER.mkdir(exist_ok=True)
    for name in there.keys() - files.keys():
        (FOLDER / name).unlink()
    for name, text in files.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
