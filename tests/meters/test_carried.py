"""Sums of the driver host, carried over driver hosts, absent while absent."""

from __future__ import annotations

from clusterwatt.meters import carried
from clusterwatt.readings.gpu import GpuEngines, GpuThrottle


def held(
    since_s: float, seconds: float | None, reason: str = "hw_thermal", active: float = 0.0
) -> GpuThrottle:
    return GpuThrottle("0", "GPU-a", reason, since_s, throttle_seconds=seconds, active=active)


def used(since_s: float, encoder: float | None, ofa: float | None = None, uuid: str = "GPU-a") -> GpuEngines:
    return GpuEngines(
        "0", uuid, encoder_ratio=0.5, since_s=since_s, encoder_busy_seconds=encoder, ofa_busy_seconds=ofa
    )


def test_a_fresh_driver_host_goes_on_where_the_old_one_ended() -> None:
    throttle, engines = carried.throttle(), carried.engines()
    steps = [(0.0, 0.0), (0.0, 3.0), (0.0, 3.0), (100.0, 0.5), (100.0, 1.5)]
    assert [next(throttle.measure([held(*step)])).throttle_seconds for step in steps] == [
        0.0,
        3.0,
        3.0,
        3.5,
        4.5,
    ]
    assert [next(engines.measure([used(*step)])).encoder_busy_seconds for step in steps] == [
        0.0,
        3.0,
        3.0,
        3.5,
        4.5,
    ]


def test_what_is_said_beside_the_sum_is_that_of_the_moment() -> None:
    meter = carried.throttle()
    states = [held(0.0, 1.0, active=0.0), held(0.0, 1.0, active=1.0), held(0.0, 1.0, active=0.0)]
    assert [next(meter.measure([state])).active for state in states] == [0.0, 1.0, 0.0]


def test_reasons_are_apart_and_what_is_not_offered_stays_absent() -> None:
    meter = carried.throttle()
    for _ in range(2):
        readings = list(meter.measure([held(0.0, 2.0), held(0.0, None, "sync_boost")]))
    assert [(reading.reason, reading.throttle_seconds) for reading in readings] == [
        ("hw_thermal", 2.0),
        ("sync_boost", None),
    ]


def test_engines_and_gpus_are_apart_and_what_is_not_offered_is_absent() -> None:
    meter = carried.engines()
    list(meter.measure([used(0.0, 2.0, 1.0)]))
    first, second = meter.measure([used(0.0, None, 1.5), used(0.0, 7.0, uuid="GPU-b")])
    assert (first.encoder_busy_seconds, first.ofa_busy_seconds) == (None, 1.5)
    assert (second.encoder_busy_seconds, second.ofa_busy_seconds) == (7.0, None)
    (again,) = meter.measure([used(0.0, 2.5, 1.5)])
    assert (again.encoder_busy_seconds, again.encoder_ratio) == (2.5, 0.5)
