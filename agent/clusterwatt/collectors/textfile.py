"""Metrics of other tools, from files in the text format that they write into a folder.

https://prometheus.io/docs/instrumenting/exposition_formats/, without timestamps. A file goes out whole or not
at all: one that breaks the format, a limit or our names is refused, and counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from clusterwatt import plain_file
from clusterwatt.catalog import STANDARD, Table
from clusterwatt.clock import Clock
from clusterwatt.collectors.exposition import Family, Refused, parse
from clusterwatt.config.model import TextfileCollector as Settings
from clusterwatt.readings.agent import TextFamily, TextFile
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.sysfs import Files

FILE = Table(TextFile, labels=("file",))
METRICS = (
    FILE.gauge(
        "textfile_last_modified_timestamp_seconds",
        "When a text file of another tool was written.",
        "last_modified_timestamp_seconds",
        STANDARD,
    ),
    FILE.counter(
        "textfile_errors_total", "Times a text file of another tool was refused.", "errors", STANDARD
    ),
)


class Content(msgspec.Struct, frozen=True):
    """What a file held when it was read last: its families, or why it has none."""

    version: tuple[int, int, int]
    families: tuple[Family, ...] = ()
    refused: str = ""


class TextfileCollector:
    """Reads the folder again at each pass, a file only when it was written anew."""

    name = "textfile"

    def __init__(self, files: Files, settings: Settings, clock: Clock) -> None:
        self._folder = files.root + settings.directory if settings.directory else ""
        self._settings = settings
        self._clock = clock
        self._contents: dict[str, Content] = {}
        self._errors: dict[str, int] = {}

    def collect(self) -> Iterator[Reading]:
        """A reading for each file, and one for each family of those that go out."""
        if not self._folder:
            return
        files = self._list()
        self._contents = {name: self._contents[name] for name in files if name in self._contents}
        self._errors = {name: self._errors.get(name, 0) for name in files}
        page: dict[str, TextFamily] = {}
        series: set[str] = set()
        for name, status in files.items():
            refused = False
            try:
                self._add(page, series, self._families(name, status))
            except Refused as reason:
                self._errors[name] += 1
                refused = True
                yield Failure(item=name, reason="refused", detail=str(reason))
            yield TextFile(
                file=os.fsencode(name).decode("utf-8", "replace"),
                last_modified_timestamp_seconds=status.st_mtime,
                errors=float(self._errors[name]),
                refused=float(refused),
            )
        yield from page.values()

    def _list(self) -> dict[str, os.stat_result]:
        """The files of the folder by name; hidden ones are those that a tool has not finished."""
        found = {}
        for name in sorted(os.listdir(self._folder)):
            if not name.endswith(".prom") or name.startswith("."):
                continue
            try:
                found[name] = os.stat(f"{self._folder}/{name}")
            except FileNotFoundError:
                continue
        return found

    def _families(self, name: str, status: os.stat_result) -> tuple[Family, ...]:
        """The families of one file. Raises Refused."""
        age_s = self._clock.wall_s() - status.st_mtime
        if age_s > self._settings.max_age_seconds:
            raise Refused(f"it was written {age_s:.0f} s ago")
        version = (status.st_mtime_ns, status.st_size, status.st_ino)
        content = self._contents.get(name)
        if content is None or content.version != version:
            try:
                content = Content(version, tuple(parse(self._read(name))))
            except Refused as error:
                content = Content(version, refused=str(error))
            except OSError as error:
                content = Content(version, refused=f"it cannot be read: {error.strerror}")
            self._contents[name] = content
        if content.refused:
            raise Refused(content.refused)
        return content.families

    def _read(self, name: str) -> bytes:
        """The whole file. Raises Refused when it is too large, OSError."""
        limit = self._settings.max_file_bytes
        text = plain_file.content(f"{self._folder}/{name}", limit + 1)
        if len(text) > limit:
            raise Refused(f"it is larger than {limit} bytes")
        return text

    def _add(self, page: dict[str, TextFamily], series: set[str], families: tuple[Family, ...]) -> None:
        """Put the families of one file on the page, all or none. Raises Refused."""
        added: dict[str, TextFamily] = {}
        own = {sample.series for family in families for sample in family.samples}
        if twice := own & series:
            raise Refused(f"another file has {min(twice)} as well")
        if len(own) + len(series) > self._settings.max_series:
            raise Refused(f"more than {self._settings.max_series} series with those of the files before it")
        for family in families:
            others = page.get(family.name)
            if others is not None and others.kind != family.kind:
                raise Refused(f"{family.name} is a {family.kind} here, a {others.kind} in another file")
            lines = tuple(f"{sample.series} {sample.value}" for sample in family.samples)
            added[family.name] = TextFamily(
                name=family.name,
                kind=family.kind,
                help=others.help if others is not None else family.help,
                samples=others.samples + lines if others is not None else lines,
            )
        page.update(added)
        series |= own
