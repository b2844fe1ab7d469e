"""Bonds: links that are configured and links that are up, from /sys/class/net/*/bonding.

Documentation/networking/bonding.rst, chapter 5. The kernel knows only links that are enslaved now: a card
that fell off the bus is no longer a member and makes both numbers smaller.
"""

from __future__ import annotations

from clusterwatt.catalog import STANDARD, Table
from clusterwatt.collectors.interfaces import CLASS
from clusterwatt.readings.network import Bond
from clusterwatt.sysfs import Files

BOND = Table(Bond, labels=("device",))
METRICS = (
    BOND.gauge("bond_members_up", "Links of the bond that are up.", "members_up", level=STANDARD),
    BOND.gauge("bond_members", "Links of the bond that are configured.", "members", level=STANDARD),
)


def read_bond(files: Files, device: str) -> Bond | None:
    """The state of a bond; None when it went away."""
    members = files.text(f"{CLASS}/{device}/bonding/slaves")
    if members is None:
        return None
    names = members.split()
    up = sum(_is_up(files, device, name) for name in names)
    return Bond(device=device, members=float(len(names)), members_up=float(up))


def _is_up(files: Files, bond: str, member: str) -> bool:
    # The member's own directory, then the links to it in the bond's: `lower_`, `slave_` on old kernels.
    for base in (f"{CLASS}/{member}", f"{CLASS}/{bond}/lower_{member}", f"{CLASS}/{bond}/slave_{member}"):
        status = files.text(f"{base}/bonding_slave/mii_status")
        if status is not None:
            # A bond without link monitoring (miimon=0) calls every member up: the link has the last word.
            return status == "up" and files.text(f"{base}/operstate") in ("up", "unknown", None)
    return False
