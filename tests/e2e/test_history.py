"""The past of a simulated cluster in a real Prometheus: its values, and the rules on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e import histories
from tests.e2e.histories import STEP_S, Past, Programs

pytestmark = pytest.mark.e2e

# Always raised, so that somebody notices when no alert comes any more.
ALWAYS = {"Watchdog"}


@pytest.fixture(scope="module")
def programs(promtool: Path, prometheus_program: Path) -> Programs:
    return Programs(promtool, prometheus_program)


@pytest.fixture(scope="module")
def calm(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Past:
    """Three hours of sixteen nodes on which no job goes wrong."""
    past = histories.written(tmp_path_factory.mktemp("calm"), programs, 16, 3, healthy=True)
    histories.record(past, programs, past.span.from_s)
    return past


def test_a_real_prometheus_answers_from_the_blocks(programs: Programs, calm: Past) -> None:
    at_s = calm.span.until_s - STEP_S
    with histories.serving(calm, programs) as store:
        (nodes,) = histories.ask(store, "query", query='sum(up{job="clusterwatt"})', time=at_s)
        (gpus,) = histories.ask(store, "query", query="sum(state:clusterwatt_gpus:rate5m)", time=at_s)
        (watts,) = histories.ask(store, "query", query="cluster:clusterwatt_power_watts:rate5m", time=at_s)
    assert float(nodes["value"][1]) == 16
    assert float(gpus["value"][1]) == pytest.approx(128, rel=0.01)
    assert 16 * 1_000 < float(watts["value"][1]) < 16 * 8_000


def test_a_cluster_without_faults_raises_no_alert(programs: Programs, calm: Past) -> None:
    assert unwanted(programs, calm) == []


@pytest.mark.scale
def test_a_cluster_without_faults_raises_no_alert_in_thirty_hours(programs: Programs, tmp_path: Path) -> None:
    past = histories.written(tmp_path, programs, 16, 30, healthy=True)
    histories.record(past, programs, past.span.from_s)
    assert unwanted(programs, past) == []


def unwanted(programs: Programs, past: Past) -> list[tuple[str, Mapping[str, str]]]:
    # The first minutes lack what rates are made of, and recorded series what they stand on.
    from_s = past.span.from_s + 600
    with histories.serving(past, programs) as store:
        return [
            (rule.name, dict(labels))
            for rule in histories.shipped()
            if rule.is_alert and rule.name not in ALWAYS
            for labels in histories.raised(store, rule, past.span, from_s)
        ]


def test_what_is_wrong_with_a_job_is_found(programs: Programs, tmp_path: Path) -> None:
    past = histories.written(tmp_path, programs, 16, 1, healthy=False)
    histories.record(past, programs, past.span.from_s)
    found = {name for name, _ in unwanted(programs, past)}
    assert "GpuUtilizationSuspect" in found
