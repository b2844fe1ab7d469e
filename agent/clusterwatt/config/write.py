"""The configuration as YAML: the effective one, and a commented file of all defaults."""

from __future__ import annotations

import inspect as python
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from clusterwatt.config import values
from clusterwatt.config.model import (
    SYSTEM_RELEASE_FILE,
    SYSTEM_STATE_FOLDER,
    Collectors,
    Config,
    Driver,
    Ledger,
    MaintenanceCollector,
    Recorder,
    Section,
)

HEAD = """\
# Configuration of clusterwatt, with every setting at its default.
#
# Remove the "#" before a setting to change it. The environment goes before this file
# (CLUSTERWATT_COLLECTORS__GPU__EVERY_SECONDS=1), the command line before both
# (--set collectors.gpu.every_seconds=1). `clusterwatt check-config` names every mistake and its line.
"""


def to_yaml(config: Config) -> str:
    """Every setting with its value, as a file that `load` reads back to the same configuration."""
    return _yaml(msgspec.to_builtins(config))


def reference() -> str:
    """A configuration file that changes nothing: each setting commented out, with what it means and takes."""
    defaults = Config(  # not those of the user who happens to ask
        driver=Driver(release_file=SYSTEM_RELEASE_FILE),
        collectors=Collectors(
            maintenance=MaintenanceCollector(file=str(SYSTEM_STATE_FOLDER / "maintenance"))
        ),
        ledger=Ledger(path=str(SYSTEM_STATE_FOLDER / "ledger.db")),
        recorder=Recorder(directory=str(SYSTEM_STATE_FOLDER / "flight")),
    )
    return HEAD + "\n".join(_section(defaults, indent="")) + "\n"


def _section(section: Section, indent: str) -> Iterator[str]:
    kinds = {field.name: field.type for field in msgspec.inspect.type_info(type(section)).fields}  # type: ignore[attr-defined]  # a Struct has fields
    for name in section.__struct_fields__:
        setting = getattr(section, name)
        if isinstance(setting, Section):
            yield ""
            yield from (f"{indent}# {line}".rstrip() for line in _documentation(setting))
            yield f"{indent}{name}:"
            yield from _section(setting, indent + "  ")
        else:
            text = _yaml({name: msgspec.to_builtins(setting)}, lists_in_one_line=True).strip()
            yield f"{indent}#{text}  # {values.described(kinds[name])}"


def _documentation(section: Section) -> list[str]:
    return (python.getdoc(type(section)) or "").splitlines()


def _yaml(tree: dict[str, Any], *, lists_in_one_line: bool = False) -> str:
    # For None PyYAML writes lists of scalars in one line, but a mapping of nothing else as well.
    in_one_line = lists_in_one_line and any(isinstance(value, list | tuple) for value in tree.values())
    flow = None if in_one_line else False
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=flow)
