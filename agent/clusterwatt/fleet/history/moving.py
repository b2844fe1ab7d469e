"""The series of a node that move, block by block, in the words of the agent's page.

What the agent counts begins with the history, as it does on a node whose agent was started then. Of what jobs
and accounts cost, and of the energy of jobs, GPUs have their part and the host has none.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from clusterwatt.attribution.idle import STATES
from clusterwatt.fleet.history import gpus, jobs
from clusterwatt.fleet.history.gpus import Board, GpuSeries, by_lane, celsius
from clusterwatt.fleet.history.jobs import LINGER_S, JobSeries
from clusterwatt.fleet.history.sampled import BY_READING, Series, sampled
from clusterwatt.fleet.history.spells import Spell, spells, stretches
from clusterwatt.fleet.history.text import FAMILIES, Block, Lines
from clusterwatt.fleet.history.voices import Voice
from clusterwatt.fleet.node import library, library_seed, node_name
from clusterwatt.readings.base import Reading
from clusterwatt.readings.storage import Filesystem, FilesystemProbe
from clusterwatt.readings.work import ElectricityPrice
from clusterwatt.simulate.claims import NodeClaims
from clusterwatt.simulate.cluster import BLOCK, Cluster, Lane
from clusterwatt.simulate.fabric import PORT_BYTES_PER_S
from clusterwatt.simulate.gpu import Gpu
from clusterwatt.simulate.market import Market
from clusterwatt.simulate.node import SOCKETS, boot_s
from clusterwatt.simulate.runs import Log
from clusterwatt.simulate.storage import Storage
from clusterwatt.simulate.troubles import Troubles
from clusterwatt.simulate.work import Flat, Signal, Weighted

# Families that move. Everything else stands still on a node without faults.
MOVING = frozenset(
    {"node_energy_joules_total", "rdma_transmit_bytes_total"}
    | gpus.MOVING
    | jobs.MOVING
    | {metric.name for kind in (Filesystem, FilesystemProbe) for metric in BY_READING[kind]}
    | {name for name in FAMILIES if name.startswith("training_")}
)


class History:
    """A cluster from `from_s` to `until_s`. `profiles`: of the nodes in turn."""

    def __init__(self, cluster: Cluster, profiles: Sequence[str], *, from_s: float, until_s: float) -> None:
        self.cluster = cluster
        self.profiles = profiles
        self.from_s, self.until_s = from_s, until_s
        self._market = Market("", cluster.nodes * cluster.gpus, Troubles())
        self._spells: dict[int, list[Spell]] = {}
        self._voices: dict[tuple[object, ...], Voice] = {}
        self._rates: dict[tuple[Lane, str], Signal] = {}
        self._singing: list[Voice] = []
        self._shared: dict[tuple[object, ...], Lines] = {}
        self._storage = Storage(Flat(0.0), Flat(0.0), from_s, Troubles())
        self._filesystems: list[Series] = []
        self._nodes = [_Node(self, number) for number in range(cluster.nodes)]

    def write(self, block: Block, numbers: Iterable[int]) -> None:
        """The moving series of some nodes in a block of time. Blocks come in order, a node once in each."""
        for node in (self._nodes[number] for number in numbers):
            if node.number % BLOCK == 0:
                self._rest()  # no lane goes beyond a block of nodes
            node.write(block)
        self._rest()

    def price(self, time_s: float) -> float:
        """Of electricity, for a kWh."""
        return next(r.price_per_kwh for r in self._market.price(time_s) if isinstance(r, ElectricityPrice))

    def spells(self, lane: Lane) -> list[Spell]:
        """All that a lane does within the history."""
        found = self._spells.get(lane.number)
        if found is None:
            found = self._spells[lane.number] = list(spells(lane, self.from_s, self.until_s))
        return found

    def voice(self, node: int, board: int, lane: Lane | None) -> Voice:
        """The voice of a GPU."""
        slow = lane is not None and (node, board) == lane.slow
        key: tuple[object, ...]
        if lane is None:
            key, parts = (node, board), [Spell(self.from_s, self.until_s, None, None)]
        else:
            key, parts = (lane, slow), self.spells(lane)
        if key not in self._voices:
            signals = self.cluster.tenant(node, board).signals
            self._voices[key] = Voice(signals, stretches(parts, self.price, slow=slow), self.from_s)
        return self._voices[key]

    def rate(self, lane: Lane, name: str) -> Signal:
        """What a lane does around each of its GPUs."""
        if (lane, name) not in self._rates:
            self._rates[lane, name] = lane.rate(name)
        return self._rates[lane, name]

    def sung(self, voice: Voice, times: Sequence[float]) -> Voice:
        """A voice with the values of these times."""
        if voice.times is not times:
            voice.sing(times, STATES, LINGER_S)
            self._singing.append(voice)
        return voice

    def shared(self, key: tuple[object, ...], make: Callable[[], Lines]) -> Lines:
        """Lines that several GPUs of a block of nodes have alike."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def filesystems(self, block: Block) -> Sequence[Series]:
        """File systems, which are the same on all nodes of a block."""
        self._filesystems = self._filesystems or list(sampled(block, self._storage.filesystems))
        return self._filesystems

    def _rest(self) -> None:
        for voice in self._singing:
            voice.rest()
        self._singing.clear()
        self._shared.clear()
        self._filesystems.clear()


