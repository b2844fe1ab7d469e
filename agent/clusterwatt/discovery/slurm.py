"""The nodes of a Slurm cluster, from `scontrol show nodes`: as JSON, or as text where it offers none.

The text is one line a node with `--oneliner`: `NodeName=gpu1 Arch=x86_64 ... State=IDLE+DRAIN ...`; the JSON
has `nodes`, a list whose fields are those of Slurm's REST API (name, address, state, active_features,
partitions, gres). Fields whose values have spaces (OS, Reason) are not read.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from clusterwatt import plain_file
from clusterwatt.discovery import hostlist
from clusterwatt.program import lines_of

TIMEOUT_S = 60.0
MAX_BYTES = 256 << 20
VARIABLES = ("SLURM_CONF", "SLURM_JWT")  # where slurmctld is, and who asks where it wants a token
JSON = ("scontrol", "show", "nodes", "--json")
TEXT = ("scontrol", "show", "nodes", "--oneliner")
FIELD = re.compile(
    r"(?:^|\s)(NodeName|NodeAddr|State|Partitions|Gres|AvailableFeatures|ActiveFeatures)=(\S*)"
)
NOTHING = frozenset({"", "(null)", "n/a", "none", "null"})
HOST = re.compile(r"[A-Za-z0-9:._-]{1,253}")
# Marks behind a state (man page sinfo, NODE STATE CODES): idle* does not answer, idle~ sleeps.
MARKS = "*~#!%$@^-+"
GONE = frozenset({"future", "cloud_down"})


class DiscoveryError(Exception):
    """The nodes cannot be told; the message is one line."""


class Node(msgspec.Struct, frozen=True):
    """A node. `states`: its state and what holds beside it, as `idle` and `drain`."""

    name: str
    address: str
    states: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    gres: str = ""


def ask() -> list[Node]:
    """The nodes that Slurm's own command tells. Raises DiscoveryError."""
    if shutil.which(JSON[0]) is None:
        raise DiscoveryError(
            "scontrol is not on PATH: run this where Slurm's commands are, or name --input FILE"
        )
    try:
        answer = _json_or_text()
    except OSError as error:
        raise DiscoveryError(f"{error.strerror}; `scontrol ping` tells whether slurmctld answers") from None
    return read(answer)


def _json_or_text() -> str:
    try:
        answer = _printed(JSON)
    except TimeoutError:
        raise
    except OSError:
        answer = ""
    # Before 21.08 there is no --json, and it may have been built without the plugin that makes it.
    return answer if answer.lstrip().startswith("{") else _printed(TEXT)


def _printed(command: Sequence[str]) -> str:
    lines = lines_of(command, TIMEOUT_S, max_bytes=MAX_BYTES, variables=VARIABLES)
    return b"\n".join(lines).decode("utf-8", "replace")


def read_file(path: Path) -> list[Node]:
    """The nodes that a saved answer tells. Raises DiscoveryError."""
    try:
        content = plain_file.content(path, MAX_BYTES)
    except OSError as error:
        raise DiscoveryError(f"{path}: {error.strerror}") from None
    try:
        return read(content.decode("utf-8", "replace"))
    except DiscoveryError as error:
        raise DiscoveryError(f"{path}: {error}") from None


def read(answer: str) -> list[Node]:
    """The nodes of an answer, sorted by name, without those that are only planned. Raises DiscoveryError."""
    found = _json(answer) if answer.lstrip().startswith("{") else _text(answer)
    nodes = {node.name: node for node in found if not GONE & set(node.states)}
    if not nodes:
        raise DiscoveryError(
            "no node in the answer: expected the output of `scontrol show nodes`, --json or --oneliner"
        )
    for node in nodes.values():
        if not HOST.fullmatch(node.address):
            raise DiscoveryError(f'node {node.name!r}: "{node.address[:80]}" is no address of a host')
    return [nodes[name] for name in sorted(nodes)]


def _json(answer: str) -> list[Node]:
    try:
        nodes = json.loads(answer)["nodes"]
        return [_of_json(node) for node in nodes]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = str(error) or type(error).__name__
        raise DiscoveryError(
            f"this is no list of nodes as scontrol writes it in JSON: {said[:120]}"
        ) from None


def _of_json(node: Mapping[str, object]) -> Node:
    name = str(node["name"])
    states = [*_words(node.get("state")), *_words(node.get("state_flags"))]
    return Node(
        name=name,
        address=_value(str(node.get("address") or "")) or name,
        states=_states(states),
        partitions=_words(node.get("partitions")),
        features=_words(node.get("active_features")) or _words(node.get("features")),
        gres=_value(str(node.get("gres") or "")),
    )


def _words(value: object) -> tuple[str, ...]:
    """A list, or a text with commas: it has been both, in versions of Slurm's data format."""
    words = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(text for word in words if (text := _value(str(word).strip())))


def _text(answer: str) -> list[Node]:
    """Nodes of the text: one line each, or with blank lines between them where --oneliner was left out."""
    nodes: list[Node] = []
    for record in re.split(r"(?:^|\n)(?=NodeName=)", answer):
        fields: dict[str, str] = {}
        for match in FIELD.finditer(record):
            fields.setdefault(match[1], match[2])  # what follows may be text of people, in Reason or Comment
        if "NodeName" not in fields:
            continue
        try:
            names = hostlist.expand(fields["NodeName"])
            addresses = hostlist.expand(_value(fields.get("NodeAddr", "")) or fields["NodeName"])
        except ValueError as error:
            raise DiscoveryError(f"NodeName={fields['NodeName'][:80]}: {error}") from None
        if len(addresses) != len(names):
            addresses = names
        features = _words(fields.get("ActiveFeatures")) or _words(fields.get("AvailableFeatures"))
        nodes += [
            Node(
                name=name,
                address=address,
                states=_states(re.split(r"\+", fields.get("State", ""))),
                partitions=_words(fields.get("Partitions")),
                features=features,
                gres=_value(fields.get("Gres", "")),
            )
            for name, address in zip(names, addresses, strict=True)
        ]
    return nodes


def _states(words: Sequence[str]) -> tuple[str, ...]:
    found = [text for word in words if (text := _value(word.strip(MARKS).lower()))]
    return tuple(dict.fromkeys(found))


def _value(text: str) -> str:
    return "" if text.lower() in NOTHING else text
