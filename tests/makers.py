"""What makes nodes for a test, and takes them down after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ParamSpec, Protocol, TypeVar

from clusterwatt.driver.host import Host
from clusterwatt.simulate.nvml import SimulatedLibrary, uninstall

P = ParamSpec("P")


class Simulated(Protocol):
    """A driver host over a simulated driver, whatever else there is of the node."""

    host: Host
    library: SimulatedLibrary


N = TypeVar("N", bound=Simulated)


def maker(kind: Callable[P, N]) -> Iterator[Callable[P, N]]:
    """For a fixture to `yield from`. After the test what hangs goes on, and no driver is left behind."""
    made: list[N] = []

    def make(*arguments: P.args, **options: P.kwargs) -> N:
        made.append(kind(*arguments, **options))
        return made[-1]

    yield make
    for node in made:
        node.library.faults.clear()
        node.host.close()
    uninstall()
