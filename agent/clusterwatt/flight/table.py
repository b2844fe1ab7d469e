"""A flight bundle for people: one line for each GPU and moment, or every value as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from clusterwatt.flight.bundle import Moment
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuClock, GpuMemory, GpuPower, GpuTemperature, GpuThrottle, GpuUse
from clusterwatt.readings.gpu_measured import GpuDown, GpuUp

COLUMNS = ("time", "gpu", "state", "util_%", "power_W", "core_C", "sm_MHz", "used_GiB", "held_down_by")


def table(moments: Sequence[Moment], gpu: str | None = None) -> Iterator[str]:
    """Lines of fixed columns; a value that was not known is a dash."""
    yield "{:<12} {:>4} {:<14} {:>6} {:>8} {:>7} {:>7} {:>9} {}".format(*COLUMNS)
    for moment in moments:
        for index, row in sorted(_rows(moment).items(), key=lambda item: (len(item[0]), item[0])):
            if gpu is None or gpu == index:
                yield "{:<12} {:>4} {:<14} {:>6} {:>8} {:>7} {:>7} {:>9} {}".format(
                    time_of(moment), index, *(row.get(column, "-") for column in COLUMNS[2:])
                ).rstrip()


def time_of(moment: Moment) -> str:
    """Time of day in UTC, to the millisecond."""
    return f"{datetime.fromtimestamp(moment.wall_s, timezone.utc):%H:%M:%S.%f}"[:-3]


def _rows(moment: Moment) -> dict[str, dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    for reading in moment.readings:
        gpu = getattr(reading, "gpu", None)
        if gpu is None:
            continue
        row = rows.setdefault(gpu, {})
        for column, text in _cells(reading):
            row[column] = f"{row[column]},{text}" if column in row and column == COLUMNS[-1] else text
    return rows


def _cells(reading: Reading) -> Iterator[tuple[str, str]]:
    if isinstance(reading, GpuUp) and reading.up:
        yield "state", "up"
    elif isinstance(reading, GpuDown):
        yield "state", reading.reason
    elif isinstance(reading, GpuUse) and reading.utilization_ratio is not None:
        yield "util_%", f"{reading.utilization_ratio * 100:.0f}"
    elif isinstance(reading, GpuPower) and reading.scope == "gpu":
        yield "power_W", f"{reading.power_watts:.0f}"
    elif isinstance(reading, GpuTemperature) and reading.sensor == "core":
        yield "core_C", f"{reading.temperature_celsius:.0f}"
    elif isinstance(reading, GpuClock) and reading.domain == "sm" and reading.clock_hertz is not None:
        yield "sm_MHz", f"{reading.clock_hertz / 1e6:.0f}"
    elif isinstance(reading, GpuMemory) and reading.used_bytes is not None:
        yield "used_GiB", f"{reading.used_bytes / 2**30:.1f}"
    elif isinstance(reading, GpuThrottle) and reading.active:
        yield "held_down_by", reading.reason


def as_csv(moments: Sequence[Moment]) -> Iterator[str]:
    """Every recorded value: time, kind of reading, what it is of, quantity, value."""
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\n")

    def written(row: Sequence[object]) -> str:
        line.seek(0)
        line.truncate()
        writer.writerow(row)
        return line.getvalue().rstrip("\n")

    yield written(("unix_seconds", "reading", "of", "quantity", "value"))
    for moment in moments:
        for reading in moment.readings:
            fields = [(name, getattr(reading, name)) for name in reading.__struct_fields__]
            of = " ".join(value for _, value in fields if isinstance(value, str))
            for name, value in fields:
                if isinstance(value, int | float):
                    yield written((f"{moment.wall_s:.3f}", type(reading).__name__, of, name, value))
