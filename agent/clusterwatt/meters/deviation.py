"""The driver's energy counter against its power readings, integrated: whether the two agree.

A bill rests on the counter. Sensors have been found to measure a quarter of the time only (A100) and to be
off by some percent each (arXiv:2312.02741); what the two disagree by is told, not repaired.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from clusterwatt.catalog import FULL, Table
from clusterwatt.clock import GAP_INTERVALS
from clusterwatt.readings.gpu import GpuIntegrals
from clusterwatt.readings.gpu_measured import GpuEnergyDeviation

DEVIATION = Table(GpuEnergyDeviation, labels=("gpu", "uuid"))
METRICS = (
    DEVIATION.gauge(
        "gpu_energy_deviation_ratio",
        "Energy by the driver's counter over that by its power readings, in the last 10 minutes; at least 2.",
        "deviation_ratio",
        FULL,
    ),
)

WINDOW_S = 600.0
LEAST_S = 120.0  # the counter moves in steps and power is an average: less says more of these than of energy
KEPT_EVERY_S = 10.0  # so that 10 minutes are 61 points


class Point(NamedTuple):
    """Both sums as they stood at one time."""

    read_s: float
    counter_joules: float
    integral_joules: float


class Window:
    """The last ten minutes of one GPU in which both sums went on without a break."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque()
        self._newest: Point | None = None
        self._moved_s = 0.0
        self._since_s = 0.0

    def add(self, now: GpuIntegrals, longest_gap_s: float) -> None:
        """Take both sums as they stand; begin anew when one is missing, steps back or has stood still."""
        counter, integral = now.energy_counter_joules, now.power_integral_joules
        # On a superchip the counter covers the whole module, the readings the GPU alone.
        if counter is None or integral is None or now.energy_counter_scope != "gpu":
            self._points.clear()
            self._newest = None
            return
        last, self._newest = self._newest, Point(now.read_s, counter, integral)
        if last is None or integral > last.integral_joules:
            moved_before_s, self._moved_s = self._moved_s, now.read_s
        else:
            moved_before_s = self._moved_s
        if (
            last is None
            or now.since_s != self._since_s
            or counter < last.counter_joules
            or now.read_s - moved_before_s > longest_gap_s
        ):
            self._points.clear()
        self._since_s = now.since_s
        if not self._points or now.read_s - self._points[-1].read_s >= KEPT_EVERY_S:
            self._points.append(self._newest)
        while now.read_s - self._points[0].read_s > WINDOW_S:
            self._points.popleft()

    def ratio(self) -> float | None:
        """Counter over integral; None while too little is known."""
        newest = self._newest
        if newest is None or not self._points or newest.read_s - self._points[0].read_s < LEAST_S:
            return None
        first = self._points[0]
        integrated = newest.integral_joules - first.integral_joules
        return (newest.counter_joules - first.counter_joules) / integrated if integrated > 0 else None


class DeviationMeter:
    """Compares the two for each GPU, by UUID."""

    def __init__(self) -> None:
        self._windows: defaultdict[str, Window] = defaultdict(Window)

    def measure(self, integrals: Iterable[GpuIntegrals], *, every_s: float) -> Iterator[GpuEnergyDeviation]:
        """Take what the driver host says, yield how far the two are apart where that is known."""
        for now in integrals:
            window = self._windows[now.uuid]
            window.add(now, GAP_INTERVALS * every_s)
            ratio = window.ratio()
            if ratio is not None:
                yield GpuEnergyDeviation(gpu=now.gpu, uuid=now.uuid, deviation_ratio=ratio)
