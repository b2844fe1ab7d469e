"""Opens the real binding over a simulated library, for tests."""

from __future__ import annotations

from typing import Any

import pynvml

from clusterwatt.nvml.device import Device
from clusterwatt.nvml.session import Session
from clusterwatt.simulate.nvml import SimulatedLibrary, install
from tests.clocks import FakeClock

# Every return code that the installed binding knows, and two that a later driver may invent.
CODES = {
    name.removeprefix("NVML_ERROR_"): getattr(pynvml, name)
    for name in dir(pynvml)
    if name.startswith("NVML_ERROR_")
}
FUTURE_CODES = {"31 OF THE FUTURE": 31, "500 OF THE FUTURE": 500}


class Bench:
    """A simulated driver with cards of one model, under a clock that is moved by hand.

    It replaces what an earlier test has put below the binding.
    """

    def __init__(self, profile: str = "h100", gpus: int = 2, **options: Any) -> None:
        self.clock = FakeClock()
        self.library = SimulatedLibrary(profile, gpus, 1, self.clock.wall_s, **options)
        self.faults = self.library.faults
        install(self.library)
        self.session = Session(simulated=True, clock=self.clock)

    def open(self) -> Bench:
        self.session.open()
        return self

    def device(self, index: int = 0) -> Device:
        return self.session.enumerate().devices[index]
