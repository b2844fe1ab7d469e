"""What the GPUs of a simulated node do, as pure functions of wall time and seed.

Every signal is piecewise constant and has an exact integral, so that a counter derived from it (energy,
bytes, nanoseconds) is a function of the time alone: a new process goes on where the last one stopped, and a
counter is exactly the integral of the gauge beside it.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections.abc import Sequence
from math import fsum
from typing import Literal, Protocol

import msgspec

# Signals count from here (September 2020): before every simulated moment, and near enough for doubles to
# resolve a microjoule.
EPOCH_S = 1_600_000_000.0

ProcessKind = Literal["compute", "graphics", "mps"]


class Signal(Protocol):
    """A quantity over wall time."""

    def at(self, time_s: float) -> float:
        """The value at a moment."""
        ...

    def integral(self, time_s: float) -> float:
        """The integral from some fixed moment on; only differences mean anything."""
        ...


def mean(signal: Signal, from_s: float, to_s: float) -> float:
    """The mean between two moments; the value itself when they are the same."""
    if to_s <= from_s:
        return signal.at(to_s)
    return (signal.integral(to_s) - signal.integral(from_s)) / (to_s - from_s)


class Flat:
    """Always the same."""

    def __init__(self, value: float) -> None:
        self._value = value

    def at(self, time_s: float) -> float:
        """The value."""
        return self._value

    def integral(self, time_s: float) -> float:
        """Value times time."""
        return self._value * (time_s - EPOCH_S)


class Cycle:
    """Steps that repeat for ever: value `values[i]` lasts `durations_s[i]`."""

    def __init__(self, durations_s: Sequence[float], values: Sequence[float]) -> None:
        self._starts = [0.0, *itertools.accumulate(durations_s)]
        self._period_s = self._starts.pop()
        self._values = tuple(values)
        products = (duration * value for duration, value in zip(durations_s, values, strict=True))
        self._sums = [0.0, *itertools.accumulate(products)]
        self._total = self._sums.pop()

    def at(self, time_s: float) -> float:
        """The value of the step that this moment falls into."""
        return self._values[bisect_right(self._starts, (time_s - EPOCH_S) % self._period_s) - 1]

    def integral(self, time_s: float) -> float:
        """Whole cycles, whole steps, and the part of the last step."""
        cycles, position = divmod(time_s - EPOCH_S, self._period_s)
        step = bisect_right(self._starts, position) - 1
        return cycles * self._total + self._sums[step] + self._values[step] * (position - self._starts[step])


class Weighted:
    """A sum of signals, each with its weight: what a GPU does whose parts do different things."""

    def __init__(self, parts: Sequence[tuple[float, Signal]]) -> None:
        self._parts = tuple(parts)

    def at(self, time_s: float) -> float:
        """The weighted sum."""
        return fsum(weight * signal.at(time_s) for weight, signal in self._parts)

    def integral(self, time_s: float) -> float:
        """The weighted sum of the integrals."""
        return fsum(weight * signal.integral(time_s) for weight, signal in self._parts)


class Then:
    """One signal up to a moment, another from it on; the integral goes on without a step."""

    def __init__(self, first: Signal, at_s: float, second: Signal) -> None:
        self._first, self._at_s, self._second = first, at_s, second
        self._joint = first.integral(at_s) - second.integral(at_s)

    def at(self, time_s: float) -> float:
        """The value of the signal that holds at this moment."""
        return (self._first if time_s < self._at_s else self._second).at(time_s)

    def integral(self, time_s: float) -> float:
        """The first signal's up to the joint, the second's beyond it."""
        if time_s < self._at_s:
            return self._first.integral(time_s)
        return self._joint + self._second.integral(time_s)


class Topped:
    """A signal of 0 to 1; between two moments it also has this share of what is missing to 1."""

    def __init__(self, signal: Signal, share: float, from_s: float, until_s: float) -> None:
        self._signal, self._share = signal, share
        self._from_s, self._until_s = from_s, until_s

    def at(self, time_s: float) -> float:
        """The value of the signal, topped up where it is the time for it."""
        value = self._signal.at(time_s)
        on = self._from_s <= time_s < self._until_s
        return value + self._share * (1.0 - value) if on else value

    def integral(self, time_s: float) -> float:
        """The signal's, and a share of what it has left free until then."""
        integral = self._signal.integral
        to_s = min(max(time_s, self._from_s), self._until_s)
        free_s = (to_s - self._from_s) - (integral(to_s) - integral(self._from_s))
        return integral(time_s) + self._share * free_s


_REST = Flat(0.0)


class Signals(msgspec.Struct, frozen=True):
    """What one GPU does; every signal runs from 0 to 1."""

    busy: Signal
    """A kernel is resident."""
    sm: Signal
    """Share of the SMs at work; power follows it."""
    nvlink: Signal
    """Share of the NVLink rate in use, each way."""
    pcie: Signal
    """Share of the PCIe rate in use, each way."""
    capped: Signal
    """The power limit holds the clocks down."""
    hot: Signal = _REST
    """Heat protection holds the clocks down."""
    power: Signal | None = None
    """Share of the way from idle to loaded power; None: as the SMs. Less where clocks are low."""

    @property
    def drawn(self) -> Signal:
        """What the power follows."""
        return self.sm if self.power is None else self.power

    def of(self, name: str) -> Signal:
        """A signal by its name."""
        signal: Signal = self.drawn if name == "power" else getattr(self, name)
        return signal


