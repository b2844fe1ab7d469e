"""Bonds: links that are configured and links that are up, from /sys/class/net/*/bonding.

Documentation/networking/bonding.rst, chapter 5. The kernel knows only links that are enslaved now: a card
that fell off the bus, or came back without being enslaved, makes its number smaller. So configured are as
many as the bond has had for an hour, at any time; an earlier agent's word counts for a week.
"""

from __future__ import annotations

from clusterwatt.catalog import STANDARD, Table
from clusterwatt.clock import Clock
from clusterwatt.collectors.interfaces import CLASS
from clusterwatt.learnt import Learnt
from clusterwatt.readings.network import Bond
from clusterwatt.sysfs import Files

BOND = Table(Bond, labels=("device",))
METRICS = (
    BOND.gauge("bond_members_up", "Links of the bond that are up.", "members_up", level=STANDARD),
    BOND.gauge(
        "bond_members",
        "Links that the bond should have: those that it has, or as many as it has had for an hour.",
        "members",
        level=STANDARD,
    ),
)

KIND = "bond_members"  # what is remembered
FOR_SECONDS = 3_600.0


class Bonds:
    """Reads bonds, and remembers how many links each has had."""

    def __init__(self, files: Files, clock: Clock, learnt: Learnt) -> None:
        self._files = files
        self._clock = clock
        self._learnt = learnt
        self._stands: dict[str, tuple[int, float]] = {}  # links of a bond, and since when they are as many

    def read(self, device: str) -> Bond | None:
        """The state of a bond; None when it went away."""
        listed = self._files.text(f"{CLASS}/{device}/bonding/slaves")
        if listed is None:
            self._stands.pop(device, None)
            return None
        names = listed.split()
        up = sum(_is_up(self._files, device, name) for name in names)
        return Bond(device=device, members=float(self._configured(device, len(names))), members_up=float(up))

    def _configured(self, device: str, links: int) -> int:
        now_s = self._clock.monotonic_s()
        if self._stands.get(device, (None, 0.0))[0] != links:
            self._stands[device] = links, now_s
        known = int(self._learnt.of(KIND).get(device, 0.0))
        if links >= known and now_s - self._stands[device][1] >= FOR_SECONDS:
            self._learnt.most(KIND, device, links)
        return max(links, known)


def _is_up(files: Files, bond: str, member: str) -> bool:
    # The member's own directory, then the links to it in the bond's: `lower_`, `slave_` on old kernels.
    for base in (f"{CLASS}/{member}", f"{CLASS}/{bond}/lower_{member}", f"{CLASS}/{bond}/slave_{member}"):
        status = files.text(f"{base}/bonding_slave/mii_status")
        if status is not None:
            # A bond without link monitoring (miimon=0) calls every member up: the link has the last word.
            return status == "up" and files.text(f"{base}/operstate") in ("up", "unknown", None)
    return False
