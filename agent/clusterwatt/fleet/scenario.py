"""Scenarios: what goes wrong in a simulated cluster, and when. YAML files, shipped or of one's own.

    about: A GPU falls off the bus and comes back, and somebody has forgotten a job.
    jobs:
    - {name: forgotten, node: node-0006, gpus: [0, 1], does: idle, user: eve, account: research, ran: 2h}
    faults:
    - {fault: xid, at: 2m, node: node-0003, gpu: 2, code: 79}
    - {fault: gpu_lost, at: 2m, lasts: 15m, node: node-0003, gpu: 2}

`at` counts from the start of the fleet; without `lasts` a fault stays. `rule` names the alert that a fault is
for, `near_miss` says that it must not fire. `nodes` at the top says how many nodes the scenario needs.
docs/SIMULATE.md lists the faults.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import msgspec

from clusterwatt.config import records
from clusterwatt.config.document import Origin
from clusterwatt.config.problems import ConfigError, Problem, nearest, shown
from clusterwatt.config.records import Record
from clusterwatt.fleet.notation import DURATION, mistake_in_nodes, nodes_of, seconds_of
from clusterwatt.fleet.placed import CONTROLLERS, DOES, PlacedJob
from clusterwatt.simulate.cluster import Cluster, scheduler_of

FOLDER = "data/scenarios"
LONGEST_S = 365 * 86_400.0  # that a job may have run


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
        return nodes_of(self.node, count)


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file. `nodes`: how many nodes its cluster has at least."""

    about: str = ""
    nodes: int = 1
    jobs: tuple[PlacedJob, ...] = ()
    faults: tuple[Fault, ...] = ()


CALM = Scenario()


def names() -> tuple[str, ...]:
    """Names of the shipped scenarios."""
    folder = resources.files("clusterwatt").joinpath(FOLDER)
    return tuple(sorted(file.name.removesuffix(".yaml") for file in folder.iterdir()))


def load(text: str, cluster: Cluster, accounts: Collection[str]) -> Scenario:
    """The scenario in a file, or a shipped one by its name, for a cluster.

    Raises ConfigError, a line for each mistake.
    """
    if text in names():
        file = f"{text}.yaml"
        content = resources.files("clusterwatt").joinpath(f"{FOLDER}/{file}").read_text(encoding="utf-8")
        record = records.parse(content, Scenario, Origin(file, has_lines=True))
    else:
        path = Path(text)
        if not path.exists():
            raise ConfigError([Problem(text, "", f"no such file; shipped scenarios: {', '.join(names())}")])
        record = records.read(path, Scenario)
    if (nodes := record.content.nodes) > cluster.nodes:
        said = f"expected a cluster of {nodes} nodes at least, got {cluster.nodes}"
        record.settle([record.problem("nodes", f"{said}: start it with --nodes {nodes}")])
    problems = list(_problems_of_jobs(record, cluster))
    problems += _problems_of_faults(record, cluster, accounts)
    record.settle(problems)
    return record.content


