"""What documents name exists: commands with their options, metrics, settings, and where links lead."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterwatt import cli
from clusterwatt.config import schema
from clusterwatt.inventory import CATALOG

ROOT = Path(__file__).parents[1]
DOCUMENTS = (
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    ROOT / "deploy/clusterwatt.yaml",
    *ROOT.glob("deploy/prometheus/**/*.yaml"),
)
SPAN = re.compile(r"`(?:sudo )?clusterwatt ([^`]+)`")
LINE = re.compile(r"^ *(?:\$ )?(?:sudo )?clusterwatt ([a-z-]+(?: .*)?)$", re.MULTILINE)
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
METRIC = re.compile(r"(?<![:\w])clusterwatt_[a-z0-9_]*[a-z0-9]\b(?!_)")
FILE = re.compile(r"`([a-z_/]+\.(?:py|sh|toml))`")
FORBIDDEN = {"utils.py"}  # named as what there shall not be
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
SETTING = re.compile(r"`([a-z_]+(?:\.[a-z_]+)+)(?:: [^`]*)?`")
NOT_SETTINGS = re.compile(r".*\.(md|py|yaml|sh|conf|json|key|prom|csv|service|example)")
COMMENT = re.compile(r"\n *#? *")


def commands(text: str) -> Iterator[str]:
    """Commands as a document writes them: in a span of code, which may be broken, or on a line of a block."""
    blocks = FENCE.findall(text)
    for line in (line for block in blocks for line in LINE.findall(block)):
        yield re.split(r"\s+[#|>&]", line)[0]
    for span in SPAN.findall(FENCE.sub("", text)):
        yield re.split(r"\s+[|>&]", COMMENT.sub(" ", span))[0]


def wrong(parser: argparse.ArgumentParser, words: list[str]) -> str:
    """What of a command does not exist; empty when all of it does. A name for a file is not taken for one."""
    first = next((action for action in parser._actions if not action.option_strings), None)
    if words and re.fullmatch(r"[a-z-]*[a-z]", words[0]) and not words[0].startswith("-"):
        known = (first.choices if first is not None else None) or ()
        if words[0] not in known:
            return words[0]
        if isinstance(known, dict):
            return wrong(known[words[0]], words[1:])
    options = {option for action in parser._actions for option in action.option_strings}
    said = (word.partition("=")[0].rstrip(",.") for word in words if re.match(r"-+[a-z]", word))
    return next((option for option in said if option not in options), "")


of_documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@of_documents
def test_every_command_in_a_document_exists(document: Path) -> None:
    found = [
        said for said in commands(document.read_text(encoding="utf-8")) if wrong(cli.parser(), said.split())
    ]
    assert found == []


def test_a_command_that_does_not_exist_is_noticed() -> None:
    block = "```sh\nclusterwatt run --nonsense  # so\n```\n"
    text = f"# `clusterwatt flight freeze`, `clusterwatt ledger\n# copy`\n{block}"
    said = list(commands(text))
    assert said == ["run --nonsense", "flight freeze", "ledger copy"]
    top = cli.parser()
    assert [wrong(top, one.split()) for one in said] == ["--nonsense", "freeze", "copy"]
    assert wrong(top, ["fly"]) == "fly"
    assert wrong(top, ["simulate", "flock"]) == "flock"
    assert wrong(top, ["report", "--from", "-30d", "--by", "user"]) == ""


@of_documents
def test_every_metric_in_a_document_is_one(document: Path) -> None:
    names = {f"clusterwatt_{metric.name}" for metric in CATALOG}
    samples = {f"{name}_{suffix}" for name in names for suffix in ("count", "sum", "bucket")}
    assert set(METRIC.findall(document.read_text(encoding="utf-8"))) - names - samples == set()


@of_documents
def test_every_setting_in_a_document_is_one(document: Path) -> None:
    known = {".".join(path) for path, _ in schema.paths(schema.root())}
    sections = {path.partition(".")[0] for path in known}
    named = SETTING.findall(document.read_text(encoding="utf-8"))
    ours = {name for name in named if name.partition(".")[0] in sections and not NOT_SETTINGS.fullmatch(name)}
    assert ours - known == set()


@of_documents
def test_every_link_in_a_document_leads_somewhere(document: Path) -> None:
    links = LINK.findall(document.read_text(encoding="utf-8")) if document.suffix == ".md" else []
    assert [link for link in links if not (document.parent / link).exists()] == []


@of_documents
def test_every_file_of_ours_in_a_document_is_there(document: Path) -> None:
    """A path from the root of the repository or of the package, or a file beside or below what is linked."""
    text = document.read_text(encoding="utf-8")
    linked = [document.parent / link for link in LINK.findall(text)]
    folders = [ROOT, ROOT / "agent/clusterwatt", document.parent, *linked, *(path.parent for path in linked)]
    named = set(FILE.findall(text)) - FORBIDDEN
    assert [name for name in named if not any((folder / name).exists() for folder in folders)] == []
