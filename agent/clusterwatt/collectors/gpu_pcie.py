"""The PCIe link of a GPU: traffic, generation, width, replays, errors, and the BAR1 window (nvml.h)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from clusterwatt.catalog import FULL, STANDARD, Table
from clusterwatt.nvml.constants import (
    FIELD_PCIE_RECEIVE,
    FIELD_PCIE_REPLAYS,
    FIELD_PCIE_TRANSMIT,
    Field,
)
from clusterwatt.nvml.device import Device
from clusterwatt.readings.gpu import GpuBar1
from clusterwatt.readings.gpu_links import GpuPcieErrors, GpuPcieLink, GpuPcieTraffic

log = logging.getLogger("clusterwatt.gpu")

TRAFFIC = Table(GpuPcieTraffic, labels=("gpu", "uuid"))
LINK = Table(GpuPcieLink, labels=("gpu", "uuid"))
ERRORS = Table(GpuPcieErrors, labels=("gpu", "uuid", "error"))
BAR1 = Table(GpuBar1, labels=("gpu", "uuid"))
METRICS = (
    TRAFFIC.counter(
        "gpu_pcie_receive_bytes_total",
        "Bytes that the GPU has received over PCIe.",
        "receive_bytes",
        STANDARD,
    ),
    TRAFFIC.counter(
        "gpu_pcie_transmit_bytes_total", "Bytes that the GPU has sent over PCIe.", "transmit_bytes", STANDARD
    ),
    LINK.counter("gpu_pcie_replays_total", "PCIe packets that were sent again.", "replays", STANDARD),
    LINK.gauge("gpu_pcie_link_generation", "PCIe generation now; falls at idle.", "generation", STANDARD),
    LINK.gauge("gpu_pcie_link_width", "PCIe lanes in use.", "width", STANDARD),
    LINK.gauge(
        "gpu_pcie_link_generation_max",
        "Highest PCIe generation that GPU and slot can use.",
        "generation_max",
        STANDARD,
    ),
    LINK.gauge("gpu_pcie_link_width_max", "PCIe lanes that GPU and slot can use.", "width_max", STANDARD),
    ERRORS.counter("gpu_pcie_errors_total", "PCIe errors by kind.", "errors", FULL),
    BAR1.gauge(
        "gpu_bar1_used_bytes", "BAR1 window in use; a full one stops GPUDirect.", "used_bytes", STANDARD
    ),
    BAR1.gauge("gpu_bar1_total_bytes", "Size of the BAR1 window.", "total_bytes", STANDARD),
)

TRAFFIC_FIELDS = (FIELD_PCIE_TRANSMIT, FIELD_PCIE_RECEIVE)
# Errors of single lanes (183) are left out: newer drivers take the lane as scope, older ones ignore it.
ERROR_FIELDS: Mapping[Field, str] = {
    (169, 0): "l0_to_recovery",
    (173, 0): "correctable",
    (174, 0): "nak_received",
    (175, 0): "receiver",
    (176, 0): "bad_tlp",
    (177, 0): "nak_sent",
    (178, 0): "bad_dllp",
    (179, 0): "non_fatal",
    (180, 0): "fatal",
    (181, 0): "unsupported_request",
    (182, 0): "lcrc",
}


class PcieTraffic:
    """The driver's byte counters, as long as they only grow.

    nvml.h warns that they may wrap. At the speed of a link a narrow counter wraps many times between two
    readings: what has gone back once tells nothing, and is left out from then on.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._last: dict[Field, float] = {}
        self._wrapped: set[Field] = set()

    def read(self, values: Mapping[Field, float]) -> Iterator[GpuPcieTraffic]:
        """Bytes so far, from the fields just read."""
        device = self._device
        for field in TRAFFIC_FIELDS:
            if field not in values:
                continue
            if values[field] < self._last.get(field, 0.0) and field not in self._wrapped:
                self._wrapped.add(field)
                log.warning("GPU %s: PCIe byte counter %s went back; it is left out", device.gpu, field[0])
            self._last[field] = values[field]
        usable = {field: value for field, value in values.items() if field not in self._wrapped}
        transmit, receive = (usable.get(field) for field in TRAFFIC_FIELDS)
        if transmit is not None or receive is not None:
            yield GpuPcieTraffic(
                gpu=device.gpu, uuid=device.uuid, receive_bytes=receive, transmit_bytes=transmit
            )


def link_and_errors(device: Device) -> Iterator[GpuPcieLink | GpuPcieErrors]:
    """The link as it has trained, its replays and errors."""
    values = device.fields((FIELD_PCIE_REPLAYS, *ERROR_FIELDS))
    replays = values.get(FIELD_PCIE_REPLAYS)
    if replays is None and device.lacks(*FIELD_PCIE_REPLAYS):
        replays = _number(device, "nvmlDeviceGetPcieReplayCounter")
    yield GpuPcieLink(
        gpu=device.gpu,
        uuid=device.uuid,
        generation=_number(device, "nvmlDeviceGetCurrPcieLinkGeneration"),
        width=_number(device, "nvmlDeviceGetCurrPcieLinkWidth"),
        generation_max=_number(device, "nvmlDeviceGetMaxPcieLinkGeneration"),
        width_max=_number(device, "nvmlDeviceGetMaxPcieLinkWidth"),
        replays=replays,
    )
    for field, error in ERROR_FIELDS.items():
        if field in values:
            yield GpuPcieErrors(gpu=device.gpu, uuid=device.uuid, error=error, errors=values[field])


def bar1(device: Device) -> Iterator[GpuBar1]:
    """The window through which other devices reach device memory."""
    answer = device.ask("nvmlDeviceGetBAR1MemoryInfo")
    if answer is not None:
        yield GpuBar1(
            gpu=device.gpu,
            uuid=device.uuid,
            total_bytes=float(answer.bar1Total),
            used_bytes=float(answer.bar1Used),
        )


def _number(device: Device, function: str) -> float | None:
    answer = device.ask(function)
    return None if answer is None else float(answer)
