"""Which NVIDIA GPUs sit on the PCI bus (Documentation/ABI/testing/sysfs-bus-pci).

A GPU that fell off the bus stays listed until the bus is scanned anew, as at a boot: one that is missing then
is not counted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

DEVICES = "sys/bus/pci/devices"
NVIDIA = "0x10de"
DISPLAY = "0x03"  # VGA and 3D controllers; a GPU's audio and an NVSwitch have other classes
DRIVER = "nvidia"


class Bus(NamedTuple):
    """Numbers of GPUs: those of NVIDIA's driver, of no driver, and of another, such as vfio-pci."""

    driven: int = 0
    unbound: int = 0
    foreign: int = 0


def gpus(root: str) -> Bus:
    """The GPUs below a root; none where the bus cannot be read."""
    try:
        drivers = [_driver(device) for device in Path(root, DEVICES).iterdir() if _is_gpu(device)]
    except OSError:
        return Bus()
    driven, unbound = drivers.count(DRIVER), drivers.count("")
    return Bus(driven, unbound, len(drivers) - driven - unbound)


def _is_gpu(device: Path) -> bool:
    try:
        vendor, kind = (device / "vendor").read_text("ascii"), (device / "class").read_text("ascii")
    except (OSError, ValueError):
        return False
    virtual = (device / "physfn").is_symlink()  # a virtual function is no board
    return vendor.strip() == NVIDIA and kind.startswith(DISPLAY) and not virtual


def _driver(device: Path) -> str:
    """The driver that has it; empty: none."""
    try:
        return os.path.basename(os.readlink(device / "driver"))
    except OSError:
        return ""
