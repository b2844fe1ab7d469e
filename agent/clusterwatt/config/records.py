"""A file of our own form beside the configuration: from YAML to a msgspec type, with every mistake's place.

A price book is one. Rules for single values are those of settings (`config.values`); sections may stand in
lists here. What was read keeps the place of everything in it, for what only its owner can check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import yaml
from msgspec import inspect

from clusterwatt.config import document, values
from clusterwatt.config.document import Origin
from clusterwatt.config.problems import ConfigError, Problem, nearest

T = TypeVar("T")
MAX_PROBLEMS = 50


class Record(Generic[T]):
    """What a file holds, and where each part of it stands."""

    def __init__(self, content: T, places: Mapping[str, str], file: str) -> None:
        self.content = content
        self._places = places
        self._file = file

    def holding(self, content: T) -> Record[T]:
        """The same places, with the content as its owner has completed it."""
        return Record(content, self._places, self._file)

    def problem(self, path: str, text: str) -> Problem:
        """A problem with what stands at a path such as `gpus[1].name`, or should; then with what holds it."""
        above = path
        while above not in self._places and above:
            above = above[: max(above.rfind("."), above.rfind("["), 0)]
        return Problem(self._places.get(above, self._file), path, text)

    def line(self, path: str) -> str:
        """The line of a part, as `line 7`."""
        return f"line {self._places[path].rsplit(':', 2)[-2]}"


def read(path: Path, kind: type[T]) -> Record[T]:
    """Read a file as a type. Raises ConfigError with all problems."""
    origin = Origin(str(path), has_lines=True)
    return parse(document.read(path), kind, origin)


def parse(text: str, kind: type[T], origin: Origin) -> Record[T]:
    """Read a text as a type. Raises ConfigError with all problems."""
    walk = _Walk(origin)
    node = document.compose(text, origin)
    if node is None:
        raise ConfigError([Problem(origin.name, "", "the file is empty")])
    tree = walk.take(node, inspect.type_info(kind), "", node.start_mark)
    if walk.problems:
        raise ConfigError(walk.problems[:MAX_PROBLEMS])
    return Record(msgspec.convert(tree, kind), walk.places, origin.name)


class _Walk:
    """Goes along nodes and types together and gathers builtins, places and problems."""

    def __init__(self, origin: Origin) -> None:
        self.problems: list[Problem] = []
        self.places: dict[str, str] = {}
        self._origin = origin

    def take(self, node: yaml.Node, kind: inspect.Type, path: str, mark: yaml.Mark) -> object:
        """What a node holds, as builtins; None where that is wrong. `mark`: where to point to."""
        self.places[path] = self._origin.at(mark)
        if isinstance(kind, inspect.UnionType):  # of a type and None, which is never written
            kind = next(one for one in kind.types if not isinstance(one, inspect.NoneType))
        if isinstance(kind, inspect.StructType):
            return self._section(node, kind, path)
        if isinstance(kind, inspect.VarTupleType):
            return self._list(node, kind, path)
        if isinstance(kind, inspect.DictType):
            return self._names(node, kind, path)
        try:
            return values.convert(node, kind)
        except values.UnfitError as unfit:
            self._problem(path, str(unfit))
            return None

    def _section(self, node: yaml.Node, kind: inspect.StructType, path: str) -> object:
        if not isinstance(node, yaml.MappingNode) or node.tag not in document.KNOWN_TAGS:
            self._problem(path, values.mismatch(kind, node))
            return None
        fields = {field.name: field for field in kind.fields}
        found: dict[str, object] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            inner = f"{path}.{name}".lstrip(".")
            if name not in fields:
                self.problems.append(Problem(self._origin.at(key.start_mark), inner, _unknown(name, fields)))
            elif name in found:
                self.problems.append(Problem(self._origin.at(key.start_mark), inner, "given twice: keep one"))
            else:
                found[name] = self.take(value, fields[name].type, inner, key.start_mark)
        for name, field in fields.items():
            if field.required and name not in found:
                self._problem(path, f"{name} is missing: expected {values.described(field.type)}")
        return found

    def _list(self, node: yaml.Node, kind: inspect.VarTupleType, path: str) -> object:
        if not isinstance(node, yaml.SequenceNode) or node.tag not in document.KNOWN_TAGS:
            self._problem(path, values.mismatch(kind, node))
            return None
        return [
            self.take(entry, kind.item_type, f"{path}[{index}]", entry.start_mark)
            for index, entry in enumerate(node.value)
        ]

    def _names(self, node: yaml.Node, kind: inspect.DictType, path: str) -> object:
        if not isinstance(node, yaml.MappingNode) or node.tag not in document.KNOWN_TAGS:
            self._problem(path, values.mismatch(kind, node))
            return None
        found: dict[str, object] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            told = "..." if ":" in name and values.is_secret(kind) else name  # `name:secret` is one name
            inner = f"{path}.{told}"
            if name in found:
                self.problems.append(Problem(self._origin.at(key.start_mark), inner, "given twice: keep one"))
            else:
                found[name] = self.take(value, kind.value_type, inner, key.start_mark)
        return found

    def _problem(self, path: str, text: str) -> None:
        self.problems.append(Problem(self.places[path], path, text))


def _unknown(name: str, known: Iterable[str]) -> str:
    meant = nearest(name, known)
    return f"unknown; did you mean {meant}?" if meant else f"unknown; known here: {', '.join(known)}"
