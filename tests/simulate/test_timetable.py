"""A timetable's integral is exact, has no steps, and repeats by the week."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.simulate.cluster import Cluster
from clusterwatt.simulate.timetable import WEEK_S, Timetable
from clusterwatt.simulate.work import EPOCH_S, Cycle, Flat

TABLE = Timetable([0.0, 100.0, 5_000.0], [Flat(0.5), Cycle([1.0, 3.0], [1.0, 0.0]), Flat(0.0)], shift_s=77.0)
CLUSTER = Cluster(16, 8, 3)
TIMES = st.floats(0.0, 5 * WEEK_S).map(lambda s: EPOCH_S + s)


@given(TIMES)
def test_each_week_is_the_same(time_s: float) -> None:
    week = TABLE.integral(time_s + WEEK_S) - TABLE.integral(time_s)
    assert week == pytest.approx(50.0 + 4_900.0 / 4, abs=0.01)


@given(TIMES, st.floats(0.0, 20_000.0))
def test_the_integral_never_falls_and_never_jumps(time_s: float, later_s: float) -> None:
    gained = TABLE.integral(time_s + later_s) - TABLE.integral(time_s)
    assert -1e-3 <= gained <= later_s + 1e-3


def test_values_and_integral_agree_at_a_joint() -> None:
    start_s = EPOCH_S + WEEK_S - 77.0
    assert TABLE.at(start_s + 99.0) == 0.5
    assert TABLE.integral(start_s + 100.0) - TABLE.integral(start_s) == pytest.approx(50.0)
    assert TABLE.integral(start_s + 104.0) - TABLE.integral(start_s + 100.0) == pytest.approx(1.0)
    assert TABLE.integral(start_s + 9_000.0) - TABLE.integral(start_s + 6_000.0) == 0.0


@given(st.floats(1.6e9, 1.9e9))
def test_jobs_lie_around_their_moment_and_have_names_of_their_own(time_s: float) -> None:
    jobs = [job for lane in CLUSTER.lanes if (job := lane.job(time_s)) is not None]
    assert all(job.start_s - 0.01 <= time_s < job.end_s + 0.01 for job in jobs)
    assert len({job.job_id for job in jobs}) == len(jobs)


def test_a_small_cluster_has_only_the_lanes_of_its_nodes() -> None:
    assert [lane.places for lane in Cluster(1, 4, 1).lanes] == [((0, (0, 1, 2, 3)),)]
    for nodes in (1, 5, 9, 14, 17):
        for gpus in (1, 2, 3, 8):
            cluster = Cluster(nodes, gpus, 1)
            held = [
                (node, board) for lane in cluster.lanes for node, boards in lane.places for board in boards
            ]
            assert len(held) == len(set(held)), (nodes, gpus)
            assert all(node < nodes and board < gpus for node, board in held)
