"""The file that Prometheus discovers targets from (file_sd_config): groups of targets with labels.

Labels that begin with `__meta_` are there for relabelling and end with it: nothing of Slurm becomes a label
of every series unless the site wants it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from clusterwatt import plain_file, whole_file
from clusterwatt.discovery.slurm import Node

DOWN = frozenset({"down", "fail", "not_responding", "powered_down", "powering_down", "power_down"})
DRAINED = frozenset({"drain", "drained", "draining"})


def render(nodes: Sequence[Node], port: int) -> str:
    """The file's text, the same for the same nodes."""
    groups = [{"targets": [_target(node.address, port)], "labels": _labels(node)} for node in nodes]
    return json.dumps(groups, indent=1, ensure_ascii=False) + "\n"


def write(path: Path, text: str) -> bool:
    """Replace the file whole, where it is to change; whether it was. Raises OSError."""
    new = text.encode()
    try:
        if plain_file.content(path, len(new) + 1) == new:
            return False
    except FileNotFoundError:
        pass
    whole_file.write(path, text)
    return True


def _target(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _labels(node: Node) -> dict[str, str]:
    """What relabelling can choose by. Lists have commas around each item, as `,train,debug,`."""
    states = set(node.states)
    availability = "down" if states & DOWN else "drained" if states & DRAINED else "up"
    return {
        "__meta_slurm_node": node.name,
        "__meta_slurm_state": "+".join(node.states),
        "__meta_slurm_availability": availability,
        "__meta_slurm_partitions": _list(node.partitions),
        "__meta_slurm_features": _list(node.features),
        "__meta_slurm_gres": node.gres,
    }


def _list(items: Sequence[str]) -> str:
    return f",{','.join(items)}," if items else ""
