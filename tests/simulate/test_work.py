"""Signals have exact integrals, GPUs of a job move together, nothing depends on who asks when."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterwatt.simulate.work import (
    EPOCH_S,
    FREE,
    Cycle,
    Flat,
    Process,
    Signal,
    Tenant,
    Then,
    Topped,
    TrainingNode,
    Weighted,
    mean,
    training,
)

NOW_S = 1_700_000_000.0


def by_midpoints(signal: Signal, from_s: float, to_s: float, step_s: float = 0.01) -> float:
    """The integral the slow way."""
    steps = round((to_s - from_s) / step_s)
    return sum(signal.at(from_s + (i + 0.5) * step_s) for i in range(steps)) * step_s


JOB = training(7)


@pytest.mark.parametrize("name", ["busy", "sm", "nvlink", "pcie", "capped"])
def test_the_integral_of_a_job_is_the_area_below_it(name: str) -> None:
    signal = getattr(JOB, name)
    area = by_midpoints(signal, NOW_S, NOW_S + 700.0)
    assert signal.integral(NOW_S + 700.0) - signal.integral(NOW_S) == pytest.approx(area, abs=0.5)
    assert area > 0


@settings(max_examples=200, deadline=None)
@given(st.floats(0, 1e6), st.floats(0, 5000), st.floats(0, 5000))
def test_integrals_never_step_back_and_add_up(start: float, first: float, second: float) -> None:
    a, b, c = NOW_S + start, NOW_S + start + first, NOW_S + start + first + second
    area = JOB.sm.integral
    assert area(b) - area(a) >= 0
    assert area(c) - area(a) == pytest.approx((area(b) - area(a)) + (area(c) - area(b)), abs=1e-6)
    assert area(b) - area(a) <= first + 1e-6, "a share never exceeds one"


@pytest.mark.parametrize(
    ("hot", "held_s"),
    [(Flat(0.0), 50.0), (Flat(1.0), 200.0), (Cycle([3.0, 1.0], [1.0, 0.0]), 150.0 + 0.5 * 25.0)],
)
def test_a_share_beside_a_signal_takes_only_what_the_signal_leaves(hot: Signal, held_s: float) -> None:
    topped = Topped(hot, 0.5, EPOCH_S + 50.0, EPOCH_S + 150.0)
    assert topped.integral(EPOCH_S + 200.0) - topped.integral(EPOCH_S) == pytest.approx(held_s)
    area = by_midpoints(topped, EPOCH_S, EPOCH_S + 200.0)
    assert area == pytest.approx(held_s, abs=0.1)


def test_a_cycle_repeats() -> None:
    cycle = Cycle([2.0, 1.0], [1.0, 0.0])
    assert [cycle.at(EPOCH_S + t) for t in (0, 1.9, 2, 2.9, 3, 4.9)] == [1, 1, 0, 0, 1, 1]
    assert cycle.integral(EPOCH_S + 7) == 5.0
    assert cycle.at(EPOCH_S - 0.5) == 0.0


def test_signals_join_without_a_step() -> None:
    joined = Then(Flat(1.0), NOW_S, Flat(0.25))
    assert (joined.at(NOW_S - 1), joined.at(NOW_S)) == (1.0, 0.25)
    assert joined.integral(NOW_S + 4) - joined.integral(NOW_S - 2) == pytest.approx(3.0)
    twice = Then(joined, NOW_S + 4, Flat(0.0))
    assert twice.integral(NOW_S + 9) - twice.integral(NOW_S - 2) == pytest.approx(3.0)


def test_parts_of_a_gpu_add_up() -> None:
    parts = Weighted([(0.5, Flat(1.0)), (0.25, Flat(0.4))])
    assert parts.at(NOW_S) == pytest.approx(0.6)
    assert mean(parts, NOW_S, NOW_S + 10) == pytest.approx(0.6)


def test_a_job_has_steps_and_dips() -> None:
    period = [JOB.sm.at(NOW_S + t) for t in range(700)]
    assert max(period) > 0.9
    assert any(0.5 < value < 0.65 for value in period), "steps in which gradients are exchanged"
    idle = longest = 0
    for value in period:
        idle = idle + 1 if value == 0 else 0
        longest = max(longest, idle)
    assert longest >= 15, "the checkpoint"


def test_the_gpus_of_a_job_move_together() -> None:
    node = TrainingNode(8, 3)
    jobs = [node.tenant(gpu).signals.sm for gpu in range(6)]
    for t in range(100):
        assert len({job.at(NOW_S + t) for job in jobs}) == 1


def test_a_node_has_a_job_a_holder_and_a_free_gpu() -> None:
    node = TrainingNode(8, 3)
    holder = node.tenant(6)
    assert holder.processes[0].memory_share > 0
    assert mean(holder.signals.busy, NOW_S, NOW_S + 1000) == 0
    assert node.tenant(7) is FREE
    pids = [process.pid for gpu in range(8) for process in node.tenant(gpu).processes]
    assert len(set(pids)) == 7


def test_small_nodes_have_at_least_the_job() -> None:
    assert TrainingNode(1, 3).tenant(0).processes
    assert TrainingNode(2, 3).tenant(0).processes
    assert TrainingNode(2, 3).tenant(1) is FREE


def test_the_seed_decides_everything() -> None:
    same, other = training(7), training(8)
    times = [NOW_S + 0.37 * i for i in range(2000)]
    assert [JOB.sm.at(t) for t in times] == [same.sm.at(t) for t in times]
    assert [JOB.sm.at(t) for t in times] != [other.sm.at(t) for t in times]


def test_processes_come_and_go() -> None:
    tenant = Tenant(JOB, (Process(1, "a", 0.1, until_s=NOW_S), Process(2, "b", 0.1, from_s=NOW_S)))
    assert [p.pid for p in tenant.present(NOW_S - 1)] == [1]
    assert [p.pid for p in tenant.present(NOW_S)] == [2]
