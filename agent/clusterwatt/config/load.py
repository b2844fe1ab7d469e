"""From defaults, file, environment and command line to a checked configuration.

Each source is a tree of YAML nodes that is walked along the model; what it sets is kept by path, and a later
source wins. Every mistake of every source is gathered, so that one run names them all. Then the whole is
converted at once, and settings that contradict each other are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import yaml
from msgspec import inspect

from clusterwatt.catalog import PREFIX
from clusterwatt.config import document, schema, values
from clusterwatt.config.checks import contradictions
from clusterwatt.config.document import Origin
from clusterwatt.config.model import Config
from clusterwatt.config.problems import ConfigError, Problem, nearest, shown
from clusterwatt.config.schema import ENVIRONMENT_PREFIX, SettingPath

# No settings: the first names the file, the second what an image was built from (`collectors.agent`), the
# third where training processes report to (`training.reporter`).
OTHER_VARIABLES = frozenset({"CLUSTERWATT_CONFIG", "CLUSTERWATT_REVISION", "CLUSTERWATT_REPORT_TO"})
# What Kubernetes and Docker put into the containers beside a service whose name begins with ours
# (https://kubernetes.io/docs/concepts/containers/container-environment/), as NAME=value.
SERVICE_LINK = re.compile(
    r"CLUSTERWATT_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)_(?:ADDR|PORT|PROTO))=.*"
    r"|CLUSTERWATT_(?:\w+_)?PORT(?:_\d+_(?:TCP|UDP|SCTP))?=(?:tcp|udp|sctp)://.*"
)
FAMILIES = ("limits", "families")  # the one setting whose keys are names of another world: the catalogue's
MAX_PROBLEMS = 50
REMEDY = "`clusterwatt check-config --print-defaults` prints one to begin with"
ALL_SETTINGS = "`clusterwatt check-config --print-defaults` lists all"
ALL_FAMILIES = "`clusterwatt metrics` lists all"


class Loaded(msgspec.Struct, frozen=True):
    """The configuration, and for each setting that is not a default, by dotted path, where it was set."""

    config: Config
    sources: Mapping[str, str]


def load(
    path: Path | None,
    environ: Mapping[str, str],
    sets: Sequence[str],
    *,
    flags: Mapping[str, tuple[str, str]] | None = None,
    families: Collection[str] = (),
) -> Loaded:
    """Load the configuration: defaults, then the file, the environment, `path=value` texts, flags.

    `flags` maps a flag of the command line to the path that it sets and the value it was given. `families`
    are the names that `limits.families` may hold; without them they are not checked. Raises
    WrongSettingsError with all problems; ConfigError when they are very many.
    """
    settings = _Settings(families)
    if path is not None:
        settings.file(path)
    settings.environment(environ)
    for text in sets:
        settings.assignment(text)
    for flag, (target, value) in (flags or {}).items():
        settings.override(tuple(target.split(".")), value, Origin(flag))
    return settings.finished()


class WrongSettingsError(ConfigError):
    """Settings that cannot be used. `loaded`: the others, with defaults in the place of those."""

    def __init__(self, problems: Sequence[Problem], loaded: Loaded) -> None:
        super().__init__(problems)
        self.loaded = loaded


class _Place(msgspec.Struct, frozen=True):
    """Where a setting stands: its path, and the mark of its key in the source that sets it."""

    path: SettingPath
    origin: Origin
    mark: yaml.Mark

    def below(self, name: str, mark: yaml.Mark) -> _Place:
        return _Place((*self.path, name), self.origin, mark)

    def entry(self, index: int, mark: yaml.Mark) -> _Place:
        *section, name = self.path
        return _Place((*section, f"{name}[{index}]"), self.origin, mark)


class _Settings:
    """What has been set so far, by path, and what was wrong."""

    def __init__(self, families: Collection[str]) -> None:
        self._families = {name.removeprefix(PREFIX) for name in families}
        self._values: dict[SettingPath, object] = {}
        self._places: dict[SettingPath, _Place] = {}
        self._problems: list[Problem] = []
        self._wrong: set[SettingPath] = set()

    def file(self, path: Path) -> None:
        """Take what a file sets."""
        origin = Origin(str(path), has_lines=True)
        try:
            node = document.compose(document.read(path, missing=REMEDY), origin)
        except ConfigError as error:
            self._problems += error.problems
            return
        if node is not None:
            self._take(node, schema.root(), _Place((), origin, node.start_mark))

    def environment(self, environ: Mapping[str, str]) -> None:
        """Take what variables with our prefix set; one that names no setting is a problem."""
        for name in sorted(environ):
            if not name.startswith(ENVIRONMENT_PREFIX) or name in OTHER_VARIABLES:
                continue
            path = schema.path_of_variable(name)
            if path is not None:
                self.override(path, environ[name], Origin(f"environment {name}"))
            elif not SERVICE_LINK.fullmatch(f"{name}={environ[name]}"):
                known = {variable.removeprefix(ENVIRONMENT_PREFIX) for variable in schema.variables()}
                meant = nearest(name.removeprefix(ENVIRONMENT_PREFIX), known)
                meant = f"did you mean {ENVIRONMENT_PREFIX}{meant}?" if meant else ALL_SETTINGS
                self._problem(_place((), Origin(f"environment {name}")), f"unknown setting; {meant}")

    def assignment(self, text: str) -> None:
        """Take a `path=value` text."""
        path, equals, value = text.partition("=")
        if equals and path.strip():
            self.override(tuple(path.strip().split(".")), value, Origin("--set"))
        else:
            self._problem(_place((), Origin("--set")), f'expected path=value, got "{shown(text)}"')

    def override(self, path: SettingPath, text: str, origin: Origin) -> None:
        """Set one path from a text: YAML, but as it is written where a setting takes text."""
        kind: inspect.Type = schema.root()
        for depth, name in enumerate(path, start=1):
            deeper = self._find(kind, _place(path[:depth], origin), name)
            if deeper is None:
                return
            kind = deeper
        place = _place(path, origin)
        quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
        if values.is_text(kind) and not quoted:
            self._take(document.scalar(text), kind, place)
            return
        try:
            node = document.compose(text, origin)
        except ConfigError as error:
            for problem in error.problems:
                self._problem(place, problem.text)
            return
        self._take(node or document.scalar(None), kind, place)

    def finished(self) -> Loaded:
        """The configuration of all that was set. Raises WrongSettingsError when anything was wrong."""
        tree: dict[str, object] = {}
        for path, value in self._values.items():
            section = tree
            for name in path[:-1]:
                deeper = section.setdefault(name, {})
                assert isinstance(deeper, dict)  # a section is never a setting as well
                section = deeper
            section[path[-1]] = value
        config = _with_real_root(msgspec.convert(tree, Config))
        for involved, text in contradictions(config):
            paths = [tuple(dotted.split(".")) for dotted in involved]
            if not any(self._is_wrong(path) for path in paths):
                place = next(place for path in paths for place in self._places_below(path))
                self._problems.append(Problem(place.origin.at(place.mark), involved[0], text))
        sources = {".".join(path): place.origin.source(place.mark) for path, place in self._places.items()}
        loaded = Loaded(config, sources)
        if self._problems:
            raise WrongSettingsError(self._problems, loaded)
        return loaded

    def _is_wrong(self, path: SettingPath) -> bool:
        """Whether what is set at a path, above or below it is wrong: then nothing can be said of it."""
        return any(wrong[: len(path)] == path[: len(wrong)] for wrong in self._wrong)

    def _places_below(self, path: SettingPath) -> Iterator[_Place]:
        """Where a setting was set, or the keys of one that has several."""
        return (place for at, place in self._places.items() if at[: len(path)] == path)

    def _take(self, node: yaml.Node, kind: inspect.Type, place: _Place) -> None:
        """Take what a node sets, as far as it is right."""
        value: object = None
        if isinstance(kind, inspect.StructType | inspect.DictType):
            self._take_section(node, kind, place)
        elif isinstance(kind, inspect.VarTupleType):
            value = self._list(node, kind, place)
        else:
            value = self._scalar(node, kind, place)
        if value is not None:
            self._values[place.path] = value
            self._places[place.path] = place

    def _take_section(
        self, node: yaml.Node, kind: inspect.StructType | inspect.DictType, place: _Place
    ) -> None:
        if values.is_null(node):  # an empty section: its defaults
            for path in [path for path in self._values if path[: len(place.path)] == place.path]:
                del self._values[path], self._places[path]
            return
        if not isinstance(node, yaml.MappingNode) or node.tag not in document.KNOWN_TAGS:
            self._problem(place, values.mismatch(kind, node))
            return
        first: dict[str, yaml.Mark] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._problem(
                    msgspec.structs.replace(place, mark=key.start_mark),
                    f"expected a name, got {values.found(key)}",
                )
                continue
            inner = place.below(key.value, key.start_mark)
            if key.value in first:
                line = f", first on line {first[key.value].line + 1}" if place.origin.has_lines else ""
                self._problem(inner, f"given twice{line}")
                continue
            first[key.value] = key.start_mark
            setting = self._find(kind, inner, key.value)
            if setting is not None:
                self._take(value, setting, inner)

    def _list(self, node: yaml.Node, kind: inspect.VarTupleType, place: _Place) -> object:
        if not isinstance(node, yaml.SequenceNode) or node.tag not in document.KNOWN_TAGS:
            self._problem(place, values.mismatch(kind, node))
            return None
        entries = tuple(
            self._scalar(entry, kind.item_type, place.entry(index, entry.start_mark))
            for index, entry in enumerate(node.value)
        )
        return None if None in entries else entries

    def _scalar(self, node: yaml.Node, kind: inspect.Type, place: _Place) -> values.Value | None:
        try:
            return values.convert(node, kind)
        except values.UnfitError as unfit:
            self._problem(place, str(unfit))
            return None

    def _find(self, kind: inspect.Type, place: _Place, name: str) -> inspect.Type | None:
        """The type of what a section holds under a name; a problem, and None, when it holds none."""
        found = schema.below(kind, name)
        if found is None:
            if isinstance(kind, inspect.StructType | inspect.DictType):
                self._problem(place, _unknown(name, schema.names(kind)))
                if meant := nearest(name, schema.names(kind)):  # what its default means is not what is wrong
                    self._wrong.add((*place.path[:-1], meant))
            else:
                above = ".".join(place.path[:-1])
                self._problem(place, f"{above} is one value, with nothing below it")
        elif (
            place.path[:-1] == FAMILIES and self._families and name.removeprefix(PREFIX) not in self._families
        ):
            self._problem(place, _unknown(name.removeprefix(PREFIX), self._families, ALL_FAMILIES))
            found = None
        return found

    def _problem(self, place: _Place, text: str) -> None:
        self._problems.append(Problem(place.origin.at(place.mark), ".".join(place.path), text))
        if place.path:
            *section, name = place.path
            self._wrong.add((*section, name.partition("[")[0]))  # of a list, not of its entry
        if len(self._problems) == MAX_PROBLEMS:
            more = Problem("", "", f"there may be more than these {MAX_PROBLEMS} problems")
            raise ConfigError([*self._problems, more])


def _with_real_root(config: Config) -> Config:
    """The configuration with a root that holds no link and no `..`, as paths of the kernel hold none."""
    node = msgspec.structs.replace(config.node, root=os.path.realpath(config.node.root))
    return msgspec.structs.replace(config, node=node)


def _place(path: SettingPath, origin: Origin) -> _Place:
    """A place in a source without lines."""
    return _Place(path, origin, yaml.Mark(origin.name, 0, 0, 0, None, 0))


def _unknown(name: str, known: Collection[str], all_known: str = ALL_SETTINGS) -> str:
    """What to say of a name that does not exist, with the one that was probably meant."""
    if name == "<<":
        return "merge keys are not supported; write the settings out"
    meant = nearest(name, known)
    if not meant:
        elsewhere = [".".join(path) for path, _ in schema.paths(schema.root()) if path[-1] == name]
        meant = elsewhere[0] if len(elsewhere) == 1 else ""
    if meant:
        return f"unknown; did you mean {meant}?"
    return f"unknown; known here: {', '.join(known)}" if len(known) <= 30 else f"unknown; {all_known}"
