"""Portions of a device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.attribution.entries import Held
from clusterwatt.attribution.split import kept, split


def holder(job_id: str, share: float) -> Held:
    return Held(job_id, "", share)


def test_what_is_not_held_is_nobodys() -> None:
    assert [(p.job_id, p.share, p.energy) for p in split([], {})] == [("", 1.0, 1.0)]
    portions = split([holder("a", 0.25)], {"a": 9.0})
    assert [(p.job_id, p.share, p.energy) for p in portions] == [("a", 0.25, 0.25), ("", 0.75, 0.75)]


def test_a_holder_that_rests_pays_no_joules_of_who_works_and_holds_its_time() -> None:
    idle, busy = split([holder("a", 0.5), holder("b", 0.5)], {"b": 0.8})
    assert (idle.share, idle.energy) == (0.5, 0.0)
    assert (busy.share, busy.energy) == (0.5, 1.0)


def test_three_thirds_leave_nothing_to_nobody() -> None:
    assert [p.job_id for p in split([holder(j, 1 / 3) for j in "abc"], {})] == ["a", "b", "c"]


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1e6)), max_size=64),
    st.floats(0.0, 1e9),
)
def test_portions_sum_to_one_whatever_is_claimed(holders: list[tuple[float, float]], joules: float) -> None:
    held = [holder(f"slurm/{number}", share) for number, (share, _) in enumerate(holders)]
    weights = {f"slurm/{number}": weight for number, (_, weight) in enumerate(holders)}
    portions = split(held, weights)
    assert sum(p.share for p in portions) == pytest.approx(1.0, rel=1e-9)
    assert sum(p.energy * joules for p in portions) == pytest.approx(joules, rel=1e-9)
    assert all(p.share >= 0 and p.energy >= 0 for p in portions)


def test_only_the_same_share_at_both_ends_is_kept() -> None:
    then = [holder("a", 0.5), holder("b", 0.25), holder("c", 0.25)]
    assert kept(then, [holder("a", 0.5), holder("b", 0.5)]) == (then[0],)
