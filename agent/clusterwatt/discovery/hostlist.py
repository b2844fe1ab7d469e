"""Slurm's short form of many names, as `gpu[001-004,9],login` (man page scontrol, show hostlist)."""

from __future__ import annotations

import itertools
import re

MAX_NAMES = 100_000
PART = re.compile(r"\[([^\[\]]*)\]")
RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


def expand(text: str) -> list[str]:
    """All names, in their order. Raises ValueError, which says what is wrong."""
    names: list[str] = []
    for entry in re.split(r",(?![^\[]*\])", text):
        if not entry:
            raise ValueError(f'an empty name in "{text[:80]}"')
        pieces = PART.split(entry)
        if any("[" in piece or "]" in piece for piece in pieces[::2]):
            raise ValueError(f'a bracket without its other in "{entry[:80]}"')
        choices = [[piece] if index % 2 == 0 else _numbers(piece) for index, piece in enumerate(pieces)]
        total = len(names)
        for choice in itertools.product(*choices):
            names.append("".join(choice))
            total += 1
            if total > MAX_NAMES:
                raise ValueError(f"more than {MAX_NAMES} names")
    return names


def _numbers(text: str) -> list[str]:
    """The numbers of a bracket, with the zeros before them that the first one has."""
    numbers: list[str] = []
    for part in text.split(","):
        match = RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f'expected numbers as 1-4, got "{part[:40]}"')
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first) or int(last) - int(first) >= MAX_NAMES:
            raise ValueError(f'"{part[:40]}" is no range of at most {MAX_NAMES} numbers')
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers
