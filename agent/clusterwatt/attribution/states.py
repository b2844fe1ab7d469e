"""What became of the GPUs' time, energy and money since the agent started: active, idle, free.

The sums of the node are counted beside those of its GPUs: they go on when a GPU is lost or parted anew, and a
cluster adds up three series a node where it would add up three a GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from clusterwatt.attribution.entries import Amounts
from clusterwatt.attribution.idle import STATES
from clusterwatt.catalog import CORE, STANDARD, Table
from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import GpuState, GpuStateCost, NodeGpuState, NodeGpuStateCost

STATE = Table(GpuState, labels=("gpu", "uuid", "state"))
COST = Table(GpuStateCost, labels=("gpu", "uuid", "state", "currency"))
NODE = Table(NodeGpuState, labels=("state",))
NODE_COST = Table(NodeGpuStateCost, labels=("state", "currency"))
METRICS = (
    STATE.counter(
        "gpu_state_seconds_total",
        "Seconds in which the GPU was active, held but idle, or free; on MIG times the instance's slices.",
        "state_seconds",
        CORE,
    ),
    STATE.counter(
        "gpu_state_energy_joules_total",
        "Energy of the GPU by the state it was in; the states add up to its energy.",
        "energy_joules",
        STANDARD,
    ),
    COST.counter(
        "gpu_state_cost_total",
        "Money of the GPU by the state it was in, energy and the GPU's own price.",
        "cost",
        STANDARD,
    ),
    NODE.counter(
        "node_gpu_state_seconds_total",
        "Seconds in which GPUs of the node were active, held but idle, or free, of lost GPUs too.",
        "state_seconds",
        CORE,
    ),
    NODE.counter(
        "node_gpu_state_energy_joules_total",
        "Energy of all GPUs of the node by the state they were in.",
        "energy_joules",
        STANDARD,
    ),
    NODE_COST.counter(
        "node_gpu_state_cost_total",
        "Money of all GPUs of the node by the state they were in.",
        "cost",
        STANDARD,
    ),
)


class States:
    """Counters by UUID and state, and their sums, all from zero."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str], float] = {}
        self._joules: dict[tuple[str, str], float] = {}
        self._cost: dict[tuple[str, str], dict[str, float]] = {}  # uuid and currency -> state -> money
        self._node_seconds = dict.fromkeys(STATES, 0.0)
        self._node_joules = dict.fromkeys(STATES, 0.0)
        self._node_has_energy = False
        self._node_cost: dict[str, dict[str, float]] = {}  # currency -> state -> money

    def add(self, uuid: str, state: str, currency: str, amounts: Amounts) -> None:
        """Add what was booked for a device in a state."""
        key = (uuid, state)
        self._seconds[key] = self._seconds.get(key, 0.0) + amounts.gpu_seconds
        self._node_seconds[state] += amounts.gpu_seconds
        if amounts.joules is not None:
            self._joules[key] = self._joules.get(key, 0.0) + amounts.joules
            self._node_joules[state] += amounts.joules
            self._node_has_energy = True
        money = [part for part in (amounts.energy_cost, amounts.gpu_cost) if part is not None]
        if money:
            costs = self._cost.setdefault((uuid, currency), dict.fromkeys(STATES, 0.0))
            costs[state] += sum(money)
            of_node = self._node_cost.setdefault(currency, dict.fromkeys(STATES, 0.0))
            of_node[state] += sum(money)

    def readings(self, devices: Iterable[tuple[str, str, bool]]) -> Iterator[Reading]:
        """Counters of these devices (label, UUID, whether their energy is measured), and of the node."""
        shown = {}
        for gpu, uuid, has_energy in devices:
            shown[uuid] = gpu
            self._node_has_energy |= has_energy
            for state in STATES:
                yield GpuState(
                    gpu=gpu,
                    uuid=uuid,
                    state=state,
                    state_seconds=self._seconds.get((uuid, state), 0.0),
                    energy_joules=self._joules.get((uuid, state), 0.0) if has_energy else None,
                )
        for (uuid, currency), costs in self._cost.items():
            if uuid in shown:
                for state, cost in costs.items():
                    yield GpuStateCost(gpu=shown[uuid], uuid=uuid, state=state, currency=currency, cost=cost)
        if shown:
            yield from self._of_node()

    def _of_node(self) -> Iterator[Reading]:
        for state, seconds in self._node_seconds.items():
            joules = self._node_joules[state] if self._node_has_energy else None
            yield NodeGpuState(state=state, state_seconds=seconds, energy_joules=joules)
        for currency, costs in self._node_cost.items():
            for state, cost in costs.items():
                yield NodeGpuStateCost(state=state, currency=currency, cost=cost)

    def keep(self, uuids: Collection[str]) -> None:
        """Forget devices that are no more: a board can be parted anew every hour of its life."""
        for uuid in {uuid for uuid, _ in self._seconds if uuid not in uuids}:
            for state in STATES:
                self._seconds.pop((uuid, state), None)
                self._joules.pop((uuid, state), None)
            for key in [key for key in self._cost if key[0] == uuid]:
                del self._cost[key]
