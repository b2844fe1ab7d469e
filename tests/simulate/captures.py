"""Reads what nvidia-smi said of real boards, as text (-q) or as XML (-q -x)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "shared/fixtures/nvidia-smi"

# Names of the XML that the text spells in another way; the others are the same once put in lower case.
_SPELLINGS = {
    "fb memory usage": "fb_memory_usage",
    "bar1 memory usage": "bar1_memory_usage",
    "gpu current temp": "gpu_temp",
    "gpu t.limit temp": "gpu_temp_tlimit",
    "gpu shutdown t.limit temp": "gpu_temp_max_tlimit_threshold",
    "gpu slowdown t.limit temp": "gpu_temp_slow_tlimit_threshold",
    "gpu max operating t.limit temp": "gpu_temp_max_gpu_tlimit_threshold",
    "memory max operating t.limit temp": "gpu_temp_max_mem_tlimit_threshold",
    "gpu shutdown temp": "gpu_temp_max_threshold",
    "gpu slowdown temp": "gpu_temp_slow_threshold",
    "gpu max operating temp": "gpu_temp_max_gpu_threshold",
    "memory max operating temp": "gpu_temp_max_mem_threshold",
    "memory current temp": "memory_temp",
    "instantaneous power draw": "instant_power_draw",
    "serial number": "serial",
    "gpu uuid": "uuid",
    "sm": "sm_clock",
    "mig mode/current": "mig_mode/current_mig",
    "ecc mode/current": "ecc_mode/current_ecc",
    "gpu c2c mode": "c2c_mode",
    "utilization/gpu": "utilization/gpu_util",
    "utilization/encoder": "utilization/encoder_util",
    "clocks/sm": "clocks/sm_clock",
    "max clocks/sm": "max_clocks/sm_clock",
    "max clocks/memory": "max_clocks/mem_clock",
    "max clocks/video": "max_clocks/video_clock",
    "pci/gpu link info/pcie generation/max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "pci/gpu link info/link width/max": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "pci/device id": "pci/pci_device_id",
    "pci/sub system id": "pci/pci_sub_system_id",
    "inforom version/image version": "inforom_version/img_version",
    "remapped rows/correctable error": "remapped_rows/remapped_row_corr",
    "remapped rows/bank remap availability histogram/max": (
        "remapped_rows/row_remapper_histogram/row_remapper_histogram_max"
    ),
    "retired pages/single bit ecc": "retired_pages/multiple_single_bit_retirement/retired_count",
    "clocks event reasons/idle": "clocks_event_reasons/clocks_event_reason_gpu_idle",
}


class Capture:
    """One board: values by path; None for what the board does not offer."""

    def __init__(self, driver: str, values: Mapping[str, str]) -> None:
        self.driver = driver
        self._values = values

    def text(self, path: str) -> str | None:
        """The value, or None if it is N/A or not there."""
        value = self._values.get(path, "N/A").strip()
        return None if value in {"N/A", "[N/A]", ""} else value

    def number(self, path: str) -> float | None:
        """The number at the start of the value."""
        text = self.text(path)
        found = re.match(r"-?[\d.]+", text) if text is not None else None
        return float(found[0]) if found else None


def read(path: Path) -> Capture:
    """Read one capture; of several boards, the first."""
    return _read_xml(path) if path.suffix == ".xml" else _read_text(path)


def _read_xml(path: Path) -> Capture:
    root = ElementTree.parse(path).getroot()
    gpu = root.find("gpu")
    assert gpu is not None
    values: dict[str, str] = {}

    def walk(element: ElementTree.Element, prefix: str) -> None:
        for child in element:
            if len(child):
                walk(child, f"{prefix}{child.tag}/")
            else:
                values.setdefault(f"{prefix}{child.tag}", child.text or "")

    walk(gpu, "")
    return Capture(root.findtext("driver_version") or "", values)


def _read_text(path: Path) -> Capture:
    values: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    driver = ""
    for line in path.read_text().splitlines():
        key, colon, value = line.partition(" : ")
        name = key.strip().lower()
        if name == "driver version":
            driver = value.strip()
        depth = len(line) - len(line.lstrip())
        if not name or not depth:
            continue
        while above and above[-1][0] >= depth:
            above.pop()
        if colon:
            values.setdefault(_spelled([part for _, part in above] + [name]), value)
        else:
            above.append((depth, name))
    return Capture(driver, values)


def _spelled(parts: list[str]) -> str:
    """The path as the XML has it."""
    whole = "/".join(parts)
    if whole in _SPELLINGS:
        return _SPELLINGS[whole]
    return "/".join(_SPELLINGS.get(part, part.replace(" ", "_").replace("-", "_")) for part in parts)
