"""The page itself: the counters that are asked for, as dcgm-exporter writes them.

One line for each GPU or MIG instance and counter, in the text format 0.0.4, with the labels of
dcgm-exporter: https://github.com/NVIDIA/dcgm-exporter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from clusterwatt.config.model import DcgmPage as Settings
from clusterwatt.expose.dcgm.counters import CounterList, default_counters, read_counters
from clusterwatt.expose.dcgm.fields import FIELDS, KNOWN, LABELS, WINDOW_S, Moment, Row, field_of
from clusterwatt.expose.dcgm.recent import Recent, ago
from clusterwatt.expose.render import headers, label_value
from clusterwatt.readings.gpu import GpuBoard, GpuInfo
from clusterwatt.readings.gpu_measured import DriverInfo
from clusterwatt.readings.snapshot import Snapshot

NEARLY = 0.9  # of an interval is enough for a rate: ticks are not quite even
LOOKS = 10  # how often in an interval counters are kept, so that one of the right age is at hand


def counters(settings: Settings) -> CounterList:
    """The counters that the settings ask for. Raises ConfigError."""
    if settings.counters_file:
        return read_counters(Path(settings.counters_file), KNOWN, skip_unknown=settings.skip_unknown)
    return default_counters(KNOWN)


class DcgmPage:
    """Renders snapshots under the names of dcgm-exporter. `identity` is the same for pages that are alike."""

    def __init__(self, settings: Settings, wanted: CounterList, hostname: str) -> None:
        self.identity = (settings, wanted)
        self._hostname = ("hostname" if settings.hostname_lower_case else "Hostname", hostname)
        self._labels = [counter.name for counter in wanted.counters if counter.kind == "label"]
        self._counters = [
            (counter, FIELDS[field_of(counter.name)])
            for counter in wanted.counters
            if counter.kind != "label"
        ]
        fields = [field for _, field in self._counters]
        every_s = settings.interval_seconds
        self._interval_s = every_s
        self._before = Recent(
            {kind for field in fields for kind in field.before}, every_s=every_s / LOOKS, reach_s=every_s
        )
        self._window = Recent(
            {kind for field in fields for kind in field.window}, every_s=every_s, reach_s=WINDOW_S
        )

    def take(self, snapshot: Snapshot) -> Callable[[], bytes]:
        """Take the next snapshot; what makes its page, at any time and on any thread."""
        before = ago(self._before.take(snapshot), snapshot.monotonic_s, self._interval_s * NEARLY)
        return partial(self._render, Moment(snapshot, before, self._window.take(snapshot)))

    def _render(self, moment: Moment) -> bytes:
        devices = self._devices(moment.snapshot)
        board_of = {info.uuid: info.parent_uuid for info in moment.snapshot.of(GpuInfo)}
        page: list[str] = []
        for counter, field in self._counters:
            rows = [row for row in field.rows(moment) if row.uuid in devices]
            # Where instances have the quantity, the board would have it a second time in a sum.
            split = {board_of[row.uuid] for row in rows}
            lines: dict[str, str] = {}
            for row in rows:
                if row.uuid not in split:
                    series = f"{counter.name}{{{devices[row.uuid]}{_further(row.labels)}}}"
                    lines.setdefault(series, f"{series} {_text(row)}\n")
            if lines:
                page.append(headers(counter.name, counter.kind, counter.help)[0])
                page += lines.values()
        return "".join(page).encode()

    def _devices(self, snapshot: Snapshot) -> dict[str, str]:
        """The labels that name each GPU and MIG instance, by UUID.

        Whoever holds a GPU (namespace, pod, container) belongs at the end of them.
        """
        infos = {info.uuid: info for info in snapshot.of(GpuInfo)}
        boards = {board.uuid: board for board in snapshot.of(GpuBoard)}
        driver = snapshot.one(DriverInfo)
        devices = {}
        for uuid, info in infos.items():
            whole = infos.get(info.parent_uuid, info)
            stated = {name: LABELS[name](whole, boards.get(whole.uuid), driver) for name in self._labels}
            labels = {
                "gpu": whole.gpu,
                "UUID": whole.uuid,
                "pci_bus_id": whole.pci_bus_id,
                "device": f"nvidia{whole.minor or whole.gpu}",
                "modelName": whole.name,
                **_instance(info),
                self._hostname[0]: self._hostname[1],
                **{name: text for name, text in stated.items() if text},
            }
            devices[uuid] = _further(labels).removeprefix(",")
        return devices


def _instance(info: GpuInfo) -> Mapping[str, str]:
    """Profile and number of the GPU instance, without its compute instance; nothing for a whole GPU."""
    if not info.parent_uuid:
        return {}
    profile = info.mig_profile.rpartition("c.")[2]  # 1c.3g.40gb is a third of a 3g.40gb
    return {"GPU_I_PROFILE": profile, "GPU_I_ID": info.gpu_instance}


def _further(labels: Mapping[str, str]) -> str:
    return "".join(f',{name}="{label_value(value)}"' for name, value in labels.items())


def _text(row: Row) -> str:
    """Integers as they are, others with six decimals, as dcgm-exporter writes them."""
    return str(row.value) if isinstance(row.value, int) else f"{row.value:.6f}"
