"""Colours, and the thresholds at which a value changes its colour."""

from __future__ import annotations

from collections.abc import Sequence

Steps = Sequence[tuple[str, float | None]]

# Okabe and Ito: told apart by people with any of the usual colour visions.
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"),
)
GREY = "#8E8E8E"
AMBER = "#FFB733"  # orange, light enough for Grafana to write on it in black
# Large numbers: 3 to 1 and more on Grafana's dark panels and on white ones, and as far apart as the others.
NUMBERS = {BLUE: "#1A85C8", ORANGE: "#C28100", VERMILION: "#BF4000"}
SERIES = (SKY, ORANGE, GREEN, PINK, BLUE, VERMILION, YELLOW)
DASHED_FROM = 3  # lines that are told apart by their dashes as well
STATES = {"active": BLUE, "idle": ORANGE, "free": GREY, "missing": VERMILION}
SEVERITIES = {"critical": VERMILION, "warning": ORANGE, "info": SKY}
NOTHING = "transparent"  # neither well nor ill, in both themes
# Lines of the GPUs of a node; nodes with more have shades for the rest.
BY_GPU = {f"^{gpu}$": colour for gpu, colour in enumerate((*SERIES, GREY))}


def good_above(warning: float, critical: float) -> Steps:
    """Vermilion below the second number, orange below the first, blue from there on."""
    return ((VERMILION, None), (ORANGE, critical), (BLUE, warning))


def good_below(warning: float, critical: float | None = None) -> Steps:
    """Blue, orange from the first number on, vermilion from the second on."""
    steps: Steps = ((BLUE, None), (ORANGE, warning))
    return steps if critical is None else (*steps, (VERMILION, critical))


def bad_from(number: float = 1) -> Steps:
    """Blue, and vermilion from a number on: what must not be at all."""
    return ((BLUE, None), (VERMILION, number))


# Of several boards.
ACTIVITY = good_above(0.5, 0.25)
MARGIN = good_above(10, 5)
HELD_BACK = good_below(0.1, 0.5)
