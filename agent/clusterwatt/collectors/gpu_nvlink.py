"""NVLink and C2C of a GPU: state, traffic and errors, from field values (nvml.h).

NVLink 5 (Blackwell) has counters of its own; which ones there are is seen by asking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterwatt.catalog import FULL, STANDARD, Table
from clusterwatt.collectors.gpu_fabric import in_fabric
from clusterwatt.nvml.constants import (
    FIELD_C2C_COUNT,
    FIELD_C2C_INTERRUPT,
    FIELD_C2C_REPLAY,
    FIELD_C2C_REPLAY_BACK_TO_BACK,
    FIELD_NVLINK5_RECEIVE_BYTES,
    FIELD_NVLINK5_RECOVERY,
    FIELD_NVLINK5_SYMBOL,
    FIELD_NVLINK5_TRANSMIT_BYTES,
    FIELD_NVLINK_COUNT,
    FIELD_NVLINK_CRC,
    FIELD_NVLINK_CRC_DATA_TOTAL,
    FIELD_NVLINK_CRC_FLIT_TOTAL,
    FIELD_NVLINK_RECEIVE_KIB,
    FIELD_NVLINK_RECOVERY,
    FIELD_NVLINK_RECOVERY_TOTAL,
    FIELD_NVLINK_REPLAY,
    FIELD_NVLINK_REPLAY_TOTAL,
    FIELD_NVLINK_STATE,
    FIELD_NVLINK_TRANSMIT_KIB,
    NVLINK_ACTIVE,
    NVLINK_SLEEP,
    SCOPE_ALL_LINKS,
    Field,
)
from clusterwatt.nvml.device import Device
from clusterwatt.readings.gpu_links import (
    GpuC2cErrors,
    GpuNvlinkCrc,
    GpuNvlinkErrors,
    GpuNvlinkLink,
    GpuNvlinkLinkErrors,
    GpuNvlinks,
    GpuNvlinkTraffic,
)

TRAFFIC = Table(GpuNvlinkTraffic, labels=("gpu", "uuid"))
COUNT = Table(GpuNvlinks, labels=("gpu", "uuid"))
ERRORS = Table(GpuNvlinkErrors, labels=("gpu", "uuid", "error"))
LINK = Table(GpuNvlinkLink, labels=("gpu", "uuid", "link"))
LINK_ERRORS = Table(GpuNvlinkLinkErrors, labels=("gpu", "uuid", "link", "error"))
C2C_ERRORS = Table(GpuC2cErrors, labels=("gpu", "uuid", "error"))
METRICS = (
    LINK.gauge("gpu_nvlink_up", "1: the NVLink is up.", "up", STANDARD),
    COUNT.gauge("gpu_nvlinks_up", "NVLinks that are up.", "up", STANDARD),
    COUNT.gauge(
        "gpu_nvlinks_expected",
        "NVLinks that should be up: all that the board has, or the most seen up on boards for bridges.",
        "expected",
        STANDARD,
    ),
    TRAFFIC.counter(
        "gpu_nvlink_receive_bytes_total", "Bytes received over all NVLinks.", "receive_bytes", STANDARD
    ),
    TRAFFIC.counter(
        "gpu_nvlink_transmit_bytes_total", "Bytes sent over all NVLinks.", "transmit_bytes", STANDARD
    ),
    ERRORS.counter("gpu_nvlink_errors_total", "Errors of all NVLinks by kind.", "errors", STANDARD),
    LINK.counter(
        "gpu_nvlink_link_receive_bytes_total", "Bytes received over the NVLink.", "receive_bytes", FULL
    ),
    LINK.counter(
        "gpu_nvlink_link_transmit_bytes_total", "Bytes sent over the NVLink.", "transmit_bytes", FULL
    ),
    LINK_ERRORS.counter("gpu_nvlink_link_errors_total", "Errors of the NVLink by kind.", "errors", FULL),
    C2C_ERRORS.counter("gpu_c2c_errors_total", "Errors of the link between CPU and GPU.", "errors", FULL),
)

# Field to bytes per count, for what is received and what is sent.
RECEIVE = {FIELD_NVLINK_RECEIVE_KIB: 1024, FIELD_NVLINK5_RECEIVE_BYTES: 1}
TRANSMIT = {FIELD_NVLINK_TRANSMIT_KIB: 1024, FIELD_NVLINK5_TRANSMIT_BYTES: 1}
TRAFFIC_FIELDS: tuple[Field, ...] = tuple((number, SCOPE_ALL_LINKS) for number in (*RECEIVE, *TRANSMIT))
LINK_ERROR_FIELDS = {
    FIELD_NVLINK_REPLAY: "replay",
    FIELD_NVLINK_RECOVERY: "recovery",
    FIELD_NVLINK_CRC: "crc",
    FIELD_NVLINK5_RECOVERY: "recovery",
    FIELD_NVLINK5_SYMBOL: "symbol",
}
TOTAL_ERROR_FIELDS: Mapping[Field, str] = {
    FIELD_NVLINK_REPLAY_TOTAL: "replay",
    FIELD_NVLINK_RECOVERY_TOTAL: "recovery",
    FIELD_NVLINK_CRC_FLIT_TOTAL: "crc",
    FIELD_NVLINK_CRC_DATA_TOTAL: "crc",
}
LINK_FIELDS = (FIELD_NVLINK_STATE, *RECEIVE, *TRANSMIT, *LINK_ERROR_FIELDS)
C2C_FIELDS = {
    FIELD_C2C_INTERRUPT: "interrupt",
    FIELD_C2C_REPLAY: "replay",
    FIELD_C2C_REPLAY_BACK_TO_BACK: "replay_back_to_back",
}
LINK_UP = (NVLINK_ACTIVE, NVLINK_SLEEP)
MOST_LINKS = 128  # a count beyond is no count


def traffic(device: Device, values: Mapping[Field, float]) -> Iterator[GpuNvlinkTraffic]:
    """Bytes over all links, from the fields just read."""
    receive = _bytes(values, RECEIVE, SCOPE_ALL_LINKS)
    transmit = _bytes(values, TRANSMIT, SCOPE_ALL_LINKS)
    if receive is not None or transmit is not None:
        yield GpuNvlinkTraffic(
            gpu=device.gpu, uuid=device.uuid, receive_bytes=receive, transmit_bytes=transmit
        )


class Nvlinks:
    """The links of one GPU, one by one."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._count: int | None = None
        self._soldered = False
        self._most_up = 0
        self._errors: dict[Field, float] = {}

    def read(
        self,
    ) -> Iterator[GpuNvlinkLink | GpuNvlinkLinkErrors | GpuNvlinkErrors | GpuNvlinks]:
        """State, bytes and errors of each link, and the errors of all; one driver call."""
        device, count = self._device, self._links()
        if not count:
            return
        numbers = [number for number in LINK_FIELDS if not device.lacks(number, 0)]
        values = device.fields([(number, link) for number in numbers for link in range(count)])
        states = [self._state(values, link) for link in range(count)]
        for link, state in enumerate(states):
            yield GpuNvlinkLink(
                gpu=device.gpu,
                uuid=device.uuid,
                link=str(link),
                up=state,
                receive_bytes=_bytes(values, RECEIVE, link),
                transmit_bytes=_bytes(values, TRANSMIT, link),
            )
        yield from self._link_errors(values)
        up = states.count(1.0)
        self._most_up = max(self._most_up, up)
        expected = count if self._all_links_expected() else self._most_up
        yield GpuNvlinks(
            gpu=device.gpu,
            uuid=device.uuid,
            up=None if states.count(None) == count else float(up),
            expected=float(expected),
        )

    def _links(self) -> int | None:
        """How many links the board has. Link 0 shows which fields there are."""
        if self._count is None:
            count = self._device.fields((FIELD_NVLINK_COUNT,)).get(FIELD_NVLINK_COUNT)
            if count is not None and count <= MOST_LINKS:
                self._count = int(count)
                self._device.fields([(number, 0) for number in LINK_FIELDS])
        return self._count

    def _all_links_expected(self) -> bool:
        """On SXM boards and in an NVSwitch fabric every link has a partner; elsewhere bridges decide."""
        if not self._soldered:
            name = self._device.text("nvmlDeviceGetName") or ""
            self._soldered = "SXM" in name or in_fabric(self._device)
        return self._soldered

    def _state(self, values: Mapping[Field, float], link: int) -> float | None:
        state = values.get((FIELD_NVLINK_STATE, link))
        if state is None and self._device.lacks(FIELD_NVLINK_STATE, 0):
            state = self._device.ask("nvmlDeviceGetNvLinkState", link)
        return None if state is None else float(state in LINK_UP)

    def _link_errors(self, values: Mapping[Field, float]) -> Iterator[GpuNvlinkLinkErrors | GpuNvlinkErrors]:
        """Errors by link and in all. The sum keeps the last count of a link that states none now."""
        device = self._device
        for field, errors in values.items():
            if field[0] in LINK_ERROR_FIELDS:
                self._errors[field] = errors
                yield GpuNvlinkLinkErrors(
                    gpu=device.gpu,
                    uuid=device.uuid,
                    link=str(field[1]),
                    error=LINK_ERROR_FIELDS[field[0]],
                    errors=errors,
                )
        sums: dict[str, float] = {}
        for (number, _), errors in self._errors.items():
            sums[LINK_ERROR_FIELDS[number]] = sums.get(LINK_ERROR_FIELDS[number], 0.0) + errors
        for error, errors in (sums or self._totals()).items():
            yield GpuNvlinkErrors(gpu=device.gpu, uuid=device.uuid, error=error, errors=errors)

    def _totals(self) -> dict[str, float]:
        """Errors of drivers that do not state them by link (before r525)."""
        values = self._device.fields(tuple(TOTAL_ERROR_FIELDS))
        totals: dict[str, float] = {}
        for field, errors in values.items():
            totals[TOTAL_ERROR_FIELDS[field]] = totals.get(TOTAL_ERROR_FIELDS[field], 0.0) + errors
        if FIELD_NVLINK_CRC_FLIT_TOTAL in values and FIELD_NVLINK_CRC_DATA_TOTAL not in values:
            del totals["crc"]  # half of a sum would step back
        return totals


