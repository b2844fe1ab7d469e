"""Writes the boards for a Grafana: as files for provisioning and import, or as ConfigMaps for its sidecar.

Provisioning: https://grafana.com/docs/grafana/latest/administration/provisioning/#dashboards. The sidecar of
Grafana's Helm chart takes ConfigMaps with the label `grafana_dashboard` and puts a board into the folder that
the annotation `grafana_folder` names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from clusterwatt import whole_file

FOLDER = Path(__file__).parent / "shipped"
PROVIDER = "provider.yaml"


class Choice(msgspec.Struct, frozen=True):
    """What a site chooses; empty: as shipped.

    `folder`: in Grafana. `source`: uid of the data source that is chosen at first. `refresh`: `30s`, `off`.
    """

    folder: str = "clusterwatt"
    source: str = ""
    refresh: str = ""


def boards(choice: Choice) -> dict[str, str]:
    """The text of each board by the name of its file."""
    return {
        path.name: _chosen(path.read_text(encoding="utf-8"), choice) for path in sorted(FOLDER.glob("*.json"))
    }


def files(choice: Choice, folder: Path) -> dict[str, str]:
    """All files of a provisioning: the boards, and what tells Grafana of the folder that they are in."""
    return {**boards(choice), PROVIDER: provider(choice.folder, folder)}


def config_maps(choice: Choice) -> dict[str, str]:
    """A ConfigMap for each board: one for all would be near the limit of 1 MiB."""
    return {
        f"clusterwatt-board-{name.removesuffix('.json')}.yaml": _config_map(name, text, choice.folder)
        for name, text in boards(choice).items()
    }


def provider(folder: str, path: Path) -> str:
    """The file for Grafana's `provisioning/dashboards`. JSON strings are strings of YAML too."""
    return (
        "apiVersion: 1\n"
        "providers:\n"
        "- name: clusterwatt\n"
        f"  folder: {json.dumps(folder)}\n"
        "  type: file\n"
        "  allowUiUpdates: false\n"
        "  updateIntervalSeconds: 30\n"
        f"  options: {{path: {json.dumps(str(path.resolve()))}}}\n"
    )


def write(texts: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the files, each whole or not at all: Grafana may read at any time. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    return list(_written(texts, folder))


def _written(texts: Mapping[str, str], folder: Path) -> Iterator[Path]:
    for name, text in texts.items():
        path = folder / name
        whole_file.write(path, text)
        yield path


def _chosen(text: str, choice: Choice) -> str:
    if not choice.source and not choice.refresh:
        return text
    board: dict[str, Any] = json.loads(text)
    if choice.refresh:
        board["refresh"] = "" if choice.refresh == "off" else choice.refresh
    for variable in board["templating"]["list"]:
        if variable["type"] == "datasource" and choice.source:
            variable["current"] = {"selected": True, "text": choice.source, "value": choice.source}
    return json.dumps(board, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _config_map(name: str, text: str, folder: str) -> str:
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return (
        "apiVersion: v1\n"
        "kind: ConfigMap\n"
        "metadata:\n"
        f"  name: clusterwatt-board-{name.removesuffix('.json')}\n"
        '  labels: {grafana_dashboard: "1"}\n'
        f"  annotations: {{grafana_folder: {json.dumps(folder)}}}\n"
        "data:\n"
        f"  clusterwatt-{name}: |\n{lines}"
    )
