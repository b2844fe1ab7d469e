"""What became of the GPUs' time, energy and money since the agent started: active, idle, free.

The sums of the node are counted beside those of its GPUs: they go on when a GPU is lost or parted anew, and a
cluster adds up three series a node where it would add up three a GPU.
"""

from __future__ import annotations

from collections import defaultdict
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


class _Sums:
    """Of one device, or of all of the node, from zero."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STATES, 0.0)
        self.joules = dict.fromkeys(STATES, 0.0)
        self.cost: dict[str, dict[str, float]] = {}  # currency -> state -> money

    def add(self, state: str, currency: str, amounts: Amounts) -> None:
        self.seconds[state] += amounts.gpu_seconds
        if amounts.joules is not None:
            self.joules[state] += amounts.joules
        money = [part for part in (amounts.energy_cost, amounts.gpu_cost) if part is not None]
        if money:
            self.cost.setdefault(currency, dict.fromkeys(STATES, 0.0))[state] += sum(money)


class States:
    """Counters by UUID and state, and their sums."""

    def __init__(self) -> None:
        self._devices: defaultdict[str, _Sums] = defaultdict(_Sums)
        self._node = _Sums()
        self._node_has_energy = False

    def add(self, uuid: str, state: str, currency: str, amounts: Amounts) -> None:
        """Add what was booked for a device in a state."""
        self._devices[uuid].add(state, currency, amounts)
        self._node.add(state, currency, amounts)
        self._node_has_energy |= amounts.joules is not None

    def readings(self, devices: Iterable[tuple[str, str, bool]]) -> Iterator[Reading]:
        """Counters of these devices (label, UUID, whether their energy is measured), and of the node."""
        shown = False
        for gpu, uuid, has_energy in devices:
            shown = True
            self._node_has_energy |= has_energy
            sums = self._devices[uuid]
            for state in STATES:
                yield GpuState(
                    gpu=gpu,
                    uuid=uuid,
                    state=state,
                    state_seconds=sums.seconds[state],
                    energy_joules=sums.joules[state] if has_energy else None,
                )
            for currency, costs in sums.cost.items():
                for state, cost in costs.items():
                    yield GpuStateCost(gpu=gpu, uuid=uuid, state=state, currency=currency, cost=cost)
        if shown:
            yield from self._of_node()

    def _of_node(self) -> Iterator[Reading]:
        for state in STATES:
            joules = self._node.joules[state] if self._node_has_energy else None
            yield NodeGpuState(state=state, state_seconds=self._node.seconds[state], energy_joules=joules)
        for currency, costs in self._node.cost.items():
            for state, cost in costs.items():
                yield NodeGpuStateCost(state=state, currency=currency, cost=cost)

    def keep(self, uuids: Collection[str]) -> None:
        """Forget devices that are no more: a board can be parted anew every hour of its life."""
        for uuid in [uuid for uuid in self._devices if uuid not in uuids]:
            del self._devices[uuid]
