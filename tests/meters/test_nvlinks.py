"""A bridge that fails while no agent runs is missed by the next."""

from __future__ import annotations

from clusterwatt.learnt import Learnt
from clusterwatt.meters.nvlinks import remembered
from clusterwatt.readings.gpu_links import GpuNvlinks
from tests.clocks import FakeClock


def test_links_that_went_down_stay_expected_when_the_agent_is_restarted() -> None:
    learnt = Learnt(None, FakeClock())
    said = [GpuNvlinks("0", "GPU-a", 4.0, 4.0), GpuNvlinks("1", "GPU-b", 0.0, 0.0)]
    assert list(remembered(said, learnt)) == said
    after = [GpuNvlinks("0", "GPU-b", 0.0, 0.0), GpuNvlinks("1", "GPU-a", 2.0, 2.0)]
    assert list(remembered(after, learnt)) == [after[0], GpuNvlinks("1", "GPU-a", 2.0, 4.0)]
