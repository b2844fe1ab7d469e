"""`clusterwatt export boards`: files that Grafana provisions, and ConfigMaps for its sidecar."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from clusterwatt.cli import main
from tests.boards.written import BOARDS, ROOT


def test_files_are_those_of_the_repository_and_a_provider_names_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "of grafana"
    assert main(["export", "boards", str(folder)]) == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {f"{name}.json" for name in BOARDS} | {"provider.yaml"}
    assert all(json.loads((folder / f"{name}.json").read_text()) == board for name, board in BOARDS.items())
    provider = yaml.safe_load((folder / "provider.yaml").read_text())["providers"][0]
    assert provider["options"]["path"] == str(folder)
    assert provider["folder"] == "clusterwatt"


def test_folder_source_and_refresh_are_the_sites(tmp_path: Path) -> None:
    words = ["--folder", 'GPUs: "all"', "--datasource", "prom-1", "--refresh", "1m"]
    assert main(["export", "boards", str(tmp_path), *words]) == 0
    assert yaml.safe_load((tmp_path / "provider.yaml").read_text())["providers"][0]["folder"] == 'GPUs: "all"'
    for name in BOARDS:
        board = json.loads((tmp_path / f"{name}.json").read_text())
        assert board["refresh"] == "1m"
        assert board["templating"]["list"][0]["current"]["value"] == "prom-1"
        assert board["panels"] == BOARDS[name]["panels"]  # which go by the variable all the same


def test_refresh_can_be_off(tmp_path: Path) -> None:
    assert main(["export", "boards", str(tmp_path), "--refresh", "off"]) == 0
    assert json.loads((tmp_path / "job.json").read_text())["refresh"] == ""


def test_config_maps_hold_the_same_boards(tmp_path: Path) -> None:
    assert main(["export", "boards", str(tmp_path), "--format", "configmap", "--folder", "GPU"]) == 0
    held = {}
    for path in tmp_path.iterdir():
        made = yaml.safe_load(path.read_text())
        assert made["kind"] == "ConfigMap"
        assert made["metadata"]["labels"] == {"grafana_dashboard": "1"}
        assert made["metadata"]["annotations"] == {"grafana_folder": "GPU"}
        assert path.stat().st_size < 1 << 20
        ((name, text),) = made["data"].items()
        held[name.removeprefix("clusterwatt-").removesuffix(".json")] = json.loads(text)
    assert held == BOARDS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--refresh", "often"], "--refresh 'often': expected a time such as 30s"),
        (["--datasource", "a b"], "--datasource 'a b': expected a uid"),
    ],
)
def test_what_grafana_would_not_take_is_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "boards", str(tmp_path / "x"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_folder_that_cannot_be_made_ends_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["export", "boards", str(tmp_path / "file" / "x")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_provisioning_files_are_of_the_form_that_grafana_reads() -> None:
    folder = ROOT / "deploy" / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((folder / "dashboards" / "clusterwatt.yaml").read_text())["providers"]
    assert provider["type"] == "file"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    assert "uid" not in source


def test_a_plain_file_in_place_of_the_folder_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.touch()
    assert main(["export", "boards", str(path)]) == 1
    assert capsys.readouterr().err == f"clusterwatt: {path}: expected a folder, found a file\n"
