"""Of which node a log line is."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterwatt import log
from clusterwatt.fleet import scenario
from clusterwatt.fleet.naming import lines_of, name_nodes
from clusterwatt.simulate.cluster import Cluster
from tests.fleet.fleets import Ticking, looped, settings


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    """What goes to standard error."""
    root, stream = logging.getLogger(), io.StringIO()
    before, level = list(root.handlers), root.level
    root.handlers.clear()
    log.configure("info", "logfmt", stream)
    name_nodes()
    yield stream
    logging.captureWarnings(False)
    root.handlers[:] = before
    root.setLevel(level)


def test_lines_in_between_are_of_no_node(said: io.StringIO) -> None:
    logger = logging.getLogger("clusterwatt.some")
    logger.info("first")
    with lines_of("node-0002"):
        logger.info("second")
    logger.info("third")
    nodes = ["node=node-0002" in line for line in said.getvalue().splitlines()]
    assert nodes == [False, True, False]


@looped
async def test_the_node_that_fails_is_named(tmp_path: Path, said: io.StringIO) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("faults:\n- {fault: collector_fails, node: node-0002, item: hwmon, at: 0s}\n")
    played = scenario.load(str(faults), Cluster(3, 8, 1), ())
    ticking = Ticking(settings(3), tmp_path, played)
    await ticking.tick(3)
    await ticking.close()
    told = [line for line in said.getvalue().splitlines() if "hwmon" in line]
    assert told
    assert all(line.endswith(" node=node-0002") for line in told)
