"""When a driver call that keeps failing, or that takes long, is made again.

A sensor that is broken fails at every tick, for ever; a call that is slow holds up the others of its GPU.
Either is made less and less often, up to every five minutes, and at its usual pace as soon as it is well.
"""

from __future__ import annotations

from collections.abc import Hashable

from clusterwatt.clock import Clock

TOLERATED_S = 30.0  # of trouble without a break before the first pause: a short one is to cost no reading
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 300.0


class Patience:
    """Remembers the quantities of one GPU that are in trouble; empty while all is well."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._since_s: dict[Hashable, float] = {}
        self._pauses_s: dict[Hashable, float] = {}
        self._again_s: dict[Hashable, float] = {}

    def waits(self, quantity: Hashable) -> bool:
        """Whether it is too early to ask for this again."""
        again_s = self._again_s.get(quantity)
        return again_s is not None and self._clock is not None and self._clock.monotonic_s() < again_s

    @property
    def waiting(self) -> bool:
        """Whether anything is asked for less often now."""
        return bool(self._again_s)

    def well(self, *quantities: Hashable) -> None:
        """These have answered in time."""
        for quantity in quantities if self._since_s else ():
            self._since_s.pop(quantity, None)
            self._pauses_s.pop(quantity, None)
            self._again_s.pop(quantity, None)

    def bad(self, quantity: Hashable) -> float:
        """It has failed or taken long; for how many seconds it is left alone now."""
        if self._clock is None:
            return 0.0
        now_s = self._clock.monotonic_s()
        if now_s - self._since_s.setdefault(quantity, now_s) < TOLERATED_S:
            return 0.0
        pause_s = min(2.0 * self._pauses_s.get(quantity, FIRST_PAUSE_S / 2.0), LONGEST_PAUSE_S)
        self._pauses_s[quantity] = pause_s
        self._again_s[quantity] = now_s + pause_s
        return pause_s

    def forget(self) -> None:
        """Ask for everything again at once: the whole GPU was in trouble, not single quantities."""
        self._since_s.clear()
        self._pauses_s.clear()
        self._again_s.clear()
