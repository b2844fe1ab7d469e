"""The configuration as YAML reads back to itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterwatt.config import schema
from clusterwatt.config.load import load
from clusterwatt.config.model import SYSTEM_RELEASE_FILE, Config
from clusterwatt.config.write import reference, to_yaml

DEPLOYED = Path(__file__).parents[2] / "deploy" / "clusterwatt.yaml"

texts = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20)
configurations = st.builds(
    lambda number, whole, truth, mounts, text, families: {
        "collectors": {"gpu": {"enabled": truth}, "filesystem": {"network_mounts": mounts}},
        "driver": {"deadline_seconds": number},
        "node": {"root": os.path.realpath("/" + text), "gpus_expected": whole},  # as it is loaded
        "limits": {"families": families},
    },
    st.floats(1e-9, 86_400),
    st.integers(0, 1024),
    st.booleans(),
    st.lists(texts, max_size=3),
    texts,
    st.dictionaries(texts, st.booleans(), max_size=3),
)


@settings(max_examples=30)  # each writes and reads a whole file
@given(configurations)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, object]
) -> None:
    config = msgspec.convert(tree, Config)
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(to_yaml(config), encoding="utf-8")
    assert load(path, {}, []).config == config


def test_the_reference_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "clusterwatt.yaml"
    path.write_text(reference())
    loaded = load(path, {}, [])
    assert loaded.config == Config()
    assert loaded.sources == {}


def flat(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a tree with its dotted path."""
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def test_the_reference_states_every_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterwatt.config.model.places.SYSTEM_STATE_FOLDER", Path("/var/lib/clusterwatt"))
    monkeypatch.setattr("clusterwatt.config.model.places.SYSTEM_RELEASE_FILE", SYSTEM_RELEASE_FILE)
    path = tmp_path / "clusterwatt.yaml"
    path.write_text(re.sub(r"^( *)#(?=\w+:)", r"\1", reference(), flags=re.MULTILINE))
    loaded = load(path, {}, [])
    assert loaded.config == Config()
    settings = {".".join(path) for path, kind in schema.paths(schema.root()) if not schema.names(kind)}
    held_by_name = {path for path, value in flat(msgspec.to_builtins(Config())) if value == {}}
    assert set(loaded.sources) == settings - held_by_name  # no names by default


def test_the_deployed_file_is_the_reference() -> None:
    assert DEPLOYED.read_text(encoding="utf-8") == reference(), "clusterwatt check-config --print-defaults"
