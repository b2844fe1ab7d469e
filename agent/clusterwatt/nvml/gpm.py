"""GPU performance monitoring: means of what a GPU's units do between two samples (nvml.h, Hopper and later).

A sample holds the GPU's running sums; the driver makes means of two of them, which must lie at least 100 ms
apart. One thread makes all calls of this module: GPM calls of two threads have crashed processes, and a race
on a shared sample buffer has brought down a node (plazonic/nvidia_gpu_prometheus_exporter#7). The two buffers
of a `Gpm` belong to one GPU or MIG instance and meet no other.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pynvml

from clusterwatt.clock import Clock
from clusterwatt.nvml.errors import (
    FUNCTION_NOT_FOUND,
    DriverError,
    GenerationOver,
    Meaning,
    Refused,
    described,
    ruling,
)
from clusterwatt.nvml.session import Session
from clusterwatt.nvml.values import MetricBatch

log = logging.getLogger("clusterwatt.nvml")

SHORTEST_S = 0.1  # between two samples (nvml.h)
STRUCTURE_VERSION = 1


class GpmTrouble(DriverError):
    """GPM of one GPU gives nothing: not_offered, permission, lost, reset_required, timeout, unknown, ..."""


class Target(NamedTuple):
    """What is sampled: a GPU, or the MIG instance of this id on it. `uuid` is that of GPU or MIG device.

    `making` tells instances apart that were made under one UUID, one after another.
    """

    uuid: str
    gpu: str
    handle: Any
    instance: int | None = None
    making: int = 0


class Means(NamedTuple):
    """Means over the `seconds` between two samples, by metric; `failed`: metrics in error, for the log."""

    seconds: float
    values: Mapping[int, float]
    failed: str


class Gpm:
    """GPM of one GPU or MIG instance. `longest_s`: over a longer time between two samples nothing is told.

    `extra`: metrics that not every driver and card knows. They are asked for apart the first time, because
    what an old driver makes of a request with an id that it does not know is not documented.
    """

    def __init__(
        self,
        session: Session,
        clock: Clock,
        *,
        metrics: Sequence[int],
        extra: Sequence[int],
        longest_s: float,
    ) -> None:
        self.offered: bool | None = None  # None: the driver has not said
        self._calls = session.calls
        self._clock = clock
        self._metrics = tuple(metrics)
        self._extra = tuple(extra)
        self._longest_s = longest_s
        self._batch: MetricBatch | None = None
        self._buffers: list[Any] = []  # the newest sample, and the one to be written next
        self._sampled_s: float | None = None

    def means(self, target: Target) -> Means | None:
        """What was done since the last sample; None while there is nothing to compare with.

        Raises GpmTrouble, and GenerationOver when nothing answers any more.
        """
        try:
            return self._means(target)
        except Refused as refused:
            what = ruling(refused.code)
            if what.meaning is Meaning.GENERATION:
                raise GenerationOver(what.reason, str(refused)) from refused
            if what.meaning is Meaning.NO_SAMPLE:
                return None
            not_offered = what.meaning is Meaning.NOT_OFFERED and what.reason == "unknown"
            raise GpmTrouble("not_offered" if not_offered else what.reason, str(refused)) from refused

    def close(self) -> None:
        """Free the buffers."""
        buffers, self._buffers, self._sampled_s = self._buffers, [], None
        for buffer in buffers:
            try:
                self._calls.raw_call("nvmlGpmSampleFree", buffer)
            except Refused as refused:
                log.debug("%s", refused)

    def _means(self, target: Target) -> Means | None:
        if self.offered is None:
            self.offered = self._supported(target)
        if not self.offered:
            return None
        older_s = self._sampled_s
        if older_s is not None and self._clock.monotonic_s() - older_s < SHORTEST_S:
            return None
        while len(self._buffers) < 2:
            self._buffers.append(self._allocated())
        older, newer = self._buffers
        if target.instance is None:
            self._calls.raw_call("nvmlGpmSampleGet", target.handle, newer)
        else:
            instance = ctypes.c_uint(target.instance)
            self._calls.raw_call("nvmlGpmMigSampleGet", target.handle, instance, newer)
        newer_s = self._clock.monotonic_s()
        if older_s is None or newer_s - older_s > self._longest_s:
            means = None
        else:
            values, failed = self._asked(older, newer, self._metrics)
            values.update(self._probed(older, newer))
            means = Means(newer_s - older_s, values, failed)
        # Not before the metrics were told: after a failure the next pair begins at the same sample.
        self._buffers, self._sampled_s = [newer, older], newer_s
        return means

    def _supported(self, target: Target) -> bool:
        """Whether the card has GPM at all; a driver that does not know the question has not."""
        support = _structure("nvmlGpmQueryDeviceSupport", "c_nvmlGpmSupport_t")()
        support.version = STRUCTURE_VERSION
        try:
            self._calls.raw_call("nvmlGpmQueryDeviceSupport", target.handle, ctypes.byref(support))
        except Refused as refused:
            what = ruling(refused.code)
            if what.meaning is not Meaning.NOT_OFFERED or what.reason == "permission":
                raise
            log.debug("GPU %s (%s) has no GPM: %s", target.gpu, target.uuid, refused)
            return False
        return bool(support.isSupportedDevice)

    def _allocated(self) -> Any:
        buffer = _structure("nvmlGpmSampleAlloc", "c_nvmlGpmSample_t")()
        self._calls.raw_call("nvmlGpmSampleAlloc", ctypes.byref(buffer))
        return buffer

    def _probed(self, older: Any, newer: Any) -> Mapping[int, float]:
        """The extra metrics, the first time; those that have a value are asked for with the others then."""
        if not self._extra:
            return {}
        extra, self._extra = self._extra, ()
        try:
            values, _ = self._asked(older, newer, extra)
        except Refused as refused:
            log.debug("GPM metrics %s: %s", extra, refused)
            return {}
        self._metrics += tuple(values)
        return values

    def _asked(self, older: Any, newer: Any, metrics: Sequence[int]) -> tuple[dict[int, float], str]:
        batch = self._batch
        if batch is None or batch.metrics != metrics:
            request = _structure("nvmlGpmMetricsGet", "c_nvmlGpmMetricsGet_t")()
            batch = self._batch = MetricBatch(metrics, request)
        self._calls.raw_call("nvmlGpmMetricsGet", ctypes.byref(batch.between(older, newer)))
        values: dict[int, float] = {}
        failed = ""
        for metric, code, value in batch.entries():
            if value is not None:
                values[metric] = value
            elif code and ruling(code).meaning not in (Meaning.NOT_OFFERED, Meaning.NO_SAMPLE):
                failed = described(f"GPM metric {metric}", code)
        return values, failed


def _structure(function: str, name: str) -> Callable[[], Any]:
    """A structure of the binding. Raises Refused when the binding is older than GPM."""
    kind: Callable[[], Any] | None = getattr(pynvml, name, None)
    if kind is None:
        raise Refused(function, FUNCTION_NOT_FOUND)
    return kind
