"""Use of a GPU's video engines: encoder, decoder, JPEG, optical flow (nvml.h)."""

from __future__ import annotations

from collections.abc import Iterator

from clusterwatt.catalog import FULL, Table
from clusterwatt.nvml.session import Device
from clusterwatt.readings import GpuEngines

ENGINES = Table(GpuEngines, labels=("gpu", "uuid"))
PERIOD = "as a share of the driver's last sample period."
METRICS = (
    ENGINES.gauge("gpu_encoder_utilization_ratio", f"Use of the encoder, {PERIOD}", "encoder_ratio", FULL),
    ENGINES.gauge("gpu_decoder_utilization_ratio", f"Use of the decoder, {PERIOD}", "decoder_ratio", FULL),
    ENGINES.gauge("gpu_jpeg_utilization_ratio", f"Use of the JPEG decoder, {PERIOD}", "jpeg_ratio", FULL),
    ENGINES.gauge("gpu_ofa_utilization_ratio", f"Use of optical flow, {PERIOD}", "ofa_ratio", FULL),
)


def engines(device: Device) -> Iterator[GpuEngines]:
    """Engines that the card has; none of them while it is in MIG mode."""
    ratios = {
        "encoder_ratio": _ratio(device, "nvmlDeviceGetEncoderUtilization"),
        "decoder_ratio": _ratio(device, "nvmlDeviceGetDecoderUtilization"),
        "jpeg_ratio": _ratio(device, "nvmlDeviceGetJpgUtilization"),
        "ofa_ratio": _ratio(device, "nvmlDeviceGetOfaUtilization"),
    }
    if any(ratio is not None for ratio in ratios.values()):
        yield GpuEngines(gpu=device.gpu, uuid=device.uuid, **ratios)


def _ratio(device: Device, function: str) -> float | None:
    answer = device.ask(function)
    percent = None if answer is None else answer[0]  # beside it stands the sample period
    return None if percent is None or not 0 <= percent <= 100 else percent / 100
