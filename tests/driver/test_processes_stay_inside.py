"""Processes on GPUs reach attribution, and neither a page nor what is shown to others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusterwatt.expose.history import History
from clusterwatt.expose.live.node import as_json, node_view
from clusterwatt.expose.render import Renderer
from clusterwatt.inventory import CATALOG
from clusterwatt.readings.gpu import GpuProcess
from clusterwatt.simulate.gpu import ProcessEntry
from clusterwatt.simulate.nvml import uninstall
from tests.driver.node import Node

PID, USED = 3_133_731, 1 << 30


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node(gpus=1)
    node.library.gpu(0).listed = [ProcessEntry(PID, USED, name="/home/ada/secret-project")]
    yield node.tick(3)
    node.host.close()
    uninstall()


def test_a_process_comes_through_the_pipe_as_it_was_listed(node: Node) -> None:
    found = node.of(GpuProcess)
    assert (found.gpu, found.pid, found.type, found.used_bytes) == ("0", PID, "compute", float(USED))
    assert 0.0 <= node.clock.monotonic_s() - found.listed_s <= 10.0


def test_neither_page_tells_of_a_process(node: Node) -> None:
    snapshot = node.snapshot
    renderer = Renderer(CATALOG, "full", {}, 20_000)
    shown = renderer.render(snapshot, openmetrics=False).body + as_json(
        node_view("node", snapshot, History().curves())
    )
    assert b"gpu_processes" in shown
    assert str(PID).encode() not in shown
    assert b"secret-project" not in shown


def test_g02_a_process_that_has_ended_leaves_the_snapshot(node: Node) -> None:
    node.library.gpu(0).listed = []
    node.tick(11)
    assert node.of(GpuProcess) is None
