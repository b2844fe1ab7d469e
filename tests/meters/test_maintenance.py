"""A node is in maintenance when anybody says so, and that nobody speaks is no word."""

from __future__ import annotations

import pytest

from clusterwatt.meters.maintenance import of_node
from clusterwatt.readings.host import NodeMaintenance
from clusterwatt.readings.work import SchedulerNode

ON, OFF = NodeMaintenance(maintenance=1.0), NodeMaintenance(maintenance=0.0)
DRAINED = SchedulerNode("slurm", maintenance=True)
CORDONED = SchedulerNode("kubernetes", maintenance=True)
IN_USE = SchedulerNode("kubernetes", maintenance=False)


@pytest.mark.parametrize(
    ("flags", "said", "told"),
    [
        ([OFF], [], [OFF]),
        ([ON], [], [ON]),
        ([OFF], [DRAINED], [ON]),
        ([OFF], [IN_USE], [OFF]),
        ([ON], [IN_USE], [ON]),  # people on the node outrank a scheduler that has not heard of it
        ([OFF], [IN_USE, DRAINED], [ON]),
        ([], [CORDONED], [ON]),  # the flag cannot be read
        ([], [], []),
    ],
)
def test_who_says_that_the_node_is_in_maintenance(
    flags: list[NodeMaintenance], said: list[SchedulerNode], told: list[NodeMaintenance]
) -> None:
    assert list(of_node(flags, said)) == told
