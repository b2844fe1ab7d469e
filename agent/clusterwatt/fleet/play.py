"""Plays a scenario: what each fault means for drivers, sources, jobs and the fleet's pages.

All of it is a function of the time, so a tick may come late and nothing is played twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from clusterwatt.fleet.scenario import Fault, Scenario
from clusterwatt.simulate import acts
from clusterwatt.simulate.acts import Act
from clusterwatt.simulate.cluster import Change, Cluster, Lane
from clusterwatt.simulate.health import EccKind, EccPlace, EccWindow, Health
from clusterwatt.simulate.nvml import SimulatedLibrary
from clusterwatt.simulate.runs import Log, Numbers
from clusterwatt.simulate.troubles import Trouble, Troubles

HOUR_S = 3_600.0
NS = 1e9
CHANGES: Mapping[str, Act] = {
    "job_idle": acts.HELD,
    "job_partly_idle": acts.HELD,
    "job_starved": acts.STARVED,
    "stall": acts.STALL,
    "hang": acts.HANG,
    "straggler": acts.STRAGGLER,
    "silent_log": acts.TRAIN,
}
ON_ONE_GPU: Mapping[str, Act] = {"works_for_nobody": acts.SPINNING, "utilization_latched": acts.LATCHED_FREE}
EVERYWHERE = ("budget", "feed_capacity")
ROW_BANKS = 2_560
DRIVER_NOT_LOADED = 9  # NVML_ERROR_DRIVER_NOT_LOADED


class Play:
    """A scenario on a cluster, from a Unix time on."""

    def __init__(self, scenario: Scenario, cluster: Cluster, started_s: float) -> None:
        self._scenario = scenario
        self._cluster = cluster
        self._started_s = started_s
        for fault in scenario.faults:
            self._change_jobs(fault)

    def log(self, lane: Lane) -> Log:
        """The log of a lane's runs."""
        log = Log(lane)
        log.numbers = tuple(
            Numbers(*self._times(fault), factor=fault.amount if fault.fault == "loss_grows" else None)
            for fault in self._scenario.faults
            if fault.fault in ("loss_not_finite", "loss_grows") and fault.job == lane.kind.name
        )
        return log

    def troubles(self, node: int) -> Troubles:
        """What goes wrong around the GPUs of a node."""
        return Troubles(
            Trouble(
                "sxid" if fault.fault == "nvswitch_sxid" else fault.fault,
                *self._times(fault),
                item=fault.account or fault.item,
                amount=float(fault.code or 0) if fault.amount is None else fault.amount,
            )
            for fault in self._scenario.faults
            if fault.fault in EVERYWHERE or (fault.node and fault.gpu is None and self._on(fault, node))
        )

    def prepare(self, node: int, library: SimulatedLibrary) -> None:
        """Tell a driver of the XIDs, losses and heat to come."""
        for fault in self._scenario.faults:
            if fault.fault == "driver_down" and self._on(fault, node):
                from_s, until_s = self._times(fault)
                library.faults.fail("*", DRIVER_NOT_LOADED, from_s=from_s, until_s=until_s)
        for fault in self._of_gpus(node):
            assert fault.gpu is not None  # `_of_gpus` has seen to it
            from_s, until_s = self._times(fault)
            if fault.fault == "xid":
                library.faults.xid(fault.gpu, fault.code or 0, at_s=from_s)
            elif fault.fault == "gpu_lost":
                library.faults.lose(fault.gpu, from_s=from_s, until_s=until_s)
            elif fault.fault == "throttled":
                library.gpus[fault.gpu].overheats.append((fault.amount or 0.0, from_s, until_s))

    def apply(self, node: int, library: SimulatedLibrary, now_s: float) -> None:
        """Set the health of a node's GPUs as it is now."""
        sick: dict[int, Health] = {}
        for fault in self._of_gpus(node):
            assert fault.gpu is not None  # as above
            from_s, until_s = self._times(fault)
            how = HEALTH.get(fault.fault)
            if how is None or now_s < from_s:
                continue
            lasted_s = min(now_s, until_s) - from_s
            how(sick.setdefault(fault.gpu, Health()), fault, lasted_s, now_s < until_s)
        for board, gpu in enumerate(library.gpus):
            gpu.health = sick.get(board, gpu.health)

    def absent(self, now_s: float) -> frozenset[int]:
        """Nodes that have left."""
        return self._nodes_of("node_vanishes", now_s)

    def dead(self, now_s: float) -> frozenset[int]:
        """Nodes that do not answer."""
        return self._nodes_of("exporter_dies", now_s)

    def _nodes_of(self, kind: str, now_s: float) -> frozenset[int]:
        found: set[int] = set()
        for fault in self._scenario.faults:
            from_s, until_s = self._times(fault)
            if fault.fault == kind and from_s <= now_s < until_s:
                found.update(fault.nodes(self._cluster.nodes))
        return frozenset(found)

    def _times(self, fault: Fault) -> tuple[float, float]:
        return self._started_s + fault.from_s, self._started_s + fault.until_s

    def _on(self, fault: Fault, node: int) -> bool:
        return node in fault.nodes(self._cluster.nodes)

    def _of_gpus(self, node: int) -> Iterable[Fault]:
        return (f for f in self._scenario.faults if f.gpu is not None and self._on(f, node))

    def _change_jobs(self, fault: Fault) -> None:
        from_s, until_s = self._times(fault)
        act = CHANGES.get(fault.fault)
        if act is not None:
            for lane in self._cluster.lanes:
                if lane.kind.name == fault.job:
                    boards = _boards(lane, int(fault.amount or 0)) if "partly" in fault.fault else frozenset()
                    silent = fault.fault == "silent_log"
                    lane.changes += (Change(from_s, until_s, act, boards, silent),)
        elif fault.fault in ON_ONE_GPU and fault.gpu is not None:
            act = ON_ONE_GPU[fault.fault]
            for node in fault.nodes(self._cluster.nodes):
                place = (node, fault.gpu)
                holder = self._cluster.lane(*place)
                if holder is None:
                    changes = self._cluster.without_job.setdefault(place, [])
                    changes.append(Change(from_s, until_s, act))
                else:
                    holder.changes += (Change(from_s, until_s, act, frozenset((place,))),)


