"""The series of a node's GPUs: work, clocks, temperatures, and what became of every second of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from clusterwatt.attribution.idle import STATES
from clusterwatt.fleet.history.text import Block, Lines, Values
from clusterwatt.fleet.history.voices import Sums, Voice
from clusterwatt.simulate.cluster import Lane
from clusterwatt.simulate.gpu import Gpu
from clusterwatt.simulate.market import CURRENCY, GPU_PRICE_PER_HOUR
from clusterwatt.simulate.work import mean

HOUR_S = 3_600.0
SUSPECT_AFTER_S = 600.0
HOT_C = 30.0
MHZ = 1e6
THROTTLES = {
    "sw_power_cap": "capped",
    "hw_thermal": "hot",
    "hw_slowdown": "hot",
    "sw_thermal": "",
    "hw_power_brake": "",
}
MOVING = frozenset(
    {
        "gpu_activity_seconds_total",
        "gpu_busy_seconds_total",
        "gpu_clock_hertz",
        "gpu_energy_joules_total",
        "gpu_state_cost_total",
        "gpu_state_energy_joules_total",
        "gpu_state_seconds_total",
        "gpu_temperature_celsius",
        "gpu_temperature_margin_celsius",
        "gpu_throttle_seconds_total",
        "gpu_utilization_suspect",
        "node_gpu_state_cost_total",
        "node_gpu_state_energy_joules_total",
        "node_gpu_state_seconds_total",
    }
)

# What several GPUs of a block of nodes have alike, by key: made once.
Shared = Callable[[tuple[object, ...], Callable[[], Lines]], Lines]


class Board(NamedTuple):
    """A GPU of a node. `factor`: of its power, `warmer_c`: than the model, `lane`: None where it is free."""

    gpu: Gpu
    factor: float
    warmer_c: float
    voice: Voice
    lane: Lane | None

    @property
    def labels(self) -> dict[str, str]:
        """What all its series have."""
        return {"gpu": str(self.gpu.board), "uuid": self.gpu.uuid}

    def joules(self, seconds: float, work: float) -> float:
        """Energy of so many seconds, with so many seconds of full power among them."""
        card = self.gpu.card
        return self.factor * (card.power_idle_w * seconds + (card.power_loaded_w - card.power_idle_w) * work)

    def energy(self, sums: Sums) -> float:
        """Joules so far."""
        return self.joules(sums.seconds, sums.work)

    def money(self, sums: Sums) -> float:
        """Cost of the energy and of the GPU's time."""
        return gpu_money(sums) + self.energy_money(sums)

    def energy_money(self, sums: Sums) -> float:
        """Cost of the energy."""
        return self.joules(sums.priced_seconds, sums.priced_work)


# What there is of a state: family of a GPU or a node, how much, further labels.
OfState = tuple[str, Callable[[Board, Sums], float], dict[str, str]]
SECONDS: OfState = ("state_seconds_total", lambda _, sums: sums.seconds, {})
OF_POWER_AND_PRICE: tuple[OfState, ...] = (
    ("state_energy_joules_total", Board.energy, {}),
    ("state_cost_total", Board.money, {"currency": CURRENCY}),
)


