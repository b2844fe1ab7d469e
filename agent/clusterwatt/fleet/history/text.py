"""Series as OpenMetrics text, fast: what stands before the values of a series is joined in between them.

https://prometheus.io/docs/specs/om/open_metrics_spec/: a family is in one piece, the times of a series rise,
`# EOF` ends the text. Families are gathered in files of their own, so that memory does not grow with nodes.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from clusterwatt.catalog import Metric
from clusterwatt.inventory import CATALOG
from clusterwatt.readings.base import Reading

JOB = "clusterwatt"
FAMILIES: Mapping[str, Metric] = {metric.name: metric for metric in CATALOG}
CHUNK_BYTES = 4 << 20

Values = Sequence[float | None]


class Lines(list[str]):
    """The samples of a series without its name and labels; every series of the same values shares them."""


class Block:
    """A file of samples from one moment to another, each `step_s`. To be used in a `with`."""

    def __init__(self, path: Path, families: Collection[str], times: Sequence[float]) -> None:
        self.path = path
        self.times = times
        self.samples = 0
        self._parts = path.with_suffix(".parts")
        self._families = frozenset(families)
        self._files: dict[str, BinaryIO] = {}
        self._stamps = [f" {time_s:.3f}\n".replace(".000\n", "\n") for time_s in times]

    def __enter__(self) -> Block:
        self._parts.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        try:
            if kind is None:
                self._join()
        finally:
            shutil.rmtree(self._parts)

    def asks_for(self, *names: str) -> bool:
        """Whether any of these families is wanted."""
        return not self._families.isdisjoint(names)

    def lines(self, values: Values) -> Lines:
        """Samples at the times of the block; no sample where the value is None."""
        return Lines(
            f"{value!r}{stamp}"
            for value, stamp in zip(values, self._stamps, strict=True)
            if value is not None
        )

    def flat(self, value: float) -> Lines:
        """The same value all the time."""
        text = repr(value)
        return Lines(text + stamp for stamp in self._stamps)

    def add(self, name: str, instance: str, labels: Mapping[str, str], lines: Lines) -> None:
        """A series of a family of the catalogue. `labels`: all that the family has, in any order."""
        if not lines or name not in self._families:
            return
        metric = FAMILIES[name]
        if labels.keys() != set(metric.labels):
            raise ValueError(f"{name}: expected labels {metric.labels}, got {tuple(labels)}")
        self._write(name, metric.full_name, metric.kind, instance, labels, lines)

    def add_up(self, instance: str, lines: Lines) -> None:
        """The series that Prometheus itself makes for a target."""
        self._write("up", "up", "gauge", instance, {}, lines)

    def _write(
        self, name: str, full_name: str, kind: str, instance: str, labels: Mapping[str, str], lines: Lines
    ) -> None:
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = (self._parts / name).open("wb", CHUNK_BYTES)
            file.write(_head(full_name, kind).encode())
        of_target = f'instance="{instance}",job="{JOB}"'
        own = "".join(f',{label}="{_escaped(text)}"' for label, text in labels.items())
        start = f"{full_name}{{{of_target}{own}}} "
        file.write((start + start.join(lines)).encode())
        self.samples += len(lines)

    def _join(self) -> None:
        with self.path.open("wb") as whole:
            for name in self._files:
                with (self._parts / name).open("rb") as part:
                    shutil.copyfileobj(part, whole, CHUNK_BYTES)
                (self._parts / name).unlink()
            whole.write(b"# EOF\n")


def labels_of(metric: Metric, reading: Reading) -> dict[str, str]:
    """The labels of a reading's series of a family."""
    return {label: getattr(reading, label) for label in metric.labels}


def value_of(metric: Metric, reading: Reading) -> float | None:
    """The value of a reading's series of a family; None: there is none."""
    value = getattr(reading, metric.field) if metric.field else 1.0
    return None if value is None else float(value)


def _head(full_name: str, kind: str) -> str:
    """The line of the type; OpenMetrics knows counters and infos by the names without their suffixes."""
    if kind == "info" or full_name.endswith("_info"):
        return f"# TYPE {full_name.removesuffix('_info')} info\n"
    if kind == "counter":
        return f"# TYPE {full_name.removesuffix('_total')} counter\n"
    return f"# TYPE {full_name} gauge\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
