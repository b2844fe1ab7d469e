"""The catalogue for people and programs: a table for the terminal, docs/METRICS.md, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from clusterwatt.catalog import Level, Metric

# Where a family stands on the page: the first area that one of its prefixes fits.
AREAS: Mapping[str, tuple[str, ...]] = {
    "Agent": (
        "agent_",
        "build_",
        "collector_",
        "config_",
        "driver_host_",
        "host_pids_",
        "http_",
        "series",
        "textfile_",
        "tls_",
    ),
    "Work: jobs, energy, carbon, cost": (
        "account_",
        "carbon_",
        "electricity_",
        "gpu_allocated",
        "gpu_job_",
        "gpu_price_",
        "gpu_state_",
        "gpu_xid_jobs_",
        "job_",
        "ledger_",
        "power_usage_",
        "scheduler_",
        "unattributed_",
        "unobserved_",
    ),
    "Training": ("training_",),
    "GPUs": ("gpu_", "nvswitch_", "imex_"),
    "Driver": ("driver_", "gpus_"),
    "Network": ("network_", "bond_"),
    "RDMA": ("rdma_",),
    "Disks and file systems": ("disk_", "md_", "filesystem_", "nfs_", "lustre_"),
    "Host": (
        "cpu",
        "memory_",
        "pressure_",
        "load",
        "oom_",
        "boot_",
        "clock_",
        "blocked_",
        "node_",
        "power_feed_",
    ),
}

MAX_COLUMN = 50  # identities have many labels: they may stick out, not widen the table for all

HEAD = """\
# Metrics

<!-- Generated from the catalogue by `make docs`: change the catalogue, not this file. -->

Every family that this version can export. All names begin with `clusterwatt_`.

- **Absent is not zero.** A series that is missing is not offered by this machine, or could not be read for
  three of its own intervals. 0 is a measurement.
- **Units** are base units: seconds, bytes, joules, watts, hertz, degrees Celsius, ratios from 0 to 1.
- **Type** `info` is a gauge that is always 1: its labels are what it says. A `summary` has `_sum` and
  `_count` and no quantiles. A `histogram` has `_bucket` with the label `le` beside these.
- **Level** is the smallest profile (`limits.profile`) that exports the family: `minimal` has core,
  `standard` has core and standard, `full` has all. Label values behind a level come with it. Single families
  are switched on and off by `limits.families`.
- The **node** is the target label `instance`; no family has a label for it.
"""


def markdown(catalog: Sequence[Metric]) -> str:
    """docs/METRICS.md: one table for each area."""
    return HEAD + "\n".join(_sections(catalog))


def table(catalog: Sequence[Metric]) -> str:
    """Columns for a terminal."""
    rows = [("NAME", "TYPE", "LEVEL", "LABELS", "HELP")]
    rows += [
        (metric.full_name, metric.kind, metric.level.name.lower(), ",".join(metric.labels), metric.help)
        for metric in catalog
    ]
    widths = [min(max(map(len, column)), MAX_COLUMN) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def as_json(catalog: Sequence[Metric]) -> str:
    """A list of objects, one a line."""
    objects = (
        {
            "name": metric.full_name,
            "type": metric.kind,
            "level": metric.level.name.lower(),
            "higher_levels": _by_level(metric),
            "labels": metric.labels,
            "help": metric.help,
        }
        for metric in catalog
    )
    return "[\n" + ",\n".join(map(json.dumps, objects)) + "\n]\n"


def area(metric: Metric) -> str:
    """The area of a family. Raises ValueError when no prefix fits: a new area needs its name here."""
    for name, prefixes in AREAS.items():
        if metric.name.startswith(prefixes):
            return name
    raise ValueError(f"{metric.name}: no area in metrics_reference.AREAS has a prefix that fits")


def _sections(catalog: Iterable[Metric]) -> Iterator[str]:
    by_area: dict[str, list[Metric]] = {}
    for metric in catalog:
        by_area.setdefault(area(metric), []).append(metric)
    for name, metrics in by_area.items():
        yield f"\n## {name}\n"
        yield "| Name | Type | Level | Labels | Help |"
        yield "|---|---|---|---|---|"
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            cells = (f"`{metric.full_name}`", metric.kind, _level(metric), labels, metric.help)
            yield (
                "|"
                + "|".join(f" {cell.replace('|', chr(92) + '|')} " if cell else " " for cell in cells)
                + "|"
            )
    yield ""


def _level(metric: Metric) -> str:
    """The level, and what comes with a higher one: `core; standard: domain=memory`."""
    higher = (
        f"{level.name.lower()}: {field}={', '.join(values)}"
        for level, field, values in _higher_levels(metric)
    )
    return "; ".join([metric.level.name.lower(), *higher])


def _by_level(metric: Metric) -> dict[str, dict[str, list[str]]]:
    """The same for programs: level, label, values."""
    levels: dict[str, dict[str, list[str]]] = {}
    for level, field, values in _higher_levels(metric):
        levels.setdefault(level.name.lower(), {})[field] = values
    return levels


def _higher_levels(metric: Metric) -> Iterator[tuple[Level, str, list[str]]]:
    """Level, field and its values, for values that need more than the level of the family."""
    for by in (metric.by, metric.row_level):
        for level in Level:
            values = [value for value, needed in by.levels.items() if needed == level] if by else []
            if by and values and level > metric.level:
                yield level, by.field, values
