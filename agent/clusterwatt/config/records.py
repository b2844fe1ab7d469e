"""A file of our own form beside the configuration: from YAML to a msgspec type, with every mistake's place.

A price book is one. Rules for single values are those of settings (`config.values`); sections may stand in
lists here. What was read keeps the place of everything in it, for what only its owner can check: the owner
has the content also when something in it is wrong, with defaults in those places, so that all mistakes of a
file are told at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import yaml
from msgspec import inspect

from clusterwatt.config import document, values
from clusterwatt.config.document import Origin
from clusterwatt.config.problems import ConfigError, Problem, nearest

T = TypeVar("T")
MAX_PROBLEMS = 50


class Record(Generic[T]):
    """What a file holds, where each part of it stands, and what is wrong so far."""

    def __init__(
        self, content: T, places: Mapping[str, str], file: str, mistakes: Mapping[str, Sequence[Problem]]
    ) -> None:
        self.content = content
        self._places = places
        self._file = file
        self._mistakes = mistakes

    def holding(self, content: T) -> Record[T]:
        """The same places, with the content as its owner has completed it."""
        return Record(content, self._places, self._file, self._mistakes)

    def is_wrong(self, path: str) -> bool:
        """Whether a mistake is known at a path, below it or above it: what stands there says nothing then."""
        return any(_is_below(path, wrong) or _is_below(wrong, path) for wrong in self._mistakes)

    def settle(self, found: Iterable[Problem]) -> None:
        """Raise ConfigError with all mistakes, those that the owner has found among them, if there are any.

        What follows from one that is known is left out.
        """
        problems = [problem for known in self._mistakes.values() for problem in known]
        problems += [
            each for each in found if not any(_is_below(each.path, wrong) for wrong in self._mistakes)
        ]
        if problems:
            raise ConfigError(sorted(problems, key=_line)[:MAX_PROBLEMS])

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
    """Read a file as a type. Raises ConfigError when it cannot be read at all."""
    origin = Origin(str(path), has_lines=True)
    return parse(document.read(path), kind, origin)


def parse(text: str, kind: type[T], origin: Origin) -> Record[T]:
    """Read a text as a type. Raises ConfigError when it is no YAML, or empty."""
    walk = _Walk(origin)
    node = document.compose(text, origin)
    if node is None:
        raise ConfigError([Problem(origin.name, "", "the file is empty")])
    content = walk.take(node, inspect.type_info(kind), "", node.start_mark)
    assert isinstance(content, kind)  # `take` makes it of this type
    return Record(content, walk.places, origin.name, walk.mistakes)


class _Walk:
    """Goes along nodes and types together and gathers content, places and mistakes by path."""

    def __init__(self, origin: Origin) -> None:
        self.mistakes: dict[str, list[Problem]] = {}
        self.places: dict[str, str] = {}
        self._origin = origin

    def take(self, node: yaml.Node, kind: inspect.Type, path: str, mark: yaml.Mark) -> object:
        """What a node holds; something of its type where that is wrong. `mark`: where to point to."""
        self.places[path] = self._origin.at(mark)
        kind = _written(kind)
        if isinstance(kind, inspect.StructType):
            return self._section(node, kind, path)
        if isinstance(kind, inspect.VarTupleType):
            return self._list(node, kind, path)
        if isinstance(kind, inspect.DictType):
            return self._names(node, kind, path)
        try:
            return values.convert(node, kind)
        except values.UnfitError as unfit:
            return self._wrong(path, str(unfit), kind)

    def _section(self, node: yaml.Node, kind: inspect.StructType, path: str) -> object:
        if not isinstance(node, yaml.MappingNode) or node.tag not in document.KNOWN_TAGS:
            return self._wrong(path, values.mismatch(kind, node), kind)
        fields = {field.name: field for field in kind.fields}
        found: dict[str, object] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            inner = f"{path}.{name}".lstrip(".")
            if name not in fields:
                self._unknown(key, inner, _unknown(name, fields))
                if meant := nearest(name, fields):  # of which nothing is to be said twice
                    self.mistakes.setdefault(f"{path}.{meant}".lstrip("."), [])
            elif name in found:
                self._unknown(key, inner, "given twice: keep one")
            else:
                found[name] = self.take(value, fields[name].type, inner, key.start_mark)
        for name, field in fields.items():
            inner = f"{path}.{name}".lstrip(".")
            if not field.required:
                if inner in self.mistakes:
                    found.pop(name, None)  # its default says less that is wrong
            elif name not in found:
                found[name] = _filler(field.type)
                if inner not in self.mistakes:
                    text = f"missing: expected {values.described(field.type)}"
                    self.mistakes[inner] = [Problem(self.places[path], inner, text)]
        return kind.cls(**found)

    def _list(self, node: yaml.Node, kind: inspect.VarTupleType, path: str) -> object:
        if not isinstance(node, yaml.SequenceNode) or node.tag not in document.KNOWN_TAGS:
            return self._wrong(path, values.mismatch(kind, node), kind)
        return tuple(
            self.take(entry, kind.item_type, f"{path}[{index}]", entry.start_mark)
            for index, entry in enumerate(node.value)
        )

    def _names(self, node: yaml.Node, kind: inspect.DictType, path: str) -> object:
        if not isinstance(node, yaml.MappingNode) or node.tag not in document.KNOWN_TAGS:
            return self._wrong(path, values.mismatch(kind, node), kind)
        found: dict[str, object] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            told = "..." if ":" in name and values.is_secret(kind) else name  # `name:secret` is one name
            inner = f"{path}.{told}"
            if name in found:
                self._unknown(key, inner, "given twice: keep one")
            else:
                found[name] = self.take(value, kind.value_type, inner, key.start_mark)
        return found

    def _wrong(self, path: str, text: str, kind: inspect.Type) -> object:
        self.mistakes.setdefault(path, []).append(Problem(self.places[path], path, text))
        return _filler(kind)

    def _unknown(self, key: yaml.Node, path: str, text: str) -> None:
        self.mistakes.setdefault(path, []).append(Problem(self._origin.at(key.start_mark), path, text))


def _written(kind: inspect.Type) -> inspect.Type:
    """Of a type and None, the type: None is never written."""
    if isinstance(kind, inspect.UnionType):
        return next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    return kind


def _filler(kind: inspect.Type) -> object:
    """Something of a type, which need not be right: that what it stands for is wrong is told already."""
    kind = _written(kind)
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    filler: object = ""
    match kind:
        case inspect.StructType():
            required = (field for field in kind.fields if field.required)
            filler = kind.cls(**{field.name: _filler(field.type) for field in required})
        case inspect.LiteralType():
            filler = kind.values[0]
        case inspect.VarTupleType():
            filler = ()
        case inspect.DictType():
            filler = {}
        case inspect.BoolType():
            filler = False
        case inspect.IntType() | inspect.FloatType():
            filler = 1
    return filler


def _is_below(path: str, above: str) -> bool:
    """Whether a path is that of a place, or of something in it."""
    return not above or path == above or path.startswith((f"{above}.", f"{above}["))


def _line(problem: Problem) -> tuple[int, int]:
    """By this problems stand in the order of the file."""
    _, *place = problem.where.rsplit(":", 2)
    return (int(place[0]), int(place[1])) if len(place) == 2 and all(map(str.isdecimal, place)) else (0, 0)


def _unknown(name: str, known: Collection[str]) -> str:
    meant = nearest(name, known)
    return f"unknown; did you mean {meant}?" if meant else f"unknown; known here: {', '.join(known)}"