class GpuSeries:
    """Of the node of this name, in a history that begins at `from_s`."""

    def __init__(self, name: str, from_s: float, shared: Shared) -> None:
        self._name = name
        self._from_s = from_s
        self._shared = shared

    def write(self, block: Block, board: Board) -> None:
        """All of one GPU, whose voice has sung the block's times."""
        self._work(block, board)
        self._heat(block, board)
        if block.asks_for("gpu_utilization_suspect"):
            block.add(
                "gpu_utilization_suspect", self._name, board.labels, block.lines(self._suspect(block, board))
            )
        self._states(block, board)

    def _work(self, block: Block, board: Board) -> None:
        voice, labels, card = board.voice, board.labels, board.gpu.card
        name = self._name
        block.add("gpu_busy_seconds_total", name, labels, self._integral(block, voice, "busy"))
        block.add("gpu_activity_seconds_total", name, labels, self._integral(block, voice, "sm"))
        for reason, signal in THROTTLES.items():
            lines = self._integral(block, voice, signal) if signal else block.flat(0.0)
            block.add("gpu_throttle_seconds_total", name, labels | {"reason": reason}, lines)
        seconds = [time_s - self._from_s for time_s in block.times]
        joules = map(board.joules, seconds, voice.integrals["power"])
        block.add(
            "gpu_energy_joules_total",
            name,
            labels | {"scope": "gpu", "method": "counter"},
            block.lines(list(joules)),
        )
        for domain in ("sm", "memory"):
            clocks = self._shared(
                (voice, "clock", domain, card.name),
                lambda domain=domain: block.lines(  # type: ignore[misc]  # bound at once
                    [getattr(board.gpu.clocks(time_s), domain) * MHZ for time_s in block.times]
                ),
            )
            block.add("gpu_clock_hertz", name, labels | {"domain": domain}, clocks)

    def _integral(self, block: Block, voice: Voice, signal: str) -> Lines:
        return self._shared((voice, signal), lambda: block.lines(voice.integrals[signal]))

    def _heat(self, block: Block, board: Board) -> None:
        card, voice = board.gpu.card, board.voice
        core = [
            float(round(board.warmer_c + celsius(card.temperature_idle_c, card.temperature_loaded_c, *warm)))
            for warm in zip(voice.effort, voice.heat, strict=True)
        ]
        sensor = {"sensor": "core"}
        block.add("gpu_temperature_celsius", self._name, board.labels | sensor, block.lines(core))
        if card.margins is not None:
            margins = [card.margins.zero_c - celsius for celsius in core]
            block.add("gpu_temperature_margin_celsius", self._name, board.labels, block.lines(margins))
        idle_c, loaded_c = card.memory_temperature_idle_c, card.memory_temperature_loaded_c
        if idle_c is not None and loaded_c is not None:
            memory = [
                float(round(board.warmer_c + celsius(idle_c, loaded_c, *warm)))
                for warm in zip(voice.effort, voice.heat, strict=True)
            ]
            sensor = {"sensor": "memory"}
            block.add("gpu_temperature_celsius", self._name, board.labels | sensor, block.lines(memory))

    def _suspect(self, block: Block, board: Board) -> Values:
        """Known after ten minutes. A GPU that works for a job is none: even a hang keeps some SMs."""
        known_s = self._from_s + SUSPECT_AFTER_S
        busy, sm = board.gpu.signals.busy, board.gpu.signals.sm

        def suspect(time_s: float) -> float:
            from_s = time_s - SUSPECT_AFTER_S
            return float(mean(busy, from_s, time_s) >= 0.99 and mean(sm, from_s, time_s) < 0.005)

        return [
            None if time_s < known_s else 0.0 if board.lane is not None else suspect(time_s)
            for time_s in block.times
        ]

    def _states(self, block: Block, board: Board) -> None:
        for state, column in board.voice.by_state.items():
            labels = board.labels | {"state": state}
            seconds = self._shared(
                (board.voice, state),
                lambda column=column: block.lines([sums.seconds for sums in column]),  # type: ignore[misc]  # bound at once
            )
            block.add("gpu_state_seconds_total", self._name, labels, seconds)
            for family, of, more in OF_POWER_AND_PRICE:
                if block.asks_for(f"gpu_{family}"):
                    lines = block.lines([of(board, sums) for sums in column])
                    block.add(f"gpu_{family}", self._name, labels | more, lines)

    def write_states_of_node(self, block: Block, boards: Sequence[Board]) -> None:
        """The sums over all GPUs, whose voices have sung the block's times."""
        for state in STATES:
            columns = [board.voice.by_state[state] for board in boards]
            rows = [list(zip(boards, row, strict=True)) for row in zip(*columns, strict=True)]
            for family, of, more in (SECONDS, *OF_POWER_AND_PRICE):
                if block.asks_for(f"node_gpu_{family}"):
                    lines = block.lines([sum(of(board, sums) for board, sums in row) for row in rows])
                    block.add(f"node_gpu_{family}", self._name, {"state": state} | more, lines)


def by_lane(boards: Sequence[Board]) -> dict[Lane, list[Board]]:
    """The boards of each lane."""
    lanes: dict[Lane, list[Board]] = {}
    for board in boards:
        if board.lane is not None:
            lanes.setdefault(board.lane, []).append(board)
    return lanes


def celsius(idle_c: float, loaded_c: float, effort: float, heat: float) -> float:
    """A temperature: of a board at rest, at full power, and between them; heat protection has its own."""
    return idle_c + (loaded_c - idle_c) * effort + HOT_C * heat


def gpu_money(sums: Sums) -> float:
    """Price of the GPU's time."""
    return sums.seconds * GPU_PRICE_PER_HOUR / HOUR_S
