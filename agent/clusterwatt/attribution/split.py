"""Shares of one device in an interval: they sum to one, whatever is held and whatever is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from clusterwatt.attribution.entries import NOBODY, Held


class Portion(NamedTuple):
    """What falls to a job: `share` of the seconds, `energy` of the joules. Both sum to one over a split."""

    job_id: str
    account: str
    share: float
    energy: float


def split(held: Sequence[Held], weights: Mapping[str, float]) -> list[Portion]:
    """Part a device among its holders; what they do not hold goes to nobody.

    Time goes by shares. Joules go by `weights`, the time of the jobs' processes on the SMs, where any is
    above zero; else by shares. The power of a device at rest is its holders' too: they keep it from others.
    """
    sum_held = sum(each.share for each in held)
    scale = 1.0 / sum_held if sum_held > 1.0 else 1.0
    taken = sum_held * scale
    weighed = [max(0.0, weights.get(each.job_id, 0.0)) for each in held]
    sum_weights = sum(weighed)
    portions = []
    for each, weight in zip(held, weighed, strict=True):
        share = each.share * scale
        energy = taken * (weight / sum_weights) if sum_weights > 0 else share
        portions.append(Portion(each.job_id, each.account, share, energy))
    if taken < 1.0 - 1e-12:  # n times 1/n is one
        portions.append(Portion(NOBODY, "", 1.0 - taken, 1.0 - taken))
    return portions


def kept(then: Sequence[Held], now: Sequence[Held]) -> tuple[Held, ...]:
    """Who held the same share of a device at both ends of a gap."""
    shares = {each.job_id: each.share for each in now}
    return tuple(each for each in then if shares.get(each.job_id) == each.share)
