"""How long all rules take over many nodes, whose past is backfilled, in a real Prometheus."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.fleet.history.backfill import NODES_A_FILE
from tests.e2e import histories
from tests.e2e.histories import STEP_S, Programs

pytestmark = pytest.mark.e2e

RECORDED_S = 3_600  # before a timed evaluation: what most windows look back on, at most
CORES = 2
TRIES = 5  # the machine does other things too


@pytest.fixture(scope="module")
def programs(promtool: Path, prometheus_program: Path) -> Programs:
    return Programs(promtool, prometheus_program)


def timed(programs: Programs, folder: Path, nodes: int, hours: int) -> tuple[float, float]:
    """The best of some evaluations of all rules: seconds of the wall, and of the CPUs of Prometheus."""
    past = histories.written(folder, programs, nodes, hours, healthy=False)
    histories.record(past, programs, past.span.until_s - RECORDED_S)
    at_s = past.span.until_s - STEP_S
    with histories.serving(past, programs) as store:
        if nodes > NODES_A_FILE:
            histories.merge(store, past)
        rules = histories.shipped()
        histories.evaluation_s(store, rules, at_s)  # files come into memory
        times = [histories.evaluation_s(store, rules, at_s) for _ in range(TRIES)]
    wall_s, cpu_s = min(wall_s for wall_s, _ in times), min(cpu_s for _, cpu_s in times)
    print(
        f"{nodes} nodes, {hours} h: {past.samples} samples, {past.samples / past.written_s:.0f} a second as "
        f"text, {past.samples / past.blocks_s:.0f} as blocks; rules in {wall_s:.2f} s, {cpu_s:.2f} s of CPUs"
    )
    return wall_s, cpu_s


def test_the_time_of_an_evaluation_grows_with_the_nodes_and_no_faster(
    programs: Programs, tmp_path: Path
) -> None:
    # CPU seconds: those of the wall tell of what else the machine does.
    half, whole = (timed(programs, tmp_path / str(nodes), nodes, 1)[1] for nodes in (50, 100))
    assert whole < 3.0 * half  # twice would be linear
    assert whole < 2.0  # a tenth of what two cores have in five seconds is one; other work slows ours


@pytest.mark.scale
def test_all_rules_of_a_thousand_nodes_are_evaluated_in_five_seconds_on_two_cores(
    programs: Programs, tmp_path: Path
) -> None:
    # It wants two idle cores: docs/SCALE.md says what was measured beside other work.
    wall_s, cpu_s = timed(programs, tmp_path, 1_000, 2)
    assert wall_s < 5.0
    assert cpu_s < 5.0 * CORES  # where there are more
