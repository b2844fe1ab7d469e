"""How scenarios write lengths of time (`90s`, `1h30m`) and nodes (`node-0001..node-0004`, `all`)."""

from __future__ import annotations

import re

UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
NODE = re.compile(r"node-(\d{4})")


def seconds_of(text: str) -> float:
    """Seconds of a length of time as `90s`, `5m` or `1h30m`."""
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([smhd])", text))


def nodes_of(text: str, count: int) -> range:
    """The numbers of the nodes that are meant, in a cluster of so many."""
    if text == "all":
        return range(count)
    names = NODE.findall(text)
    return range(int(names[0]) - 1, int(names[-1]))


def mistake_in_nodes(text: str, count: int) -> str | None:
    """What is wrong with the nodes that are named, None: nothing."""
    first, dots, last = text.partition("..")
    for name in (first, last) if dots else (first,):
        found = NODE.fullmatch(name)
        if text != "all" and (found is None or not 1 <= int(found[1]) <= count):
            return f"expected node-0001 to node-{count:04d}, two of them with .. between, or all"
    return None if nodes_of(text, count) else "expected the first of the nodes before the last"