def _boards(lane: Lane, count: int) -> frozenset[tuple[int, int]]:
    """The last boards of a lane."""
    return frozenset(lane.boards[-count:])


# --- the health of a board: fault, seconds for which it has lasted, whether it still does ---------------

How = Callable[[Health, Fault, float, bool], None]


def _ecc(kind: EccKind) -> How:
    def set_errors(health: Health, fault: Fault, lasted_s: float, lasts: bool) -> None:
        place: EccPlace = "sram" if fault.item == "sram" else "dram"
        amount = fault.amount or 0.0
        count = math.floor(amount) if kind == "uncorrected" else math.floor(amount * lasted_s / HOUR_S)
        windows: Sequence[EccWindow] = (
            ("volatile", "aggregate") if lasts else ("aggregate",)
        )  # a reset ends it
        for window in windows:
            key = (kind, window, place)
            health.ecc_errors[key] = health.ecc_errors.get(key, 0) + count

    return set_errors


def _while(**attributes: object) -> How:
    """Attributes of `Health` while the fault lasts; a callable is given the fault."""

    def set_attributes(health: Health, fault: Fault, lasted_s: float, lasts: bool) -> None:
        if lasts:
            for name, value in attributes.items():
                setattr(health, name, value(fault) if callable(value) else value)

    return set_attributes


def _nvlink_errors(health: Health, fault: Fault, lasted_s: float, lasts: bool) -> None:
    health.nvlink_errors[fault.item, 0] = math.floor((fault.amount or 0.0) * lasted_s / HOUR_S)


def _held_down(reason: str) -> How:
    def set_time(health: Health, fault: Fault, lasted_s: float, lasts: bool) -> None:
        before = health.held_down_ns.get(reason, 0)
        health.held_down_ns[reason] = before + int((fault.amount or 0.0) * lasted_s * NS)

    return set_time


def _amount(fault: Fault) -> int:
    return int(fault.amount or 0)


def _banks(fault: Fault) -> tuple[int, int, int, int, int]:
    return (ROW_BANKS - _amount(fault), 0, 0, 0, _amount(fault))


HEALTH: Mapping[str, How] = {
    "uncorrected_ecc": _ecc("uncorrected"),
    "corrected_ecc": _ecc("corrected"),
    "row_remap_pending": _while(row_remap_pending=True, remapped_rows_uncorrectable=1),
    "row_remap_failed": _while(row_remap_failed=True, remapped_rows_uncorrectable=1),
    "no_spare_rows": _while(row_banks=_banks),
    "recovery_action": _while(recovery_action=lambda fault: fault.code),
    "nvlink_down": _while(nvlink_down=lambda fault: set(range(_amount(fault)))),
    "nvlink_errors": _nvlink_errors,
    "pcie_width": _while(pcie_width=_amount),
    "power_brake": _held_down("hw_power_brake"),
    "warmer": _while(warmer_c=lambda fault: fault.amount),
    "low_clock": _while(sm_clock_mhz=_amount),
}
