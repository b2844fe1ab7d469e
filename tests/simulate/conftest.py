"""A simulated driver below the real binding, under a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import pytest

from clusterwatt.simulate.nvml import SimulatedLibrary, install, uninstall
from tests.clocks import FakeClock


class Driver:
    """A library, its clock and its faults, initialised through the binding."""

    def __init__(self, profile: str = "h100", gpus: int = 4, seed: int = 1, **options: Any) -> None:
        self.clock = options.pop("clock", None) or FakeClock()
        self.library = SimulatedLibrary(profile, gpus, seed, self.clock.wall_s, **options)
        self.faults = self.library.faults
        install(self.library)
        pynvml.nvmlInit()

    def handle(self, index: int = 0) -> Any:
        """A fresh handle."""
        return pynvml.nvmlDeviceGetHandleByIndex(index)


@pytest.fixture
def driver() -> Iterator[Callable[..., Driver]]:
    """Makes drivers; the last one made is the one below the binding."""
    yield Driver
    uninstall()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Leave a test out that needs more than the installed binding has: old ones are supported too."""
    try:
        return (yield)
    except AttributeError as error:
        if error.obj is pynvml:
            pytest.skip(f"this binding has no {error.name}")
        raise


def code(call: Callable[..., Any], *arguments: Any) -> int:
    """The return code behind a call through the binding."""
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


def field(handle: Any, number: int, scope: int = 0) -> Any:
    """One field value."""
    return pynvml.nvmlDeviceGetFieldValues(handle, [(number, scope)])[0]
