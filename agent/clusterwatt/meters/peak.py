"""What a GPU can compute at most, by its model: the denominator of model FLOPs utilisation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from clusterwatt.accelerators import peak_flops
from clusterwatt.catalog import FULL, STANDARD, LevelBy, Table
from clusterwatt.readings.gpu import GpuInfo
from clusterwatt.readings.gpu_measured import GpuPeak

PEAK = Table(GpuPeak, labels=("gpu", "uuid", "precision"))
METRICS = (
    PEAK.gauge(
        "gpu_peak_flops",
        "Dense peak of the model by published figures, in floating-point operations per second.",
        "flops",
        by=LevelBy(
            "precision",
            {
                "bf16": STANDARD,
                "fp16": FULL,
                "tf32": FULL,
                "fp8": FULL,
                "fp4": FULL,
                "fp32": FULL,
                "fp64_tensor": FULL,
            },
        ),
    ),
)


def measure(infos: Iterable[GpuInfo], in_mig_mode: Collection[str]) -> Iterator[GpuPeak]:
    """Peaks of whole GPUs of known models; no instance has one, nor a board that is cut into them."""
    for info in infos:
        if info.parent_uuid or info.uuid in in_mig_mode:
            continue
        for precision, flops in peak_flops(info.name).items():
            yield GpuPeak(gpu=info.gpu, uuid=info.uuid, precision=precision, flops=flops)
