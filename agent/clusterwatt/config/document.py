"""A configuration file as YAML nodes, which know their line and column.

Nodes are composed, never constructed: no tag of YAML can make an object, and a scalar keeps the text as it
was written, so that `no`, `010` and `1:30` do not turn into something else before a setting has seen them.
An alias is the same node once more and costs nothing.
"""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import msgspec
import yaml

from clusterwatt import plain_file
from clusterwatt.config.problems import ConfigError, Problem, shown

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 20  # settings lie four deep; the composer would recurse once for each level
TAG = "tag:yaml.org,2002:"
KNOWN_TAGS = frozenset(
    TAG + name
    for name in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value", "seq", "map")
)


class Origin(msgspec.Struct, frozen=True):
    """Where a value comes from: a file, whose nodes have lines, or a variable or flag without them."""

    name: str
    has_lines: bool = False

    def at(self, mark: yaml.Mark) -> str:
        """The place as a message states it: `file:line:column`, or the name alone."""
        return f"{self.name}:{mark.line + 1}:{mark.column + 1}" if self.has_lines else self.name

    def source(self, mark: yaml.Mark) -> str:
        """The place without the column."""
        return f"{self.name}:{mark.line + 1}" if self.has_lines else self.name


class _Loader(yaml.SafeLoader):
    """Composes nodes and refuses deep nesting."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            event = self.peek_event()  # type: ignore[no-untyped-call]  # missing in the stubs
            raise yaml.composer.ComposerError(None, None, "nested too deep", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read(path: Path, *, missing: str = "") -> str:
    """The text of a file that the user names. Raises ConfigError when it cannot be read or is not text.

    `missing`: what to do when there is no such file.
    """
    name = str(path)
    try:
        content = plain_file.content(path, MAX_FILE_BYTES + 1)
    except plain_file.NotPlainError as error:
        raise ConfigError([Problem(name, "", f"{error.strerror}")]) from None
    except FileNotFoundError as error:
        text = f"cannot be read: {error.strerror}" + (f"; {missing}" if missing else "")
        raise ConfigError([Problem(name, "", text)]) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        # Interpreters word the ValueError in their own ways.
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "embedded null byte"
        raise ConfigError([Problem(name, "", f"cannot be read: {reason}")]) from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError([Problem(name, "", f"larger than {MAX_FILE_BYTES} bytes")])
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        where = f"{name}:{line}:{column}"
        raise ConfigError([Problem(where, "", f"not UTF-8: {error.reason}")]) from None


def compose(text: str, origin: Origin) -> yaml.Node | None:
    """The one document of a text; None when it is empty. Raises ConfigError with the place of a mistake."""
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position)
        column = error.position - (text.rfind("\n", 0, error.position) + 1)
        where = origin.at(yaml.Mark("", error.position, line, column, None, 0))
        character = shown(chr(error.character)) if isinstance(error.character, int) else "?"
        problem = f"not valid YAML: the character {character} is not allowed"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = origin.at(mark) if mark else origin.name
        problem = f"not valid YAML: {_explained(error)}"
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # A few impossible numbers (an escape beyond Unicode, a version of many digits) pass PyYAML's checks.
        where, problem = origin.name, f"not valid YAML: {shown(str(error))}"
    raise ConfigError([Problem(where, "", problem)])


def scalar(text: str | None) -> yaml.ScalarNode:
    """A node for a text that is not YAML, or for nothing."""
    mark = yaml.Mark("", 0, 0, 0, None, 0)
    return yaml.ScalarNode(TAG + ("null" if text is None else "str"), text or "", mark, mark)


def _explained(error: yaml.MarkedYAMLError) -> str:
    problem = " ".join((error.problem or error.context or "").split())
    if "\\t" in problem:
        return "a tab; YAML is indented with spaces"
    if error.problem and error.context and error.context_mark:
        problem += f" {error.context}"
        if error.problem_mark and error.context_mark.line != error.problem_mark.line:
            problem += f" that begins on line {error.context_mark.line + 1}"
    return problem