class Process(msgspec.Struct, frozen=True):
    """A process on a GPU from `from_s` until `until_s`; shares are of usable memory and of SM time."""

    pid: int
    name: str
    memory_share: float
    sm_share: float = 1.0
    kind: ProcessKind = "compute"
    from_s: float = 0.0
    until_s: float = float("inf")


class Tenant(msgspec.Struct, frozen=True):
    """Who is on a GPU, and what the GPU does for them."""

    signals: Signals
    processes: tuple[Process, ...] = ()

    def present(self, time_s: float) -> tuple[Process, ...]:
        """The processes of this moment."""
        return tuple(p for p in self.processes if p.from_s <= time_s < p.until_s)


class Work(Protocol):
    """Assigns a tenant to each GPU."""

    def tenant(self, gpu: int) -> Tenant:
        """The tenant of a GPU, counted by board."""
        ...


NOTHING = Signals(busy=_REST, sm=_REST, nvlink=_REST, pcie=_REST, capped=_REST)
FREE = Tenant(NOTHING)


class Stage(msgspec.Struct, frozen=True):
    """A part of a cycle of work, with the values of the signals in it."""

    duration_s: float
    busy: float = 0.0
    sm: float = 0.0
    nvlink: float = 0.0
    pcie: float = 0.0
    capped: float = 0.0
    hot: float = 0.0
    power: float | None = None


def cycled(stages: Sequence[Stage]) -> Signals:
    """The signals of stages that repeat for ever."""
    durations = [stage.duration_s for stage in stages]

    def signal(name: str) -> Signal:
        return Cycle(durations, [getattr(stage, name) for stage in stages])

    own_power = any(stage.power is not None for stage in stages)
    drawn = [stage.sm if stage.power is None else stage.power for stage in stages]
    return Signals(
        busy=signal("busy"),
        sm=signal("sm"),
        nvlink=signal("nvlink"),
        pcie=signal("pcie"),
        capped=signal("capped"),
        hot=signal("hot") if any(stage.hot for stage in stages) else _REST,
        power=Cycle(durations, drawn) if own_power else None,
    )


def training(seed: int) -> Signals:
    """A training job: steps of computing and exchanging gradients, stalls, checkpoint, evaluation."""
    chance = random.Random(seed)  # noqa: S311 - a reproducible shape, no secret
    stages: list[Stage] = []
    for step in range(200):
        effort = 0.97 - 0.08 * chance.random()
        stages.append(
            Stage(2.0, busy=1.0, sm=effort, nvlink=0.15, pcie=0.02, capped=1.0 if effort > 0.96 else 0.0)
        )
        stages.append(Stage(0.4, busy=1.0, sm=0.55, nvlink=0.85, pcie=0.02))
        if step % 50 == 49:
            stages.append(Stage(1.0 + chance.random()))  # the data loader is late
    stages.append(Stage(4.0, busy=1.0, sm=0.05, pcie=0.6))  # the checkpoint goes to the host
    stages.append(Stage(20.0))  # and from there to the file system
    for _ in range(30):
        stages.append(Stage(1.5, busy=1.0, sm=0.6, nvlink=0.05, pcie=0.05))
        stages.append(Stage(0.5, pcie=0.05))
    return cycled(stages)


class TrainingNode:
    """One training job on all GPUs but two; the last but one is held and does nothing, the last is free.

    A node of two GPUs has the job and the free one, a node of one GPU the job alone.
    """

    def __init__(self, gpus: int, seed: int) -> None:
        self._gpus = gpus
        self._job = training(seed)
        self._first_pid = 4000 + seed % 1000

    def tenant(self, gpu: int) -> Tenant:
        """The tenant of a GPU."""
        if gpu >= 1 and gpu == self._gpus - 1:
            return FREE
        pid = self._first_pid + gpu
        if gpu >= 1 and gpu == self._gpus - 2:
            return Tenant(NOTHING, (Process(pid, "/usr/bin/python3", memory_share=0.35, sm_share=0.0),))
        return Tenant(self._job, (Process(pid, "/usr/bin/python3", memory_share=0.88),))


class SlicedNode:
    """A training node whose last GPU is shared in time slices, by two services of unlike load."""

    def __init__(self, gpus: int, seed: int) -> None:
        self._node = TrainingNode(gpus, seed)
        self._last = gpus - 1
        pid = 4900 + seed % 1000
        self._services = Tenant(
            Signals(busy=Flat(1.0), sm=Flat(0.6), nvlink=_REST, pcie=Flat(0.05), capped=_REST),
            (
                Process(pid, "/usr/bin/python3", memory_share=0.4, sm_share=0.6),
                Process(pid + 1000, "/usr/bin/python3", memory_share=0.3, sm_share=0.2),
            ),
        )

    def tenant(self, gpu: int) -> Tenant:
        """The tenant of a GPU."""
        return self._services if gpu == self._last else self._node.tenant(gpu)
