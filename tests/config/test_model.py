"""The model: defaults that hold, limits on every number, a document for every section."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import inspect

from clusterwatt.config import model, schema, values
from clusterwatt.config.checks import contradictions
from clusterwatt.config.load import load
from clusterwatt.config.problems import ConfigError
from clusterwatt.simulate.cards import cards

SETTINGS = {".".join(path): kind for path, kind in schema.paths(schema.root())}


@pytest.mark.parametrize("path", SETTINGS)
def test_every_setting_can_be_described(path: str) -> None:
    assert values.described(SETTINGS[path])


@pytest.mark.parametrize(
    "path", [path for path, kind in SETTINGS.items() if isinstance(kind, inspect.IntType | inspect.FloatType)]
)
def test_every_number_is_bounded_on_both_sides(path: str) -> None:
    kind = SETTINGS[path]
    assert isinstance(kind, inspect.IntType | inspect.FloatType)
    assert kind.ge is not None or kind.gt is not None
    assert kind.le is not None or kind.lt is not None


def test_a_setting_stands_in_the_file_that_is_named_after_its_first_word() -> None:
    for path, kind in SETTINGS.items():
        if isinstance(kind, inspect.StructType) and kind.cls is not model.Collector:
            assert kind.cls.__module__ == f"clusterwatt.config.model.{path.partition('.')[0]}", path


EXPLAINED_ONCE = {"enabled", "every_seconds"}  # by the section that all collectors share


def test_every_setting_is_explained_in_its_section() -> None:
    for section, kind in SETTINGS.items():
        for name in schema.names(kind):
            if not schema.names(SETTINGS[f"{section}.{name}"]) and name not in EXPLAINED_ONCE:
                assert isinstance(kind, inspect.StructType)
                assert f"`{name}" in (kind.cls.__doc__ or ""), f"{section}.{name}"


def test_every_number_has_its_unit_in_its_name() -> None:
    for path, kind in SETTINGS.items():
        if isinstance(kind, inspect.FloatType):
            assert path.endswith(("_seconds", "_gbit", "_ratio", "_per_kwh", ".pue")), path


def test_every_card_that_can_be_simulated_can_be_configured_and_no_other() -> None:
    kind = SETTINGS["simulate.profile"]
    assert isinstance(kind, inspect.LiteralType)
    assert set(kind.values) == {"", *cards()}


def test_the_defaults_do_not_contradict_each_other() -> None:
    assert list(contradictions(model.Config())) == []


def test_the_job_in_the_path_of_a_run_has_a_group() -> None:
    with pytest.raises(ConfigError, match=r"training.job_from_path: expected a group of the name job"):
        load(None, {}, ["training.job_from_path=/[0-9]+/"])
    load(None, {}, ["training.job_from_path=/(?P<job>[0-9]+)/"])


@pytest.mark.parametrize(
    ("user", "environment", "path"),
    [
        (0, {"HOME": "/root", "XDG_STATE_HOME": "/x"}, "/system/ledger.db"),
        (1000, {"HOME": "/home/a"}, "/home/a/.local/state/clusterwatt/ledger.db"),
        (1000, {"HOME": "/home/a", "XDG_STATE_HOME": "/x"}, "/x/clusterwatt/ledger.db"),
        (4_000_123_456, {}, "/system/ledger.db"),
    ],
)
def test_ledger_and_recorder_lie_where_its_user_may_write(
    monkeypatch: pytest.MonkeyPatch, user: int, environment: dict[str, str], path: str
) -> None:
    monkeypatch.setattr(model.places, "SYSTEM_STATE_FOLDER", Path("/system"))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "getuid", lambda: user)
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Path(model.Ledger().path) == Path(path)
    assert Path(model.Recorder().directory) == Path(path).parent / "flight"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":0", ("", 0)),
        ("127.0.0.1:10777", ("127.0.0.1", 10777)),
        ("[::1]:10777", ("::1", 10777)),
        ("[0:0:0:0:0:0:0:1]:80", ("::1", 80)),
        ("node-7.example.org:80", ("node-7.example.org", 80)),
    ],
)
def test_addresses_come_apart(text: str, address: tuple[str, int]) -> None:
    assert model.listen_address(text) == address


def test_a_pod_calls_the_node_by_its_name_and_not_by_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "clusterwatt-x7k2p")
    monkeypatch.setenv("NODE_NAME", "gpu-17")
    assert model.node_name() == "gpu-17"
    monkeypatch.delenv("NODE_NAME")
    assert model.node_name() == "clusterwatt-x7k2p"
