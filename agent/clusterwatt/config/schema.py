"""The model as a tree of types: which sections and settings there are, and what they are called."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from msgspec import inspect

from clusterwatt.config.model import Config

ENVIRONMENT_PREFIX = "CLUSTERWATT_"

SettingPath = tuple[str, ...]


@functools.cache
def root() -> inspect.StructType:
    """The type of the whole configuration."""
    kind = inspect.type_info(Config)
    assert isinstance(kind, inspect.StructType)  # it is one
    return kind


def below(kind: inspect.Type, name: str) -> inspect.Type | None:
    """The type of a setting or section in a section; None when there is none of the name."""
    if isinstance(kind, inspect.StructType):
        return next((field.type for field in kind.fields if field.name == name), None)
    return kind.value_type if isinstance(kind, inspect.DictType) else None


def names(kind: inspect.Type) -> tuple[str, ...]:
    """What a section holds, in the order of the model; empty for a setting."""
    return tuple(field.name for field in kind.fields) if isinstance(kind, inspect.StructType) else ()


def paths(kind: inspect.Type, above: SettingPath = ()) -> Iterator[tuple[SettingPath, inspect.Type]]:
    """Every section and setting below a type, the upper before the lower."""
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            path = (*above, field.name)
            yield path, field.type
            yield from paths(field.type, path)


@functools.cache
def variables() -> Mapping[str, tuple[SettingPath, inspect.Type]]:
    """Every section and setting by the name of its environment variable."""
    return {ENVIRONMENT_PREFIX + "__".join(path).upper(): (path, kind) for path, kind in paths(root())}


def path_of_variable(variable: str) -> SettingPath | None:
    """The path that an environment variable sets; None when it sets nothing.

    An entry of a setting that holds names has no variable of its own: it goes on behind the setting's.
    """
    if variable in variables():
        return variables()[variable][0]
    head, _, entry = variable.rpartition("__")
    path, kind = variables().get(head, ((), root()))
    return (*path, entry.lower()) if isinstance(kind, inspect.DictType) else None
