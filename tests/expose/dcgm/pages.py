"""Pages in the words of dcgm-exporter, of readings by hand or of a simulated node, and how to read them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from clusterwatt.config.model import DcgmPage as Settings
from clusterwatt.expose.dcgm.fields import KNOWN
from clusterwatt.expose.dcgm.page import DcgmPage, counters
from clusterwatt.pipeline import Pipeline
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuInfo
from clusterwatt.readings.gpu_measured import DriverInfo
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.simulate.nvml import uninstall
from tests.clocks import FakeClock
from tests.nodes import PATIENT_S, DriverHere

A = "GPU-aaaaaaaa-0000-0000-0000-00000000000a"
B = "GPU-bbbbbbbb-0000-0000-0000-00000000000b"
DRIVER = DriverInfo("580.65.06", "13.580.65.06", "13.0", "false")


def info(gpu: str, uuid: str, minor: str) -> GpuInfo:
    address = f"00000000:{int(gpu) + 1:02X}:00.0"
    name = "NVIDIA H100 80GB HBM3"
    return GpuInfo(gpu, uuid, name, "hopper", address, minor, "16", "96", "", "", "false")


def instance(gpu: str, uuid: str, parent: str, profile: str, number: str) -> GpuInfo:
    """A MIG instance, which knows less of itself than its board."""
    return GpuInfo(gpu, uuid, "NVIDIA H100", "hopper", "", "", "", "", parent, profile, "false", number)


GPU_A, GPU_B = info("0", A, "0"), info("1", B, "1")


def snapshot(*readings: Reading, monotonic_s: float = 1000.0) -> Snapshot:
    parts: dict[type[Reading], tuple[Reading, ...]] = {}
    for reading in readings:
        parts[type(reading)] = (*parts.get(type(reading), ()), reading)
    return Snapshot(1, 1_700_000_000.0, monotonic_s, parts)


def asked(*lines: str) -> str:
    """A counters file; a line without a comma is the name of a gauge."""
    return "".join(f"{line}\n" if "," in line else f"{line}, gauge, Text.\n" for line in lines)


def page_for(tmp_path: Path, *lines: str, **settings: float | bool) -> DcgmPage:
    """A page with these counters, and a GPU's name without driver version unless that is asked for."""
    file = tmp_path / "counters.csv"
    file.write_text(asked(*lines), encoding="utf-8")
    chosen = Settings(counters_file=str(file), **settings)  # type: ignore[arg-type]  # each of its own type
    return DcgmPage(chosen, counters(chosen), "gpu-node-17")


def text(page: DcgmPage, *snapshots: Snapshot) -> str:
    """The page after these snapshots."""
    make = [page.take(snapshot) for snapshot in snapshots][-1]
    return make().decode()


def values(page: str, **labels: str) -> dict[str, str]:
    """Values by name of the counter, of the series that have these labels."""
    found: dict[str, str] = {}
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        match = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line)
        assert match, line
        if all(f'{name}="{value}"' in match[2] for name, value in labels.items()):
            assert match[1] not in found, f"{match[1]} twice"
            found[match[1]] = match[3]
    return found


def names_on(page: str) -> set[str]:
    """Counters and labels of a page."""
    return {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE ")} | set(
        re.findall(r'(?<=[{,])(\w+)="', page)
    )


def every_counter() -> Sequence[str]:
    """Lines that ask for all that there is."""
    kinds = {name: "label" if name in KNOWN.labels else "gauge" for name in KNOWN.values | KNOWN.labels}
    return [f"{name}, {kind}, Text." for name, kind in sorted(kinds.items())]


def simulated(page: DcgmPage, card: str, seconds: int, mig: Mapping[int, Sequence[str]] | None = None) -> str:
    """The page of a node with eight simulated cards, some of them cut, after some seconds."""
    clock = FakeClock()
    driver = DriverHere(card, clock, mig)
    published: list[Snapshot] = []
    pipeline = Pipeline((), driver, clock, published.append, every_s=PATIENT_S)
    made = b""
    try:
        for _ in range(seconds):
            asyncio.run(pipeline.tick())
            made = page.take(published[-1])()
            clock.advance(1.0)
    finally:
        uninstall()
    return made.decode()
