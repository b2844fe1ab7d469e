"""The tables that are shipped as YAML in `data/`."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml


def table(name: str) -> Any:
    """What `data/NAME.yaml` says. To be kept by the caller: the largest takes 35 ms."""
    text = resources.files("clusterwatt").joinpath(f"data/{name}.yaml").read_text(encoding="utf-8")
    # libyaml; the loader in Python takes up to ten times as long, and not every PyYAML has the former.
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
