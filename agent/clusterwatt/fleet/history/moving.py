"""The series of a node that move, block by block, in the words of the agent's page.

What the agent counts begins with the history, as it does on a node whose agent was started then. Of what jobs
and accounts cost, and of the energy of jobs, GPUs have their part and the host has none.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from clusterwatt.attribution.idle import ACTIVE, FREE, IDLE, STATES
from clusterwatt.attribution.roster import Roster
from clusterwatt.catalog import Metric
from clusterwatt.config.model import Ledger
from clusterwatt.fleet.history.spells import Spell, spells, stretches
from clusterwatt.fleet.history.text import FAMILIES, Block, Lines, Values, labels_of, value_of
from clusterwatt.fleet.history.voices import Sums, Voice
from clusterwatt.fleet.node import library, library_seed, node_name
from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import ElectricityPrice, Job, JobExempt, JobInfo
from clusterwatt.simulate.claims import NodeClaims
from clusterwatt.simulate.cluster import BLOCK, Cluster, JobRun, Lane, scheduler_of
from clusterwatt.simulate.fabric import PORT_BYTES_PER_S
from clusterwatt.simulate.gpu import Gpu
from clusterwatt.simulate.market import CURRENCY, GPU_PRICE_PER_HOUR, Market
from clusterwatt.simulate.node import SOCKETS, boot_s
from clusterwatt.simulate.runs import Log
from clusterwatt.simulate.storage import FILESYSTEMS, LUSTRE_MOUNT, NFS_MOUNT
from clusterwatt.simulate.troubles import Troubles
from clusterwatt.simulate.work import Flat, Signal, Weighted, mean

HOUR_S = 3_600.0
LINGER_S = Ledger().linger_seconds
SUSPECT_AFTER_S = 600.0
TENSOR_OF_SM = 0.52
HOT_C = 30.0
MHZ = 1e6
NOBODY = ""
THROTTLES = {
    "sw_power_cap": "capped",
    "hw_thermal": "hot",
    "hw_slowdown": "hot",
    "sw_thermal": "",
    "hw_power_brake": "",
}
SHARED = ((NFS_MOUNT, "nfs4"), (LUSTRE_MOUNT, "lustre"))

# Families that this file writes. Everything else stands still on a node without faults.
MOVING = frozenset(
    {
        "account_cost_month_to_date",
        "account_cost_total",
        "filesystem_last_probe_timestamp_seconds",
        "gpu_activity_seconds_total",
        "gpu_allocated",
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
        "job_activity_gpu_seconds_total",
        "job_end_timestamp_seconds",
        "job_energy_joules_total",
        "job_exempt",
        "job_gpu_seconds_total",
        "job_idle_cost_total",
        "job_idle_gpu_seconds_total",
        "job_info",
        "job_start_timestamp_seconds",
        "job_tensor_gpu_seconds_total",
        "node_energy_joules_total",
        "rdma_transmit_bytes_total",
        "scheduler_gpus_allocated",
    }
    | {name for name in FAMILIES if name.startswith("training_")}
)
BY_READING: dict[type[Reading], list[Metric]] = defaultdict(list)
for _metric in FAMILIES.values():
    BY_READING[_metric.reading].append(_metric)


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

    def _rest(self) -> None:
        for voice in self._singing:
            voice.rest()
        self._singing.clear()
        self._shared.clear()


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
        self._lanes = list(dict.fromkeys(board.lane for board in self._boards if board.lane is not None))
        cpus = [(float(len(self._on(lane))), history.rate(lane, "cpus")) for lane in self._lanes]
        self._cpus: Signal = Weighted([(1.0, Flat(1.5)), *cpus])
        self._claims = NodeClaims(cluster, number, seed, Troubles())
        self._logs = [Log(lane) for lane in self._lanes if lane.kind.tokens and lane.places[0][0] == number]
        self._names: dict[JobRun, tuple[Job, list[Reading]]] = {}
        self._months: dict[str, tuple[str, float]] = {}

    def _board(self, gpu: Gpu, number: int) -> Board:
        from_s, card = self._history.from_s, gpu.card
        lane = self._history.cluster.lane(number, gpu.board)
        drawn = gpu.signals.drawn.at(from_s)
        factor = gpu.power_w(from_s) / (card.power_idle_w + (card.power_loaded_w - card.power_idle_w) * drawn)
        voice = self._history.voice(number, gpu.board, lane)
        effort, heat = voice.warmth(from_s)
        usual_c = _celsius(card.temperature_idle_c, card.temperature_loaded_c, effort, heat)
        return Board(gpu, factor, gpu.temperature_c(from_s) - usual_c, voice, lane)

    def write(self, block: Block) -> None:
        """All series of a block of time."""
        for board in self._boards:
            self._history.sung(board.voice, block.times)
        for board in self._boards:
            self._gpu(block, board)
            self._states(block, board)
        self._jobs(block)
        self._accounts(block)
        self._energy(block)
        self._host(block)
        self._sample(block, self._of_logs)
        block.add_up(self._name, block.flat(1.0))

    # --- GPUs ----------------------------------------------------------------------------------------

    def _gpu(self, block: Block, board: Board) -> None:
        voice, labels, card = board.voice, board.labels, board.gpu.card
        name = self._name
        block.add("gpu_busy_seconds_total", name, labels, self._integral(block, voice, "busy"))
        block.add("gpu_activity_seconds_total", name, labels, self._integral(block, voice, "sm"))
        for reason, signal in THROTTLES.items():
            lines = self._integral(block, voice, signal) if signal else block.flat(0.0)
            block.add("gpu_throttle_seconds_total", name, labels | {"reason": reason}, lines)
        seconds = [time_s - self._history.from_s for time_s in block.times]
        joules = map(board.joules, seconds, voice.integrals["power"])
        block.add(
            "gpu_energy_joules_total",
            name,
            labels | {"scope": "gpu", "method": "counter"},
            block.lines(list(joules)),
        )
        for domain in ("sm", "memory"):
            clocks = self._history.shared(
                (voice, "clock", domain, card.name),
                lambda domain=domain: block.lines(  # type: ignore[misc]  # bound at once
                    [getattr(board.gpu.clocks(time_s), domain) * MHZ for time_s in block.times]
                ),
            )
            block.add("gpu_clock_hertz", name, labels | {"domain": domain}, clocks)
        self._heat(block, board)
        if block.asks_for("gpu_utilization_suspect"):
            block.add("gpu_utilization_suspect", name, labels, block.lines(self._suspect(block, board)))

    def _integral(self, block: Block, voice: Voice, signal: str) -> Lines:
        return self._history.shared((voice, signal), lambda: block.lines(voice.integrals[signal]))

    def _heat(self, block: Block, board: Board) -> None:
        card, voice = board.gpu.card, board.voice
        core = [
            float(round(board.warmer_c + _celsius(card.temperature_idle_c, card.temperature_loaded_c, *warm)))
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
                float(round(board.warmer_c + _celsius(idle_c, loaded_c, *warm)))
                for warm in zip(voice.effort, voice.heat, strict=True)
            ]
            sensor = {"sensor": "memory"}
            block.add("gpu_temperature_celsius", self._name, board.labels | sensor, block.lines(memory))

    def _suspect(self, block: Block, board: Board) -> Values:
        """Known after ten minutes. A GPU that works for a job is none: even a hang keeps some SMs."""
        known_s = self._history.from_s + SUSPECT_AFTER_S
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
            seconds = self._history.shared(
                (board.voice, state),
                lambda column=column: block.lines([sums.seconds for sums in column]),  # type: ignore[misc]  # bound at once
            )
            block.add("gpu_state_seconds_total", self._name, labels, seconds)
            joules = block.lines([board.joules(sums.seconds, sums.work) for sums in column])
            block.add("gpu_state_energy_joules_total", self._name, labels, joules)
            money = block.lines([_gpu_money(sums) + _energy_money(board, sums) for sums in column])
            block.add("gpu_state_cost_total", self._name, labels | {"currency": CURRENCY}, money)

    # --- jobs and accounts ---------------------------------------------------------------------------

    def _jobs(self, block: Block) -> None:
        times = block.times
        for lane in self._lanes:
            boards = [board for board in self._boards if board.lane is lane]
            for job in dict.fromkeys(job for job, _ in boards[0].voice.by_job):
                held = [job.start_s <= time_s < job.end_s for time_s in times]
                shown = [job.start_s <= time_s < job.end_s + LINGER_S for time_s in times]
                if any(shown):
                    self._job(block, job, shown)
                    self._job_sums(block, job, shown, boards)
                if any(held):
                    for board in boards:
                        self._allocated(block, job, held, board)
        for key in [job for job in self._names if job.end_s + LINGER_S < times[0]]:
            del self._names[key]
        held_gpus = [
            float(sum(len(self._on(lane)) for lane in self._lanes if lane.job(time_s) is not None))
            for time_s in times
        ]
        scheduler = {"scheduler": scheduler_of(self.number)}
        block.add("scheduler_gpus_allocated", self._name, scheduler, block.lines(held_gpus))

    def _on(self, lane: Lane) -> Sequence[Board]:
        return [board for board in self._boards if board.lane is lane]

    def _named(self, job: JobRun) -> tuple[Job, list[Reading]]:
        """What the scheduler says of a job, and what the agent makes of it."""
        found = self._names.get(job)
        if found is None:
            said = self._claims.readings((job.start_s + job.end_s) / 2)
            named = next(r for r in said if isinstance(r, Job) and r.job_id == job.job_id)
            roster = Roster(LINGER_S)
            roster.take({job.job_id: named}, wall_s=job.start_s, now_s=0.0)
            found = self._names[job] = (named, list(roster.readings()))
        return found

    def _job(self, block: Block, job: JobRun, shown: Sequence[bool]) -> None:
        present = block.lines([1.0 if there else None for there in shown])
        for reading in self._named(job)[1]:
            for family, kind in (("job_info", JobInfo), ("job_exempt", JobExempt)):
                if isinstance(reading, kind):
                    block.add(family, self._name, labels_of(FAMILIES[family], reading), present)
        one = {"job_id": job.job_id}
        start = block.lines([job.start_s if there else None for there in shown])
        block.add("job_start_timestamp_seconds", self._name, one, start)
        end = block.lines(
            [
                job.end_s if there and time_s >= job.end_s else None
                for there, time_s in zip(shown, block.times, strict=True)
            ]
        )
        block.add("job_end_timestamp_seconds", self._name, one, end)

    def _job_sums(self, block: Block, job: JobRun, shown: Sequence[bool], boards: Sequence[Board]) -> None:
        one, currency = {"job_id": job.job_id}, {"currency": CURRENCY}
        all_of = [
            (board, state, column)
            for board in boards
            for state in (ACTIVE, IDLE)
            if (column := board.voice.by_job.get((job, state))) is not None
        ]

        def add(family: str, of: Callable[[Board, Sums], float], more: dict[str, str], *states: str) -> None:
            parts = [(board, column) for board, state, column in all_of if state in states]
            values = [
                sum(of(board, column[index]) for board, column in parts) + 0.0 if there else None
                for index, there in enumerate(shown)
            ]
            block.add(family, self._name, one | more, block.lines(values))

        both = (ACTIVE, IDLE)
        add("job_gpu_seconds_total", lambda _, sums: sums.seconds, {}, *both)
        add("job_idle_gpu_seconds_total", lambda _, sums: sums.seconds, {}, IDLE)
        add("job_activity_gpu_seconds_total", lambda _, sums: sums.activity, {}, *both)
        add("job_tensor_gpu_seconds_total", lambda _, sums: TENSOR_OF_SM * sums.activity, {}, *both)
        of_gpus = {"component": "gpu", "method": "counter"}
        add(
            "job_energy_joules_total",
            lambda board, sums: board.joules(sums.seconds, sums.work),
            of_gpus,
            *both,
        )
        add(
            "job_idle_cost_total",
            lambda board, sums: _gpu_money(sums) + _energy_money(board, sums),
            currency,
            IDLE,
        )

    def _allocated(self, block: Block, job: JobRun, held: Sequence[bool], board: Board) -> None:
        labels = board.labels | {
            "job_id": job.job_id,
            "user": self._named(job)[0].user,
            "account": job.kind.account,
            "kind": job.kind.kind,
            "source": job.kind.scheduler,
        }
        lines = block.lines([1.0 if there else None for there in held])
        block.add("gpu_allocated", self._name, labels, lines)

    def _accounts(self, block: Block) -> None:
        energy: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * len(block.times))
        gpus: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * len(block.times))
        for board in self._boards:
            for state, column in board.voice.by_state.items():
                if board.lane is None and state != FREE:
                    continue
                account = NOBODY if state == FREE or board.lane is None else board.lane.kind.account
                for index, sums in enumerate(column):
                    energy[account][index] += _energy_money(board, sums)
                    gpus[account][index] += _gpu_money(sums)
        for account in energy:
            labels = {"account": account, "currency": CURRENCY}
            for kind, money in (("energy", energy[account]), ("gpu", gpus[account])):
                block.add("account_cost_total", self._name, labels | {"kind": kind}, block.lines(money))
            both = [sum(pair) for pair in zip(energy[account], gpus[account], strict=True)]
            month = block.lines(list(self._of_month(account, block.times, both)))
            block.add("account_cost_month_to_date", self._name, labels, month)

    def _of_month(self, account: str, times: Iterable[float], money: Iterable[float]) -> Iterator[float]:
        """Money since the month (UTC) began, or the history where that is later."""
        for time_s, spent in zip(times, money, strict=True):
            month = datetime.fromtimestamp(time_s, timezone.utc).strftime("%Y-%m")
            known, before = self._months.setdefault(account, (month, 0.0))
            if known != month:
                before = spent
                self._months[account] = (month, before)
            yield spent - before

    # --- the node ------------------------------------------------------------------------------------

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

    def _host(self, block: Block) -> None:
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
        now = block.lines(block.times)
        kinds = [(mountpoint, kind[0]) for mountpoint, kind in FILESYSTEMS.items()]
        for mountpoint, fstype in (*kinds, *SHARED):
            mount = {"mountpoint": mountpoint, "fstype": fstype}
            block.add("filesystem_last_probe_timestamp_seconds", self._name, mount, now)

    def _carried(self, lane: Lane, times: Iterable[float]) -> Iterator[float]:
        signal = self._history.rate(lane, "fabric")
        zero = signal.integral(self._boot_s)
        for time_s in times:
            yield float(math.floor(PORT_BYTES_PER_S * (signal.integral(time_s) - zero)))

    # --- what is a reading already -------------------------------------------------------------------

    def _of_logs(self, time_s: float) -> Iterator[Reading]:
        for log in self._logs:
            yield from log.readings(time_s)

    def _sample(self, block: Block, read: Callable[[float], Iterable[Reading]]) -> None:
        """Series of readings, which are asked for at each time."""
        columns: dict[tuple[str, tuple[tuple[str, str], ...]], list[float | None]] = {}
        for index, time_s in enumerate(block.times):
            for reading in read(time_s):
                for metric in BY_READING.get(type(reading), ()):
                    value = value_of(metric, reading)
                    if value is not None and block.asks_for(metric.name):
                        key = (metric.name, tuple(labels_of(metric, reading).items()))
                        column = columns.setdefault(key, [])
                        column += [None] * (index - len(column))
                        column.append(value)
        for (name, labels), column in columns.items():
            rest = [None] * (len(block.times) - len(column))
            block.add(name, self._name, dict(labels), block.lines([*column, *rest]))


def _celsius(idle_c: float, loaded_c: float, effort: float, heat: float) -> float:
    return idle_c + (loaded_c - idle_c) * effort + HOT_C * heat


def _gpu_money(sums: Sums) -> float:
    return sums.seconds * GPU_PRICE_PER_HOUR / HOUR_S


def _energy_money(board: Board, sums: Sums) -> float:
    return board.joules(sums.priced_seconds, sums.priced_work)
