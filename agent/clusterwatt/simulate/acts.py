"""What a job does for a while, on each of its GPUs and around them, and how fast its steps go meanwhile.

A training step computes and then exchanges gradients: NVLink within the node, the fabric between nodes, both
in the same part of the step. A checkpoint goes from the GPUs over PCIe to the host and from there over NFS.
"""

from __future__ import annotations

import random

import msgspec

from clusterwatt.simulate.work import NOTHING, Cycle, Flat, Signal, Signals, Stage, cycled

_COMPUTE_S, _EXCHANGE_S = 2.0, 0.4
_STEPS = 50  # of a cycle, after which the data loader is late once
GIB = float(1 << 30)


class Act(msgspec.Struct, frozen=True):
    """A way to work. Rates are for each GPU.

    `phase`: of a training run, empty while it does not log. `slow`: what a GPU does that holds up its peers,
    where that differs. `pace`: steps a second. `fabric`: share of a rail in use each way, between nodes.
    `cpus`: in use. `read`, `written`: bytes a second of the shared file system.
    """

    name: str
    signals: Signals = NOTHING
    slow: Signals | None = None
    phase: str = ""
    pace: float = 0.0
    fabric: Signal = Flat(0.0)
    cpus: float = 0.05
    read: float = 0.0
    written: float = 0.0


def _steps(name: str, effort: float, phase: str, seed: int, *, wait_s: float = 0.0) -> Act:
    """Synchronous steps. `wait_s`: how long all wait in each for one GPU that heat slows."""
    chance = random.Random(seed)  # noqa: S311 - a reproducible shape, no secret
    peers: list[Stage] = []
    late: list[Stage] = []
    fabric: list[float] = []
    for _ in range(_STEPS):
        work = effort - 0.06 * chance.random()
        top = 1.0 if work > 0.95 else 0.0
        exchange = Stage(_EXCHANGE_S, busy=1.0, sm=0.5 * effort, nvlink=0.85, pcie=0.02)
        peers.append(Stage(_COMPUTE_S, busy=1.0, sm=work, nvlink=0.15, pcie=0.03, capped=top))
        fabric.append(0.0)
        if wait_s:  # a kernel of the collective spins on a few SMs
            peers.append(Stage(wait_s, busy=1.0, sm=0.06, nvlink=0.0, pcie=0.01))
            fabric.append(0.0)
        peers.append(exchange)
        fabric.append(0.8)
        slowed = Stage(_COMPUTE_S + wait_s, busy=1.0, sm=work, nvlink=0.1, pcie=0.02, hot=1.0, power=0.55)
        late += [slowed, msgspec.structs.replace(exchange, hot=1.0, power=0.3)]
    data_s = 0.6 + chance.random()
    pause = Stage(data_s)
    durations_s = [stage.duration_s for stage in [*peers, pause]]
    return Act(
        name=name,
        signals=cycled([*peers, pause]),
        slow=cycled([*late, pause]) if wait_s else None,
        phase=phase,
        pace=_STEPS / sum(durations_s),
        fabric=Cycle(durations_s, [*fabric, 0.0]),
        cpus=3.0,
        read=0.03 * GIB,
    )


def _pulses(work_s: float, rest_s: float, effort: float) -> Signals:
    return cycled([Stage(work_s, busy=1.0, sm=effort, pcie=0.05), Stage(rest_s)])


def serving(load: float) -> Act:
    """Answers to requests, at this share of what the GPU can do."""
    return Act("serving", _pulses(0.5 * load, 0.5 * (1.0 - load), 0.65), cpus=0.5 + 2.0 * load)


HELD = Act("held")
STARTUP = Act("startup", cpus=1.0, read=0.2 * GIB)
WARMUP = _steps("warmup", 0.86, "warmup", 1)
TRAIN = _steps("train", 0.97, "train", 2)
STRAGGLER = _steps("straggler", 0.97, "train", 3, wait_s=0.9)
EVALUATION = Act(
    "eval",
    cycled([Stage(1.5, busy=1.0, sm=0.6, nvlink=0.05, pcie=0.05), Stage(0.5, pcie=0.05)]),
    phase="eval",
    cpus=2.0,
    read=0.1 * GIB,
)
CHECKPOINT = Act(
    "checkpoint",
    cycled([Stage(4.0, busy=1.0, sm=0.05, pcie=0.6), Stage(36.0)]),
    phase="checkpoint",
    cpus=4.0,
    written=0.5 * GIB,
)
STALL = Act("stall", phase="train", cpus=0.3, read=0.001 * GIB)
# All ranks wait in a collective that one has left: its kernel is resident and does next to nothing.
HANG = Act("hang", cycled([Stage(1.0, busy=1.0, sm=0.08, power=0.1)]), phase="train", cpus=1.1)
# A step, and then a long wait for data.
STARVED = Act("starved", _pulses(1.0, 5.0, 0.8), phase="train", pace=1 / 6.0, cpus=6.0, read=0.05 * GIB)
SMALL = Act("small", _pulses(1.6, 0.4, 0.75), phase="train", pace=0.5, cpus=2.0, read=0.01 * GIB)
INTERACTIVE = Act("interactive", _pulses(2.0, 6.0, 0.5), cpus=1.0)
SPINNING = Act("spinning", cycled([Stage(1.0, busy=1.0, sm=0.7, pcie=0.02)]), cpus=1.0)
# Utilization that the driver has not let go of: no kernel runs, power is at its floor.
LATCHED = Signals(busy=Flat(1.0), sm=Flat(0.0), nvlink=Flat(0.0), pcie=Flat(0.0), capped=Flat(0.0))
LATCHED_FREE = Act("latched", LATCHED)
