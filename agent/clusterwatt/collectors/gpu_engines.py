"""Use of a GPU's video engines: encoder, decoder, JPEG, optical flow (nvml.h)."""

from __future__ import annotations

from collections.abc import Iterator

from clusterwatt.catalog import FULL, Table
from clusterwatt.clock import Clock
from clusterwatt.collectors.gpu_integrals import Integral
from clusterwatt.nvml.device import Device
from clusterwatt.readings.gpu import GpuEngines

ENGINES = Table(GpuEngines, labels=("gpu", "uuid"))
PERIOD = "as a share of the driver's last sample period."
SINCE = "since the agent started, by what the driver said at each reading."
METRICS = (
    ENGINES.gauge("gpu_encoder_utilization_ratio", f"Use of the encoder, {PERIOD}", "encoder_ratio", FULL),
    ENGINES.gauge("gpu_decoder_utilization_ratio", f"Use of the decoder, {PERIOD}", "decoder_ratio", FULL),
    ENGINES.gauge("gpu_jpeg_utilization_ratio", f"Use of the JPEG decoder, {PERIOD}", "jpeg_ratio", FULL),
    ENGINES.gauge("gpu_ofa_utilization_ratio", f"Use of optical flow, {PERIOD}", "ofa_ratio", FULL),
    ENGINES.counter(
        "gpu_encoder_busy_seconds_total",
        f"Seconds of use of the encoder {SINCE}",
        "encoder_busy_seconds",
        FULL,
    ),
    ENGINES.counter(
        "gpu_decoder_busy_seconds_total",
        f"Seconds of use of the decoder {SINCE}",
        "decoder_busy_seconds",
        FULL,
    ),
    ENGINES.counter(
        "gpu_jpeg_busy_seconds_total",
        f"Seconds of use of the JPEG decoder {SINCE}",
        "jpeg_busy_seconds",
        FULL,
    ),
    ENGINES.counter(
        "gpu_ofa_busy_seconds_total", f"Seconds of use of optical flow {SINCE}", "ofa_busy_seconds", FULL
    ),
)


class Engine:
    """One engine: its use now, and what that adds up to."""

    def __init__(self, device: Device, function: str, interval_s: float) -> None:
        self._device = device
        self._function = function
        self._integral = Integral(interval_s)

    def read(self, clock: Clock) -> tuple[float | None, float | None]:
        """Ratio and seconds; neither while the driver states no use, as in MIG mode."""
        ratio = _ratio(self._device, self._function)
        if ratio is None:
            return None, None
        self._integral.add(ratio, clock.monotonic_s(), averaged=True)
        return ratio, self._integral.total


class Engines:
    """The engines of one GPU, read every `interval_s`."""

    def __init__(self, device: Device, clock: Clock, interval_s: float) -> None:
        self._device = device
        self._clock = clock
        self._since_s = clock.monotonic_s()
        self._encoder = Engine(device, "nvmlDeviceGetEncoderUtilization", interval_s)
        self._decoder = Engine(device, "nvmlDeviceGetDecoderUtilization", interval_s)
        self._jpeg = Engine(device, "nvmlDeviceGetJpgUtilization", interval_s)
        self._ofa = Engine(device, "nvmlDeviceGetOfaUtilization", interval_s)

    def read(self) -> Iterator[GpuEngines]:
        """Engines that the card has; none of them while it is in MIG mode."""
        clock = self._clock
        encoder_ratio, encoder_busy_seconds = self._encoder.read(clock)
        decoder_ratio, decoder_busy_seconds = self._decoder.read(clock)
        jpeg_ratio, jpeg_busy_seconds = self._jpeg.read(clock)
        ofa_ratio, ofa_busy_seconds = self._ofa.read(clock)
        ratios = (encoder_ratio, decoder_ratio, jpeg_ratio, ofa_ratio)
        if any(ratio is not None for ratio in ratios):
            yield GpuEngines(
                gpu=self._device.gpu,
                uuid=self._device.uuid,
                encoder_ratio=encoder_ratio,
                decoder_ratio=decoder_ratio,
                jpeg_ratio=jpeg_ratio,
                ofa_ratio=ofa_ratio,
                since_s=self._since_s,
                encoder_busy_seconds=encoder_busy_seconds,
                decoder_busy_seconds=decoder_busy_seconds,
                jpeg_busy_seconds=jpeg_busy_seconds,
                ofa_busy_seconds=ofa_busy_seconds,
            )


def _ratio(device: Device, function: str) -> float | None:
    answer = device.ask(function)
    percent = None if answer is None else answer[0]  # beside it stands the sample period
    return None if percent is None or not 0 <= percent <= 100 else percent / 100
