"""Seconds of the video engines: carried over driver hosts, absent while absent."""

from __future__ import annotations

from clusterwatt.meters.engines import EnginesMeter
from clusterwatt.readings.gpu import GpuEngines


def said(since_s: float, encoder: float | None, ofa: float | None = None, uuid: str = "GPU-a") -> GpuEngines:
    return GpuEngines(
        "0", uuid, encoder_ratio=0.5, since_s=since_s, encoder_busy_seconds=encoder, ofa_busy_seconds=ofa
    )


def test_a_fresh_driver_host_goes_on_where_the_old_one_ended() -> None:
    meter = EnginesMeter()
    steps = [said(0.0, 0.0), said(0.0, 3.0), said(100.0, 0.5), said(100.0, 1.5)]
    assert [next(meter.measure([step])).encoder_busy_seconds for step in steps] == [0.0, 3.0, 3.5, 4.5]


def test_engines_and_gpus_are_apart_and_what_is_not_offered_is_absent() -> None:
    meter = EnginesMeter()
    list(meter.measure([said(0.0, 2.0, 1.0)]))
    first, second = meter.measure([said(0.0, None, 1.5), said(0.0, 7.0, uuid="GPU-b")])
    assert (first.encoder_busy_seconds, first.ofa_busy_seconds) == (None, 1.5)
    assert (second.encoder_busy_seconds, second.ofa_busy_seconds) == (7.0, None)
    (again,) = meter.measure([said(0.0, 2.5, 1.5)])
    assert (again.encoder_busy_seconds, again.encoder_ratio) == (2.5, 0.5)
