"""When a driver call that keeps failing, or that takes long, is made again.

A sensor that is broken fails at every tick, for ever; a call that is slow holds up the others of its GPU.
Either is made less and less often, up to every five minutes, and at its usual pace as soon as it is well.
"""

from __future__ import annotations

from collections.abc import Hashable

from clusterwatt.clock import Clock

TOLERATED = 3  # bad answers in a row before the first pause: the integrals bridge as many missing readings
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 300.0


class Patience:
    """Remembers the quantities of one GPU that are in trouble; empty while all is well."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._bad: dict[Hashable, int] = {}
        self._again_s: dict[Hashable, float] = {}

    def waits(self, quantity: Hashable) -> bool:
        """Whether it is too early to ask for this again."""
        again_s = self._again_s.get(quantity)
        return again_s is not None and self._clock is not None and self._clock.monotonic_s() < again_s

    @property
    def waiting(self) -> bool:
        """Whether anything is in trouble that was asked for more than once."""
        return bool(self._again_s)

    def well(self, quantity: Hashable) -> None:
        """It has answered in time."""
        if self._bad:
            self._bad.pop(quantity, None)
            self._again_s.pop(quantity, None)

    def bad(self, quantity: Hashable) -> float:
        """It has failed or taken long; for how many seconds it is left alone now."""
        times = self._bad[quantity] = self._bad.get(quantity, 0) + 1
        if times <= TOLERATED or self._clock is None:
            return 0.0
        doublings = min(times - TOLERATED - 1, 16)
        pause_s = min(FIRST_PAUSE_S * 2.0**doublings, LONGEST_PAUSE_S)
        self._again_s[quantity] = self._clock.monotonic_s() + pause_s
        return pause_s

    def forget(self) -> None:
        """Ask for everything again at once: the whole GPU was in trouble, not single quantities."""
        self._bad.clear()
        self._again_s.clear()
