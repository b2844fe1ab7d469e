"""A tick's work grows with the jobs and not with their square, and stays far below a second."""

from __future__ import annotations

from benchmarks.attribution import Bench


def fastest(jobs: int) -> float:
    """Of some ticks: what else the machine does only adds to them."""
    bench = Bench(jobs)
    return min(bench.tick() for _ in range(15))


def test_a_tick_costs_in_proportion_to_the_jobs() -> None:
    few, many = fastest(64), fastest(512)
    assert many < 8 * few * 2.5
    assert few < 0.05, "ten times what the design allows, for a machine that does other things too"