def _problems_of_jobs(record: Record[Scenario], cluster: Cluster) -> Iterator[Problem]:
    usual = {lane.kind.name for lane in cluster.lanes}
    names: set[str] = set()
    holder: dict[tuple[int, int], str] = {}
    for index, job in enumerate(record.content.jobs):
        path = f"jobs[{index}]"
        if not job.name:
            yield record.problem(f"{path}.name", "expected a name")
        elif job.name in usual | names:
            yield record.problem(f"{path}.name", "expected a name that no other job of the cluster has")
        names.add(job.name)
        for name, known in (("does", DOES), ("kind", CONTROLLERS)):
            if getattr(job, name) not in known:
                said = f'expected one of {", ".join(known)}, got "{shown(getattr(job, name))}"'
                yield record.problem(f"{path}.{name}", said)
        yield from _times(record, path, job)
        if job.at and job.ran:
            yield record.problem(f"{path}.ran", "a job that starts later (at) has not run yet: leave one out")
        if seconds_of(job.ran) > LONGEST_S:
            yield record.problem(f"{path}.ran", f"expected at most {LONGEST_S / 86_400:.0f}d")
        if not _are_boards(job.numbers(cluster.gpus), cluster.gpus):
            said = f"expected GPUs from 0 to {cluster.gpus - 1}, each once; all: leave it out"
            yield record.problem(f"{path}.gpus", said)
        if (mistake := mistake_in_nodes(job.node, cluster.nodes)) is not None:
            yield record.problem(f"{path}.node", f'{mistake}, got "{shown(job.node)}"')
            continue
        if len({scheduler_of(node) for node in nodes_of(job.node, cluster.nodes)}) > 1:
            yield record.problem(f"{path}.node", "expected nodes of one scheduler")
        boards = [] if record.is_wrong(path) else job.boards(cluster.nodes, cluster.gpus)
        if (other := next((holder[board] for board in boards if board in holder), None)) is not None:
            yield record.problem(
                path, f"{shown(other)} holds some of these GPUs: give each of them to one job"
            )
        holder.update(dict.fromkeys(boards, job.name))


def _are_boards(numbers: tuple[int, ...], gpus: int) -> bool:
    return bool(numbers) and len(set(numbers)) == len(numbers) and set(numbers) <= set(range(gpus))


def _problems_of_faults(
    record: Record[Scenario], cluster: Cluster, accounts: Collection[str]
) -> Iterator[Problem]:
    own = [job for job in record.content.jobs if mistake_in_nodes(job.node, cluster.nodes) is None]
    taken = {board for job in own for board in job.boards(cluster.nodes, cluster.gpus)}
    jobs = {job.name for job in record.content.jobs}
    jobs |= {lane.kind.name for lane in cluster.lanes if not taken.issuperset(lane.boards)}
    named = not any(record.is_wrong(f"jobs[{index}].name") for index in range(len(record.content.jobs)))
    for index, fault in enumerate(record.content.faults):
        path = f"faults[{index}]"
        yield from _times(record, path, fault)
        if fault.node and (mistake := mistake_in_nodes(fault.node, cluster.nodes)) is not None:
            yield record.problem(f"{path}.node", f'{mistake}, got "{shown(fault.node)}"')
        needs = FAULTS.get(fault.fault)
        if needs is None:
            meant = nearest(fault.fault, FAULTS)
            remedy = f"did you mean {meant}?" if meant else f"known: {', '.join(FAULTS)}"
            yield record.problem(f"{path}.fault", f'"{shown(fault.fault)}" is unknown; {remedy}')
            continue
        for name in needs.also:
            if getattr(fault, name) in ("", None):
                yield record.problem(f"{path}.{name}", f"missing: {fault.fault} needs it")
        if needs.where in ("gpu", "node") and not fault.node:
            yield record.problem(f"{path}.node", f"missing: {fault.fault} needs it")
        if needs.where == "gpu" and (fault.gpu is None or not 0 <= fault.gpu < cluster.gpus):
            yield record.problem(f"{path}.gpu", f"expected a GPU from 0 to {cluster.gpus - 1}")
        if needs.where == "job" and named and fault.job not in jobs:
            yield record.problem(f"{path}.job", f"expected a job of the cluster: {', '.join(sorted(jobs))}")
        if needs.where == "account" and fault.account not in accounts:
            yield record.problem(f"{path}.account", f"expected an account: {', '.join(sorted(accounts))}")


def _times(record: Record[Scenario], path: str, of: PlacedJob | Fault) -> Iterator[Problem]:
    for name in ("at", "ran", "lasts"):
        text = getattr(of, name, "")
        if text and not DURATION.fullmatch(text):
            said = f'expected a length of time as 90s, 5m or 1h30m, got "{shown(text)}"'
            yield record.problem(f"{path}.{name}", said)
