"""How many NVIDIA GPUs sit on the PCI bus (Documentation/ABI/testing/sysfs-bus-pci).

Also one that the driver could not take; not those that are given to another, such as vfio-pci. A GPU that
fell off the bus stays listed until the bus is scanned anew, as at a boot: one that is missing then is not
counted.
"""

from __future__ import annotations

import os
from pathlib import Path

DEVICES = "sys/bus/pci/devices"
NVIDIA = "0x10de"
DISPLAY = "0x03"  # VGA and 3D controllers; a GPU's audio and an NVSwitch have other classes


def gpus(root: str) -> int:
    """The number of GPUs below a root; 0 where the bus cannot be read."""
    try:
        return sum(_is_gpu(device) for device in Path(root, DEVICES).iterdir())
    except OSError:
        return 0


def _is_gpu(device: Path) -> bool:
    try:
        vendor, kind = (device / "vendor").read_text("ascii"), (device / "class").read_text("ascii")
    except (OSError, ValueError):
        return False
    if vendor.strip() != NVIDIA or not kind.startswith(DISPLAY):
        return False
    if (device / "physfn").is_symlink():  # a virtual function is no board
        return False
    try:
        return os.path.basename(os.readlink(device / "driver")) == "nvidia"
    except OSError:  # nobody's
        return True
