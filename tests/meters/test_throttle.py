"""Seconds of throttling: carried over driver hosts, absent while absent."""

from __future__ import annotations

from clusterwatt.meters.throttle import ThrottleMeter
from clusterwatt.readings.gpu import GpuThrottle


def said(since_s: float, seconds: float | None, reason: str = "hw_thermal") -> GpuThrottle:
    return GpuThrottle("0", "GPU-a", reason, since_s, throttle_seconds=seconds, active=0.0)


def test_a_fresh_driver_host_goes_on_where_the_old_one_ended() -> None:
    meter = ThrottleMeter()
    steps = [said(0.0, 0.0), said(0.0, 3.0), said(100.0, 0.5), said(100.0, 1.5)]
    assert [next(meter.measure([step])).throttle_seconds for step in steps] == [0.0, 3.0, 3.5, 4.5]


def test_reasons_are_apart_and_what_is_not_offered_stays_absent() -> None:
    meter = ThrottleMeter()
    for _ in range(2):
        readings = list(meter.measure([said(0.0, 2.0), said(0.0, None, "sync_boost")]))
    assert [(reading.reason, reading.throttle_seconds) for reading in readings] == [
        ("hw_thermal", 2.0),
        ("sync_boost", None),
    ]
