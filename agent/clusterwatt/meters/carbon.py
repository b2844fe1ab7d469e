"""Carbon of energy: joules times PUE times the intensity of the grid at that time.

Operational carbon only; what making the machines emitted is not in it.
"""

from __future__ import annotations

JOULES_PER_KWH = 3.6e6


def grams(joules: float | None, pue: float, grams_per_kwh: float | None) -> float | None:
    """Grams for an interval's joules, at the intensity that held in it; None where either is not known."""
    if joules is None or grams_per_kwh is None:
        return None
    return joules / JOULES_PER_KWH * pue * grams_per_kwh
