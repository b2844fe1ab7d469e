"""Running the agent: what its garbage collector has to look through."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any, cast

import pytest

from clusterwatt import running
from clusterwatt.app import Agent
from clusterwatt.config.model import Config
from clusterwatt.readings.snapshot import EMPTY


@pytest.fixture(autouse=True)
def _thaw() -> Iterator[None]:
    yield
    gc.unfreeze()


class Ring:
    """Refers to itself: only the collector ends it."""

    def __init__(self) -> None:
        self.itself = self


class Reloads:
    """An agent that a reload lets go of something."""

    def __init__(self) -> None:
        self.old: Any = Ring()

    def apply(self, config: Config) -> None:
        self.old = None

    def reload_succeeded(self) -> None:
        """Nothing else."""


def test_the_collector_passes_over_what_was_there_at_the_first_page() -> None:
    lasting = [[number] for number in range(50_000)]
    published = running._watchdog()
    published(EMPTY)
    made_since = [[number] for number in range(1_000)]
    published(EMPTY)  # of the later ones none is set aside: what a tick makes goes again
    looked_through = len(gc.get_objects())
    assert len(made_since) <= looked_through < len(lasting) / 10


def test_what_a_reload_puts_out_of_use_is_collected() -> None:
    agent = Reloads()
    gone = weakref.ref(agent.old)
    running._watchdog()(EMPTY)
    running._reload(cast("Agent", agent), Config)
    assert gone() is None
