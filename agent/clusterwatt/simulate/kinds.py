"""The kinds of jobs of a simulated cluster, and which GPUs of a block of nodes each has.

A run over four nodes, one that hangs in a collective at its end, one with a straggler, a sweep of small jobs,
work at night, a job set of two pods, services, notebooks, a run that starves for data, a free node. The first
block also has a job each minute, so that something always begins and ends.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from clusterwatt.simulate import plans
from clusterwatt.simulate.plans import Shift

Weeks = Callable[[random.Random], Iterator[Shift]]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs of a lane have in common. `memory`: share of a GPU's memory that each process has.

    `tokens`: of a step, for each GPU; 0: the run logs nothing. `controller`: kind of the Kubernetes owner.
    """

    name: str
    scheduler: str
    kind: str
    user: str
    account: str
    weeks: Weeks
    memory: float = 0.85
    tokens: float = 0.0
    parameters: float = 0.0
    array: bool = False
    exempt: bool = False
    controller: str = ""


def _in_turn(course: plans.Course, hours: tuple[float, float], gap: tuple[float, float]) -> Weeks:
    """One job after another. `hours`: how long each takes; `gap`: between two, both from least to most."""
    return lambda chance: plans.one_after_another(course, chance, hours, gap)


def _all_week(chance: random.Random) -> Iterator[Shift]:
    return plans.all_week(plans.service, chance)


def _by_night(chance: random.Random) -> Iterator[Shift]:
    return plans.by_night(plans.sweep, chance)


_slurm = partial(Kind, scheduler="slurm", kind="batch")
_pods = partial(Kind, scheduler="kubernetes")

PRETRAIN = _slurm(
    name="pretrain-70b",
    user="ada",
    account="language",
    weeks=_in_turn(plans.pretraining, (20, 40), (0.1, 0.4)),
    tokens=2_048.0,
    parameters=7e10,
    memory=0.9,
)
FINETUNE = _slurm(
    name="finetune-13b",
    user="lin",
    account="language",
    weeks=_in_turn(plans.hanging, (5, 9), (0.3, 1)),
    tokens=12_288.0,
    parameters=1.3e10,
)
DIFFUSION = _slurm(
    name="diffusion-xl",
    user="mira",
    account="vision",
    weeks=_in_turn(plans.straggling, (8, 14), (0.3, 1)),
    tokens=65_536.0,
    parameters=2.6e9,
)
SWEEP = _slurm(
    name="sweep-lr",
    user="kofi",
    account="research",
    weeks=_in_turn(plans.sweep, (0.4, 1.5), (0.02, 0.3)),
    array=True,
    memory=0.5,
)
NIGHTLY = _slurm(name="nightly-eval", user="ci", account="platform", weeks=_by_night, exempt=True)
SMOKE = _slurm(
    name="smoke-test",
    user="ci",
    account="platform",
    weeks=_in_turn(plans.smoke, (0.014, 0.022), (0.003, 0.006)),
    memory=0.2,
    exempt=True,
)
JOBSET = _pods(
    name="rl-agents",
    kind="batch",
    controller="JobSet",
    user="noor",
    account="research",
    weeks=_in_turn(plans.pretraining, (10, 20), (0.2, 1)),
    tokens=16_384.0,
    parameters=8e9,
)
STARVED = _pods(
    name="video-encode",
    kind="batch",
    controller="Job",
    user="tomo",
    account="vision",
    weeks=_in_turn(plans.starving, (6, 12), (0.2, 0.8)),
    tokens=131_072.0,
    parameters=4e8,
    memory=0.6,
)
_service = partial(
    _pods, kind="service", controller="Deployment", user="", account="serving", weeks=_all_week, memory=0.7
)
CHAT, SEARCH = _service(name="chat"), _service(name="search")
_notebook = partial(_pods, kind="interactive", controller="Notebook")
LEFT_NOTEBOOK = _notebook(
    name="grace-notebook",
    user="grace",
    account="research",
    weeks=_in_turn(plans.idle_notebook, (40, 60), (2, 10)),
    memory=0.35,
)
NOTEBOOK = _notebook(
    name="otto-notebook",
    user="otto",
    account="vision",
    weeks=_in_turn(plans.notebook, (6, 11), (2, 12)),
    memory=0.3,
)

Wanted = tuple[Kind, list[tuple[int, tuple[int, ...]]], int]


def block(gpus: int) -> Iterator[Wanted]:
    """Kind, boards by node of the block, and which board of the first node may hold up the others."""
    whole = tuple(range(gpus))
    half = gpus // 2
    yield PRETRAIN, [(node, whole) for node in range(4)], 0
    yield FINETUNE, [(4, whole), (5, whole)], 0
    yield DIFFUSION, [(6, whole), (7, whole)], 3
    for board in range(max(1, gpus - 1)):
        yield SWEEP, [(8, (board,))], 0
    yield NIGHTLY, [(9, whole[:half])], 0
    yield JOBSET, [(10, whole), (11, whole)], 0
    yield CHAT, [(12, whole[:half])], 0
    yield SEARCH, [(12, whole[half : gpus - 1]), (13, whole[max(half, 2) :])], 0
    yield LEFT_NOTEBOOK, [(13, whole[:1])], 0
    yield NOTEBOOK, [(13, whole[1:2])], 0
    yield STARVED, [(14, whole)], 0


def first_block(gpus: int) -> Iterator[Wanted]:
    """What the first block has besides."""
    if gpus > 1:
        yield SMOKE, [(9, (gpus - 1,))], 0
