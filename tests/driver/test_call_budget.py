"""What the driver is asked, counted: at most twelve calls for each GPU and second, all in all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusterwatt.config.model import Simulate
from clusterwatt.driver.frames import HostSettings
from clusterwatt.driver.host import Host
from clusterwatt.nvml.session import Session
from clusterwatt.simulate.gpu import ProcessEntry
from clusterwatt.simulate.nvml import SimulatedLibrary, install, uninstall
from tests.clocks import FakeClock

GPUS = 4
MOST = 12.0  # calls for each GPU and second, over any ten seconds
WINDOW_S = 10
# At first every quantity is asked for apart, to learn what the card offers.
SETTLED_S = 20
# A wait is not a question; it lasts as long as nothing happens, and one thread makes it for all GPUs.
WAITS = "nvmlEventSetWait_v2"


@pytest.fixture(autouse=True)
def _clean_up() -> Iterator[None]:
    yield
    uninstall()


CARDS = ["a100", "h100", "b200", "gb200", "l40s", "rtx4080"]


@pytest.mark.parametrize("card", CARDS)
def test_at_most_twelve_calls_for_each_gpu_and_second(card: str) -> None:
    hold_to_the_budget(card)


@pytest.mark.parametrize("card", CARDS)
def test_at_most_twelve_calls_also_where_processes_share_the_gpus(card: str) -> None:
    hold_to_the_budget(
        card, ProcessEntry(501, 1 << 30, sm_share=0.6), ProcessEntry(502, 1 << 30, sm_share=0.2)
    )


def hold_to_the_budget(card: str, *listed: ProcessEntry) -> None:
    clock = FakeClock()
    library = SimulatedLibrary(card, GPUS, 1, clock.wall_s)
    for gpu in library.gpus:
        gpu.listed = listed or None
    install(library)
    settings = HostSettings(1.0, 30.0, 10.0, 5.0, Simulate(profile="h100"))
    host = Host(settings, Session(simulated=True, clock=clock), clock)
    calls = [0]
    for _ in range(300):
        host.tick()
        clock.advance(1.0)
        calls.append(sum(count for name, count in library.calls.items() if name != WAITS))
    host.close()
    settled = range(SETTLED_S, len(calls) - WINDOW_S)
    windows = {start: (calls[start + WINDOW_S] - calls[start]) / WINDOW_S / GPUS for start in settled}
    busiest = max(windows, key=windows.__getitem__)
    assert windows[busiest] <= MOST, f"{windows[busiest]:.2f} from second {busiest} on"
    assert windows[busiest] > 5.0  # it was at work
