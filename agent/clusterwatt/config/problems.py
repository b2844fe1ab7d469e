"""What is wrong with a configuration, in lines that a person can act on."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

import msgspec

SHOWN_CHARACTERS = 60
LEAST_BEGUN = 3  # characters by which a name is known though its end is missing


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong: where it was written, the dotted path of the setting, and what is wrong."""

    where: str
    path: str
    text: str

    def __str__(self) -> str:
        """One line, whatever the file holds."""
        return ": ".join(escaped(part) for part in (self.where, self.path, self.text) if part)


class ConfigError(Exception):
    """A configuration that cannot be used, with everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def escaped(text: str) -> str:
    """The text on one line: characters that do not print are written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(text: str) -> str:
    """The text as a message quotes it: escaped, and cut when it is long."""
    return escaped(text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "...")


def nearest(name: str, known: Collection[str]) -> str:
    """The known name that was probably meant; empty when none is near."""
    if len(name) > SHOWN_CHARACTERS:
        return ""
    begun = [each for each in known if each.startswith(name)] if len(name) >= LEAST_BEGUN else []
    if begun:
        return min(begun, key=lambda each: (len(each), each))
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1)), "")