class _Node:
    """One node of a history."""

    def __init__(self, history: History, number: int) -> None:
        self.number = number
        self._history = history
        cluster = history.cluster
        self._name = node_name(number)
        self._boot_s = boot_s(history.from_s, number)
        seed = library_seed(cluster.seed, number)
        profile = history.profiles[number % len(history.profiles)]
        driver = library(cluster, number, profile, lambda: history.from_s)
        self._boards = [self._board(gpu, number) for gpu in driver.gpus]
        lanes = by_lane(self._boards)
        cpus = [(float(len(boards)), history.rate(lane, "cpus")) for lane, boards in lanes.items()]
        self._cpus: Signal = Weighted([(1.0, Flat(1.5)), *cpus])
        self._logs = [Log(lane) for lane in lanes if lane.kind.tokens and lane.places[0][0] == number]
        self._gpus = GpuSeries(self._name, history.from_s, history.shared)
        claims = NodeClaims(cluster, number, seed, Troubles())
        self._jobs = JobSeries(self._name, number, self._boards, claims)

    def _board(self, gpu: Gpu, number: int) -> Board:
        from_s, card = self._history.from_s, gpu.card
        lane = self._history.cluster.lane(number, gpu.board)
        drawn = gpu.signals.drawn.at(from_s)
        factor = gpu.power_w(from_s) / (card.power_idle_w + (card.power_loaded_w - card.power_idle_w) * drawn)
        voice = self._history.voice(number, gpu.board, lane)
        effort, heat = voice.warmth(from_s)
        usual_c = celsius(card.temperature_idle_c, card.temperature_loaded_c, effort, heat)
        return Board(gpu, factor, gpu.temperature_c(from_s) - usual_c, voice, lane)

    def write(self, block: Block) -> None:
        """All series of a block of time."""
        for board in self._boards:
            self._history.sung(board.voice, block.times)
        for board in self._boards:
            self._gpus.write(block, board)
        self._gpus.write_states_of_node(block, self._boards)
        self._jobs.write(block)
        self._energy(block)
        self._fabric(block)
        for series in (*self._history.filesystems(block), *sampled(block, self._of_logs)):
            block.add(series.family, self._name, series.labels, series.lines)
        block.add_up(self._name, block.flat(1.0))

    def _energy(self, block: Block) -> None:
        """As the node's sources would have it: sockets and memory of RAPL, the whole of the BMC."""
        from_s = self._history.from_s
        zero = self._cpus.integral(from_s)
        rows: dict[tuple[str, str], list[float]] = defaultdict(list)
        for index, time_s in enumerate(block.times):
            up_s, busy_s = time_s - from_s, self._cpus.integral(time_s) - zero
            gpu = sum(board.joules(up_s, board.voice.integrals["power"][index]) for board in self._boards)
            cpu = SOCKETS * (95.0 * up_s + 1.9 * busy_s)
            dram = SOCKETS * (22.0 * up_s + 0.2 * busy_s)
            platform = 1.11 * (gpu + cpu + SOCKETS * 25.0 * up_s) + 380.0 * up_s
            rows["gpu", "counter"].append(gpu)
            rows["cpu", "counter"].append(cpu)
            rows["dram", "counter"].append(dram)
            rows["platform", "integrated"].append(platform)
            rows["other", "estimated"].append(platform - gpu - cpu - dram)
        for (component, method), joules in rows.items():
            labels = {"component": component, "method": method}
            block.add("node_energy_joules_total", self._name, labels, block.lines(joules))

    def _fabric(self, block: Block) -> None:
        carried: dict[Lane, Lines] = {}
        for board in self._boards:
            lane, port = board.lane, {"device": f"mlx5_{board.gpu.board}", "port": "1"}
            if lane is None or len(lane.places) < 2:
                lines = block.flat(0.0)
            else:
                if lane not in carried:
                    carried[lane] = block.lines(list(self._carried(lane, block.times)))
                lines = carried[lane]
            block.add("rdma_transmit_bytes_total", self._name, port, lines)

    def _carried(self, lane: Lane, times: Iterable[float]) -> Iterator[float]:
        signal = self._history.rate(lane, "fabric")
        zero = signal.integral(self._boot_s)
        for time_s in times:
            yield float(math.floor(PORT_BYTES_PER_S * (signal.integral(time_s) - zero)))

    def _of_logs(self, time_s: float) -> Iterator[Reading]:
        for log in self._logs:
            yield from log.readings(time_s)
