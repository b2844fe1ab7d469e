"""What the lanes of a cluster did from one moment to another: jobs, acts, and the states of their GPUs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from clusterwatt.attribution.idle import ACTIVE, FREE, IDLE
from clusterwatt.config.model import Meters
from clusterwatt.simulate import acts
from clusterwatt.simulate.acts import Act
from clusterwatt.simulate.cluster import Change, Cluster, JobRun, Lane, latched
from clusterwatt.simulate.work import EPOCH_S, NOTHING, Signals, mean

HOUR_S = 3_600.0
LONG_S = 7_200.0  # many cycles of any act
HEALS_AFTER_S = 900.0  # of a job, when it has left its start behind
IDLE_BELOW = Meters().idle_below_ratio
IDLE_AFTER_S = Meters().idle_window_seconds

# What a job of a healthy cluster does in place of what is wrong with it in every simulated cluster.
HEALTHY = {
    "finetune-13b": acts.TRAIN,
    "diffusion-xl": acts.TRAIN,
    "video-encode": acts.TRAIN,
    "grace-notebook": acts.INTERACTIVE,
    "otto-notebook": acts.INTERACTIVE,
}


class Spell(NamedTuple):
    """A time in which nothing changes; both None: between jobs."""

    from_s: float
    until_s: float
    job: JobRun | None
    act: Act | None


class Stretch(msgspec.Struct, frozen=True):
    """A time in which a GPU has one state, one job and one price of electricity, for a kWh."""

    from_s: float
    until_s: float
    job: JobRun | None
    state: str
    price: float


def heal(cluster: Cluster, from_s: float, until_s: float) -> None:
    """Take away what is wrong in every simulated cluster: hang, straggler, hunger, idle notebook, latch."""
    for lane in cluster.lanes:
        act = HEALTHY.get(lane.kind.name)
        if act is not None:
            jobs = {spell.job: None for spell in spells(lane, from_s, until_s) if spell.job is not None}
            lane.changes += tuple(Change(job.start_s + HEALS_AFTER_S, job.end_s, act) for job in jobs)
    rests = Change(from_s - LONG_S, math.inf, Act("rests", NOTHING))
    for node in range(cluster.nodes):
        for board in range(cluster.gpus):
            if latched(node, board, cluster.gpus):
                cluster.without_job.setdefault((node, board), []).append(rests)


def spells(lane: Lane, from_s: float, until_s: float) -> Iterator[Spell]:
    """All that a lane does within a time, in order."""
    breaks = {from_s, until_s}
    moment_s = until_s
    while moment_s > from_s:
        turns = [start_s for start_s, _ in lane.turns_before(moment_s)]
        breaks.update(turns)
        moment_s = turns[-1] - 1e-3  # the last one of the week before
    breaks.update(edge_s for change in lane.changes for edge_s in (change.from_s, change.until_s))
    # The end of a job is said to the millisecond, and the turn behind it begins at it.
    edges = sorted({round(edge_s, 3) for edge_s in breaks if from_s <= edge_s <= until_s})
    for start_s, end_s in itertools.pairwise(edges):
        middle_s = (start_s + end_s) / 2
        yield Spell(start_s, end_s, lane.job(middle_s), lane.act(middle_s))


def stretches(
    parts: Sequence[Spell], price: Callable[[float], float], *, slow: bool = False
) -> list[Stretch]:
    """The states of a lane's GPUs by the agent's rule: idle is who does nothing for a whole window."""
    found: list[Stretch] = []
    quiet_since_s, holder = math.inf, None
    for spell in parts:
        if spell.job is None:
            found += _priced(spell.from_s, spell.until_s, None, FREE, price)
            quiet_since_s, holder = math.inf, None
            continue
        if not _quiet(spell.act, slow):
            quiet_since_s = math.inf
        elif math.isinf(quiet_since_s) or holder != spell.job:
            quiet_since_s = spell.from_s
        holder = spell.job
        idle_s = min(max(spell.from_s, quiet_since_s + IDLE_AFTER_S), spell.until_s)
        found += _priced(spell.from_s, idle_s, spell.job, ACTIVE, price)
        found += _priced(idle_s, spell.until_s, spell.job, IDLE, price)
    return found


def _priced(
    from_s: float, until_s: float, job: JobRun | None, state: str, price: Callable[[float], float]
) -> Iterator[Stretch]:
    """Cut at full hours: prices change there."""
    while from_s < until_s:
        end_s = min(until_s, (math.floor(from_s / HOUR_S) + 1) * HOUR_S)
        yield Stretch(from_s, end_s, job, state, price((from_s + end_s) / 2))
        from_s = end_s


def _quiet(act: Act | None, slow: bool) -> bool:
    signals: Signals = NOTHING if act is None else act.slow if slow and act.slow is not None else act.signals
    return mean(signals.sm, EPOCH_S, EPOCH_S + LONG_S) < IDLE_BELOW
