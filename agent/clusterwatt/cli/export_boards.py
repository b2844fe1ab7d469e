"""`clusterwatt export boards`: the Grafana boards, for provisioning, import or the sidecar."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from clusterwatt.cli.ending import FAILED, WRONG_INPUT, Commands, EndError, Once

REFRESH = re.compile(r"off|[1-9][0-9]*[smhd]")
UID = re.compile(r"[A-Za-z0-9_-]{1,40}")  # what Grafana takes


def add(kinds: Commands) -> None:
    """Add the command below `export`."""
    boards = kinds.add_parser(
        "boards",
        help="boards for Grafana 10 and later",
        description="Writes the boards into DIR, with provider.yaml, which goes into Grafana's folder "
        "provisioning/dashboards; or as ConfigMaps for the sidecar of Grafana's Helm chart.",
        allow_abbrev=False,
    )
    boards.add_argument("folder", metavar="DIR", help="where the files go")
    boards.add_argument(
        "--folder", metavar="NAME", dest="grafana_folder", action=Once, help="folder in Grafana (clusterwatt)"
    )
    boards.add_argument(
        "--datasource",
        metavar="UID",
        action=Once,
        help="Prometheus source that is chosen at first (Grafana's default)",
    )
    boards.add_argument("--refresh", metavar="TIME", action=Once, help="as 30s or 5m, or off (as shipped)")
    boards.add_argument("--format", choices=("files", "configmap"), default="files", help="default: files")
    boards.set_defaults(act=_boards)


def _boards(arguments: argparse.Namespace) -> int:
    from clusterwatt.boards import export

    _check("--refresh", arguments.refresh, REFRESH, "a time such as 30s, 5m or 1h, or off")
    _check("--datasource", arguments.datasource, UID, "a uid: up to 40 letters, digits, - and _")
    choice = export.Choice(
        folder="clusterwatt" if arguments.grafana_folder is None else arguments.grafana_folder,
        source=arguments.datasource or "",
        refresh=arguments.refresh or "",
    )
    folder = Path(arguments.folder)
    texts = export.config_maps(choice) if arguments.format == "configmap" else export.files(choice, folder)
    try:
        paths = export.write(texts, folder)
    except FileExistsError as error:
        raise EndError(f"clusterwatt: {error.filename}: expected a folder, found a file", FAILED) from None
    except OSError as error:
        raise EndError(f"clusterwatt: {error.filename or folder}: {error.strerror}", FAILED) from None
    for path in paths:
        sys.stdout.write(f"{path}\n")
    return 0


def _check(option: str, text: str | None, pattern: re.Pattern[str], expected: str) -> None:
    if text is not None and not pattern.fullmatch(text):
        raise EndError(f"clusterwatt export boards: {option} {text!r}: expected {expected}", WRONG_INPUT)