def crc_errors(device: Device) -> Iterator[GpuNvlinkCrc]:
    """CRC errors by what was damaged (before Hopper)."""
    values = device.fields((FIELD_NVLINK_CRC_FLIT_TOTAL, FIELD_NVLINK_CRC_DATA_TOTAL))
    if values:
        yield GpuNvlinkCrc(
            gpu=device.gpu,
            uuid=device.uuid,
            flow_control_errors=values.get(FIELD_NVLINK_CRC_FLIT_TOTAL),
            data_errors=values.get(FIELD_NVLINK_CRC_DATA_TOTAL),
        )


def c2c_errors(device: Device) -> Iterator[GpuC2cErrors]:
    """Errors of the link between CPU and GPU, summed over its lanes (superchips only)."""
    links = device.fields((FIELD_C2C_COUNT,)).get(FIELD_C2C_COUNT)
    if not links or links > MOST_LINKS:
        return
    values = device.fields([(number, link) for number in C2C_FIELDS for link in range(int(links))])
    for number, error in C2C_FIELDS.items():
        counts = [count for (field, _), count in values.items() if field == number]
        if len(counts) == links:
            yield GpuC2cErrors(gpu=device.gpu, uuid=device.uuid, error=error, errors=sum(counts))


def _bytes(values: Mapping[Field, float], units: Mapping[int, int], scope: int) -> float | None:
    for number, unit in units.items():
        if (number, scope) in values:
            return values[number, scope] * unit
    return None
