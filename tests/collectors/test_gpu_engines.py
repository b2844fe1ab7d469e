"""Use of the video engines, now and in seconds."""

from __future__ import annotations

import pytest

from clusterwatt.collectors.gpu_engines import Engines
from clusterwatt.readings.gpu import GpuEngines
from tests.nvml.drivers import Bench

ENCODER = "nvmlDeviceGetEncoderUtilization"
NOT_SUPPORTED = 3
PERIOD_US = 166_000


class Watch:
    """The engines of one GPU, whose reader expects to be called every ten seconds."""

    def __init__(self) -> None:
        self.bench = Bench("h100").open()
        self.engines = Engines(self.bench.device(), self.bench.clock, 10.0)

    def encode(self, percent: int) -> None:
        self.bench.faults.clear()
        self.bench.faults.change(ENCODER, [percent, PERIOD_US])

    def after(self, seconds: float) -> GpuEngines:
        self.bench.clock.advance(seconds)
        (found,) = self.engines.read()
        return found


def test_engines_that_the_card_has() -> None:
    watch = Watch()
    found = watch.after(0.0)
    assert (found.encoder_ratio, found.decoder_ratio, found.jpeg_ratio, found.ofa_ratio) == (0.0,) * 4
    assert (found.encoder_busy_seconds, found.ofa_busy_seconds) == (0.0, 0.0)


def test_each_reading_stands_for_the_time_since_the_one_before() -> None:
    watch = Watch()
    watch.encode(80)
    assert watch.after(0.0).encoder_busy_seconds == 0.0
    watch.encode(50)
    assert watch.after(10.0).encoder_busy_seconds == pytest.approx(5.0)
    watch.encode(100)
    found = watch.after(12.0)
    assert found.encoder_busy_seconds == pytest.approx(17.0)
    assert found.decoder_busy_seconds == 0.0
    assert found.encoder_ratio == 1.0


def test_nothing_is_added_for_more_than_three_intervals() -> None:
    watch = Watch()
    watch.encode(100)
    watch.after(0.0)
    assert watch.after(30.0).encoder_busy_seconds == pytest.approx(30.0)
    assert watch.after(40.0).encoder_busy_seconds == pytest.approx(30.0)


def test_seconds_are_absent_with_the_ratio_and_go_on_with_it() -> None:
    watch = Watch()
    watch.encode(100)
    watch.after(0.0)
    watch.after(10.0)
    watch.bench.faults.clear()
    watch.bench.faults.fail(ENCODER, NOT_SUPPORTED)
    found = watch.after(10.0)
    assert (found.encoder_ratio, found.encoder_busy_seconds) == (None, None)
    assert found.decoder_ratio == 0.0
    watch.encode(100)
    assert watch.after(40.0).encoder_busy_seconds == pytest.approx(10.0)


def test_a_board_in_mig_mode_states_none() -> None:
    watch = Watch()
    watch.bench.library.configure_mig(0, ["3g.40gb"])
    assert list(watch.engines.read()) == []
