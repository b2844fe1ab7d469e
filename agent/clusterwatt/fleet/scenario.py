"""Scenarios: what goes wrong in a simulated cluster, and when. YAML files, shipped or of one's own.

    about: A GPU falls off the bus and comes back.
    faults:
    - {fault: xid, at: 2m, node: node-0003, gpu: 2, code: 79}
    - {fault: gpu_lost, at: 2m, lasts: 15m, node: node-0003, gpu: 2}

`at` counts from the start of the fleet; without `lasts` a fault stays. `rule` names the alert that a fault is
for, `near_miss` says that it must not fire. docs/SIMULATE.md lists the faults.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import msgspec

from clusterwatt.config import records
from clusterwatt.config.document import Origin
from clusterwatt.config.problems import ConfigError, Problem, nearest, shown
from clusterwatt.config.records import Record

FOLDER = "data/scenarios"
UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
NODE = re.compile(r"node-(\d{4})")


class Needs(NamedTuple):
    """What a fault is told: where it is, and what else it cannot do without."""

    where: str  # gpu, node, job, account, cluster
    also: tuple[str, ...] = ()


FAULTS: Mapping[str, Needs] = {
    # GPUs
    "xid": Needs("gpu", ("code",)),
    "gpu_lost": Needs("gpu"),
    "uncorrected_ecc": Needs("gpu", ("amount",)),
    "corrected_ecc": Needs("gpu", ("amount",)),
    "row_remap_pending": Needs("gpu"),
    "row_remap_failed": Needs("gpu"),
    "no_spare_rows": Needs("gpu", ("amount",)),
    "recovery_action": Needs("gpu", ("code",)),
    "nvlink_down": Needs("gpu", ("amount",)),
    "nvlink_errors": Needs("gpu", ("item", "amount")),
    "pcie_width": Needs("gpu", ("amount",)),
    "throttled": Needs("gpu", ("amount",)),
    "power_brake": Needs("gpu", ("amount",)),
    "warmer": Needs("gpu", ("amount",)),
    "low_clock": Needs("gpu", ("amount",)),
    "works_for_nobody": Needs("gpu"),
    "utilization_latched": Needs("gpu"),
    # jobs
    "job_idle": Needs("job"),
    "job_partly_idle": Needs("job", ("amount",)),
    "job_starved": Needs("job"),
    "stall": Needs("job"),
    "hang": Needs("job"),
    "straggler": Needs("job"),
    "silent_log": Needs("job"),
    "loss_not_finite": Needs("job"),
    "loss_grows": Needs("job", ("amount",)),
    # nodes
    "port_down": Needs("node", ("item",)),
    "port_slow": Needs("node", ("item", "amount")),
    "port_flaps": Needs("node", ("item",)),
    "port_errors": Needs("node", ("item", "amount")),
    "interface_down": Needs("node", ("item",)),
    "nvswitch_sxid": Needs("node", ("code",)),
    "disk_fills": Needs("node", ("item", "amount")),
    "files_fill": Needs("node", ("item", "amount")),
    "read_only": Needs("node", ("item",)),
    "mount_hangs": Needs("node"),
    "blocked": Needs("node"),
    "array_degraded": Needs("node"),
    "memory_errors": Needs("node", ("amount",)),
    "oom_kill": Needs("node"),
    "clock_unsynchronized": Needs("node"),
    "maintenance": Needs("node"),
    "collector_fails": Needs("node", ("item",)),
    "unnamed_gpu": Needs("node"),
    "driver_down": Needs("node"),
    "exporter_dies": Needs("node"),
    "node_vanishes": Needs("node"),
    # money and power
    "budget": Needs("account", ("amount",)),
    "feed_capacity": Needs("cluster", ("amount",)),
}


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault, as it stands in the file. `node`: a name, several as `node-0001..node-0004`, or `all`."""

    fault: str
    at: str = "0s"
    lasts: str = ""
    node: str = ""
    gpu: int | None = None
    job: str = ""
    account: str = ""
    item: str = ""
    code: int | None = None
    amount: float | None = None
    rule: str = ""
    near_miss: bool = False

    @property
    def from_s(self) -> float:
        """Seconds from the start of the fleet."""
        return seconds_of(self.at)

    @property
    def until_s(self) -> float:
        """Seconds from the start of the fleet to its end."""
        return self.from_s + seconds_of(self.lasts) if self.lasts else math.inf

    def nodes(self, count: int) -> range:
        """The numbers of its nodes, in a cluster of so many."""
        if self.node == "all":
            return range(count)
        names = NODE.findall(self.node)
        return range(int(names[0]) - 1, int(names[-1]))


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file."""

    about: str = ""
    faults: tuple[Fault, ...] = ()


CALM = Scenario()


def seconds_of(text: str) -> float:
    """Seconds of a length of time as `90s`, `5m` or `1h30m`."""
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([smhd])", text))


def names() -> tuple[str, ...]:
    """Names of the shipped scenarios."""
    folder = resources.files("clusterwatt").joinpath(FOLDER)
    return tuple(sorted(file.name.removesuffix(".yaml") for file in folder.iterdir()))


def load(text: str, *, nodes: int, gpus: int, jobs: Collection[str], accounts: Collection[str]) -> Scenario:
    """The scenario in a file, or a shipped one by its name. Raises ConfigError, a line for each mistake."""
    if text in names():
        file = f"{text}.yaml"
        content = resources.files("clusterwatt").joinpath(f"{FOLDER}/{file}").read_text(encoding="utf-8")
        record = records.parse(content, Scenario, Origin(file, has_lines=True))
    else:
        path = Path(text)
        if not path.exists():
            raise ConfigError([Problem(text, "", f"no such file; shipped scenarios: {', '.join(names())}")])
        record = records.read(path, Scenario)
    problems = list(_problems(record, nodes, gpus, jobs, accounts))
    if problems:
        raise ConfigError(problems)
    return record.content


def _problems(
    record: Record[Scenario], nodes: int, gpus: int, jobs: Collection[str], accounts: Collection[str]
) -> Iterator[Problem]:
    for index, fault in enumerate(record.content.faults):
        path = f"faults[{index}]"
        needs = FAULTS.get(fault.fault)
        if needs is None:
            meant = nearest(fault.fault, FAULTS)
            remedy = f"did you mean {meant}?" if meant else f"known: {', '.join(FAULTS)}"
            yield record.problem(f"{path}.fault", f'"{shown(fault.fault)}" is unknown; {remedy}')
            continue
        for name in ("at", "lasts"):
            text = getattr(fault, name)
            if text and not DURATION.fullmatch(text):
                said = f'expected a length of time as 90s, 5m or 1h30m, got "{shown(text)}"'
                yield record.problem(f"{path}.{name}", said)
        for name in needs.also:
            if getattr(fault, name) in ("", None):
                yield record.problem(path, f"{name} is missing: {fault.fault} needs it")
        if needs.where in ("gpu", "node"):
            yield from _place(record, path, fault, nodes)
        if needs.where == "gpu" and (fault.gpu is None or not 0 <= fault.gpu < gpus):
            yield record.problem(f"{path}.gpu", f"expected a GPU from 0 to {gpus - 1}")
        if needs.where == "job" and fault.job not in jobs:
            yield record.problem(f"{path}.job", f"expected a job of the cluster: {', '.join(sorted(jobs))}")
        if needs.where == "account" and fault.account not in accounts:
            yield record.problem(f"{path}.account", f"expected an account: {', '.join(sorted(accounts))}")


def _place(record: Record[Scenario], path: str, fault: Fault, nodes: int) -> Iterator[Problem]:
    if not fault.node:
        yield record.problem(path, f"node is missing: {fault.fault} needs it")
        return
    first, dots, last = fault.node.partition("..")
    for name in (first, last) if dots else (first,):
        found = NODE.fullmatch(name)
        if fault.node != "all" and (found is None or not 1 <= int(found[1]) <= nodes):
            said = f"expected node-0001 to node-{nodes:04d}, two of them with .. between, or all"
            yield record.problem(f"{path}.node", f'{said}, got "{shown(name)}"')
