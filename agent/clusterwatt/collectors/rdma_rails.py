"""Rails: ports numbered in one order on every node of a kind, so that like can be compared with like."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clusterwatt.sysfs import Files

PCI_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
# mlx5 makes one device of two bonded ports and calls it so (drivers/infiniband/hw/mlx5/main.c).
BONDED = re.compile(r".*_bond_\d+")

Address = tuple[int, ...]


class Rails:
    """Numbers of ports: as configured, else in the order of the bus.

    A port keeps its place when it is gone, so that a card that fell off the bus does not rename the others.
    """

    def __init__(self, configured: Sequence[str]) -> None:
        self._configured = {item: str(number) for number, item in enumerate(configured)}
        self._seen: dict[str, tuple[Address, str]] = {}

    def see(self, item: str, address: Address) -> None:
        """Take in where on the bus a port, named `device/port`, sits."""
        self._seen[item] = (address, item.partition("/")[2].zfill(3))

    def of(self, item: str) -> str:
        """The number of a port's rail; empty when it has none."""
        if self._configured:
            return self._configured.get(item, "")
        order = sorted(self._seen, key=lambda seen: self._seen[seen])
        return str(order.index(item)) if item in self._seen else ""


def bus_address(files: Files, folder: str) -> Address | None:
    """Where the card of an RDMA device sits; None for what is no rail: virtual functions, bonds, software."""
    name = folder.rpartition("/")[2]
    link = files.link(f"{folder}/device") or ""
    address = PCI_ADDRESS.fullmatch(link.rpartition("/")[2])
    if address is None or BONDED.fullmatch(name) or files.exists(f"{folder}/device/physfn"):
        return None
    return tuple(int(part, 16) for part in address.groups())
