"""Activity of a GPU's units from GPM: SMs, tensor cores, pipes, memory, PCIe, C2C (nvml.h, Hopper and later).

Runs in the driver host, on the one thread that makes all GPM calls. The mean of each interval is multiplied
with the true length of that interval and added up, so the sums are exact at any cadence.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from clusterwatt.clock import GAP_INTERVALS, Clock
from clusterwatt.nvml.gpm import Gpm, GpmTrouble, Target
from clusterwatt.nvml.session import Session
from clusterwatt.readings.base import Failure
from clusterwatt.readings.gpu import GpuGpm

log = logging.getLogger("clusterwatt.gpu")

# Numbers of nvml.h. They are not taken from the binding: in some versions a stray comma makes tuples of them.
SM = 2
RATIOS: Mapping[int, str] = {
    1: "graphics_active_seconds",
    SM: "sm_active_seconds",
    3: "sm_occupancy_seconds",
    4: "integer_active_seconds",
    5: "tensor_active_seconds",
    10: "dram_active_seconds",
    11: "fp64_active_seconds",
    12: "fp32_active_seconds",
    13: "fp16_active_seconds",
}
RATES: Mapping[int, str] = {20: "pcie_transmit_bytes", 21: "pcie_receive_bytes"}
RATES_OF_SUPERCHIPS: Mapping[int, str] = {100: "c2c_transmit_bytes", 101: "c2c_receive_bytes"}
FIELDS: Mapping[int, str] = {**RATIOS, **RATES, **RATES_OF_SUPERCHIPS}

FULL_PERCENT = 100.0
ROUNDING_PERCENT = 0.5
BYTES_PER_MIB = 1 << 20

FAILURES_TO_SLOW_DOWN = 3
RETRY_S = 10.0


class GpmReader:
    """Reads GPM of one GPU or MIG instance, once each tick, and keeps its sums.

    Links belong to the whole GPU: an instance is not asked for their bytes.
    """

    def __init__(
        self, session: Session, clock: Clock, every_seconds: float, *, whole_gpu: bool = True
    ) -> None:
        self._clock = clock
        self._longest_s = GAP_INTERVALS * every_seconds
        self._gpm = Gpm(
            session,
            clock,
            metrics=(*RATIOS, *RATES) if whole_gpu else tuple(RATIOS),
            extra=tuple(RATES_OF_SUPERCHIPS) if whole_gpu else (),
            longest_s=self._longest_s,
        )
        self._since_s = clock.monotonic_s()
        self._sums: dict[int, float] = {}
        self._stated_s: dict[int, float] = {}
        self._sm_ratio: float | None = None
        self._excessive: set[int] = set()
        self._trouble: GpmTrouble | None = None
        self._failed = 0
        self._retry_at_s = 0.0

    @property
    def offered(self) -> bool | None:
        """Whether the card has GPM; None while the driver has not said."""
        return self._gpm.offered

    def read(self, target: Target) -> Iterator[GpuGpm | Failure]:
        """The sums so far, and what failed. Quantities without a value for three intervals are left out.

        A GPU that keeps failing is asked rarely; its failure stands until it answers. Raises GenerationOver.
        """
        now_s = self._clock.monotonic_s()
        if now_s >= self._retry_at_s:
            yield from self._sample(target)
        if self._trouble is not None:
            yield Failure(item=target.uuid, reason=self._trouble.reason, detail=str(self._trouble))
        if self.offered is False:
            yield GpuGpm(gpu=target.gpu, uuid=target.uuid, since_s=self._since_s, read_s=now_s, offered=False)
            return
        fresh = [metric for metric, stated_s in self._stated_s.items() if now_s - stated_s <= self._longest_s]
        if fresh:
            sums: dict[str, Any] = {FIELDS[metric]: self._sums[metric] for metric in fresh}
            yield GpuGpm(
                gpu=target.gpu,
                uuid=target.uuid,
                since_s=self._since_s,
                read_s=max(self._stated_s[metric] for metric in fresh),
                sm_active_ratio=self._sm_ratio if SM in fresh else None,
                **sums,
            )

    def close(self) -> None:
        """Free the sample buffers."""
        self._gpm.close()

    def _sample(self, target: Target) -> Iterator[Failure]:
        try:
            means = self._gpm.means(target)
        except GpmTrouble as trouble:
            self._trouble = trouble
            self._failed += 1
            if self._failed >= FAILURES_TO_SLOW_DOWN:
                self._retry_at_s = self._clock.monotonic_s() + RETRY_S
            return
        if means is None:  # a first sample; whether metrics come of it, the next will tell
            return
        self._trouble, self._failed = None, 0
        if means.failed:
            yield Failure(item=target.uuid, reason="unknown", detail=means.failed)
        for metric, value in means.values.items():
            if value < 0:
                continue
            if metric in RATIOS:
                if value > FULL_PERCENT + ROUNDING_PERCENT and metric not in self._excessive:
                    self._excessive.add(metric)
                    yield Failure(
                        item=target.uuid,
                        reason="over_full",
                        detail=f"GPM metric {metric} says {value:.1f} %; more than 100 is taken as 100",
                    )
                per_second = min(value, FULL_PERCENT) / FULL_PERCENT
            else:
                per_second = value * BYTES_PER_MIB
            self._sums[metric] = self._sums.get(metric, 0.0) + per_second * means.seconds
            self._stated_s[metric] = self._clock.monotonic_s()
            if metric == SM:
                self._sm_ratio = per_second
