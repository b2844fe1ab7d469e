"""Fleets that tests tick by hand."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec

from clusterwatt.fleet.node import FleetSettings
from clusterwatt.fleet.run import Fleet
from clusterwatt.fleet.scenario import CALM, Scenario
from tests.clocks import FakeClock

P = ParamSpec("P")

NOON_S = 1_700_050_000.0


def settings(nodes: int = 2, *, gpus: int = 8, seed: int = 1, level: str = "standard") -> FleetSettings:
    return FleetSettings(nodes=nodes, gpus=gpus, profiles=("h100",), seed=seed, every_s=1.0, level=level)


class Ticking:
    """A fleet and its clock."""

    def __init__(
        self, made_of: FleetSettings, folder: Path, scenario: Scenario = CALM, wall_s: float = NOON_S
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.clock = FakeClock(wall_s=wall_s)
        self.every_s = made_of.every_s
        self.fleet = Fleet(made_of, self.clock, folder, scenario)

    async def tick(self, count: int = 1, step_s: float | None = None) -> None:
        for _ in range(count):
            await self.fleet.tick()
            self.clock.advance(self.every_s if step_s is None else step_s)

    async def close(self) -> None:
        for node in self.fleet.nodes:
            await node.site.stop()
        self.fleet.stop()


def looped(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine, in a loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
