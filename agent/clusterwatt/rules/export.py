"""Writes rendered rules into a folder, checked by promtool where there is one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import yaml

from clusterwatt import plain_file, whole_file
from clusterwatt.rules import promtool
from clusterwatt.rules.render import OFF_FOLDER, WRITTEN_BY, Effective, Rendered

BEGINNING = WRITTEN_BY.encode()


class ExportError(Exception):
    """The rules cannot be written, or promtool refuses them."""


def check(rendered: Iterable[Rendered], program: Path) -> None:
    """Have promtool check all files. Raises ExportError with what it found, PromtoolError."""
    with tempfile.TemporaryDirectory(prefix="clusterwatt-rules-") as name:
        folder = Path(name)
        for file in rendered:
            path = folder / file.path
            path.parent.mkdir(exist_ok=True)
            path.write_text(groups_of(file.text), encoding="utf-8")
        files = sorted(path.relative_to(folder) for path in folder.rglob("*.yaml"))
        good, said = promtool.call(program, ["check", "rules", *files], folder)
    if not good:
        raise ExportError(f"promtool refuses the rules:\n{said.strip()}")


def groups_of(text: str) -> str:
    """The groups of a file as Prometheus reads them, also out of an object for its operator."""
    document = yaml.safe_load(text)
    if isinstance(document, dict) and "spec" in document:
        return yaml.safe_dump(document["spec"], sort_keys=False)
    return text


def write(rendered: Sequence[Rendered], folder: Path) -> list[Path]:
    """Write the files, and remove those that an earlier export left and this one has not. Raises OSError.

    Prometheus loads whatever lies in the folder: a rule that is switched off must not live on in it. Files
    that somebody else wrote stay.
    """
    paths = []
    for file in rendered:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        whole_file.write(path, file.text)
        paths.append(path)
    for path in (*folder.glob("*.yaml"), *(folder / OFF_FOLDER).glob("*.yaml")):
        if path not in paths and plain_file.content(path, len(BEGINNING)) == BEGINNING:
            path.unlink()
    return paths


def table(values: Iterable[Effective]) -> str:
    """What can be changed, for people: a line each, a star where the site changed it."""
    rows = [(f"{value.rule} {value.severity}", value.name, value.default, value.value) for value in values]
    header = ("RULE", "NAME", "DEFAULT", "EFFECTIVE")
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        + (" *" if row[2] != row[3] and row is not header else "")
        for row in (header, *rows)
    ]
    return "\n".join(lines) + "\n"


def as_json(values: Iterable[Effective]) -> str:
    """The same for programs."""
    return msgspec.json.format(msgspec.json.encode(list(values)), indent=1).decode() + "\n"
