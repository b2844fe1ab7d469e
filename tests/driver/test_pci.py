"""GPUs on the bus are counted also when their driver did not take them."""

from __future__ import annotations

from pathlib import Path

from clusterwatt.driver import pci
from tests.machines import put


def device(root: Path, address: str, vendor: str, kind: str) -> None:
    put(root, f"/sys/bus/pci/devices/{address}/vendor", f"{vendor}\n")
    put(root, f"/sys/bus/pci/devices/{address}/class", f"{kind}\n")


def test_every_gpu_of_nvidia_counts_and_nothing_else(tmp_path: Path) -> None:
    device(tmp_path, "0000:18:00.0", "0x10de", "0x030200")
    device(tmp_path, "0000:2a:00.0", "0x10de", "0x030000")
    device(tmp_path, "0000:2a:00.1", "0x10de", "0x040300")  # its audio
    device(tmp_path, "0000:07:00.0", "0x10de", "0x068000")  # an NVSwitch
    device(tmp_path, "0000:03:00.0", "0x1a03", "0x030000")  # the management controller's
    put(tmp_path, "/sys/bus/pci/devices/0000:99:00.0/vendor", "0x10de\n")  # going away
    for address, driver in (("0000:2b:00.0", "nvidia"), ("0000:2c:00.0", "vfio-pci")):
        device(tmp_path, address, "0x10de", "0x030200")
        (tmp_path / "sys/bus/pci/devices" / address / "driver").symlink_to(
            f"../../../bus/pci/drivers/{driver}"
        )
    assert pci.gpus(str(tmp_path)) == pci.Bus(driven=1, unbound=2, foreign=1)


def test_without_a_bus_nothing_is_stated(tmp_path: Path) -> None:
    assert pci.gpus(str(tmp_path)) == pci.Bus()
