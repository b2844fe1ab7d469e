"""Pause frames of Ethernet cards, from the drivers' own statistics (`ethtool -S`, without running it).

Asked through the SIOCETHTOOL ioctl (include/uapi/linux/ethtool.h), which needs no privilege and answers for
the network namespace of the agent itself: in a container it takes host networking, else nothing is found. A
driver gathers thousands of numbers for each answer, under the lock of all interfaces; off by default.

Pause frames are how a lossless (RoCE) network pushes back: received, the network tells this node to wait;
sent, this node cannot keep up. Virtual functions do not offer them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import re
import socket
import struct
from collections.abc import Callable, Iterator, Mapping

from clusterwatt.catalog import FULL, Table
from clusterwatt.collectors.interfaces import CLASS, is_interface, kind_of
from clusterwatt.failures import failure
from clusterwatt.readings.base import Reading
from clusterwatt.readings.network import NetworkPause
from clusterwatt.sysfs import Files

SIOCETHTOOL = 0x8946
ETHTOOL_GSTRINGS = 0x1B
ETHTOOL_GSTATS = 0x1D
ETHTOOL_GSSET_INFO = 0x37
ETH_SS_STATS = 1
NAME_BYTES = 32
# The kernel writes as many names and numbers as the driver has at that moment, not as many as we asked for:
# room for a driver that was given more queues since we asked for their number.
SPARE = 8192

NOT_OFFERED = frozenset({errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL, errno.ENOTTY})

Ioctl = Callable[[str, bytearray], None]

# Names of mlx5, bnxt_en, ice and ionic. Link-level pause has no priority and is called `global`.
FRAMES = (
    re.compile(r"(?P<way>[rt]x)_prio(?P<priority>[0-7])_pause"),
    re.compile(r"(?P<way>[rt]x)_pause_ctrl_phy"),
    re.compile(r"(?P<way>[rt]x)_pfc_ena_frames_pri(?P<priority>[0-7])"),
    re.compile(r"(?P<way>[rt]x)_pause_frames"),
    re.compile(r"(?P<way>[rt]x)_priority_(?P<priority>[0-7])_xoff\.nic"),
    re.compile(r"link_xoff_(?P<way>[rt]x)\.nic"),
)
MICROSECONDS = (
    re.compile(r"(?P<way>[rt]x)_prio(?P<priority>[0-7])_pause_duration"),
    re.compile(r"(?P<way>[rt]x)_global_pause_duration"),
    re.compile(r"pfc_pri(?P<priority>[0-7])_(?P<way>[rt]x)_duration_us"),
    re.compile(r"(?P<way>[rt]x)_pripause_(?P<priority>[0-7])_1us_count"),
)
DIRECTIONS = {"rx": "receive", "tx": "transmit"}

PAUSE = Table(NetworkPause, labels=("device", "direction", "priority"))
METRICS = (
    PAUSE.counter(
        "network_pause_seconds_total",
        "Seconds in which a direction of the link stood still because of pause frames.",
        "pause_seconds",
        level=FULL,
    ),
    PAUSE.counter(
        "network_pause_frames_total",
        "Pause frames: received, the network pushes back; sent, this node cannot keep up.",
        "pause_frames",
        level=FULL,
    ),
)

Place = tuple[int, str, str]  # index among the driver's numbers, direction, priority


class EthtoolCollector:
    """Asks every physical interface. `ioctl` sends a command for an interface and lets it answer in place."""

    name = "ethtool"

    def __init__(self, files: Files, ioctl: Ioctl | None = None) -> None:
        self._files = files
        self._ioctl = ioctl or ask_kernel
        self._layouts: dict[str, tuple[bytes, list[Place], list[Place]]] = {}

    def collect(self) -> Iterator[Reading]:
        """One reading for each interface, direction and priority that has pause frames."""
        for device in self._files.names(CLASS):
            if not is_interface(self._files, device) or kind_of(self._files, device) != "physical":
                continue
            try:
                yield from self._read(device)
            except OSError as error:
                if error.errno not in NOT_OFFERED:
                    yield failure(device, error)

    def _read(self, device: str) -> Iterator[NetworkPause]:
        number = statistics_of(self._ioctl, device)
        if number == 0:
            return
        names = name_table(self._ioctl, device, number)
        known = self._layouts.get(device)
        if known is None or known[0] != names:
            known = self._layouts[device] = (names, places(names, FRAMES), places(names, MICROSECONDS))
        _, frames, microseconds = known
        if not frames and not microseconds:
            return
        values = numbers(self._ioctl, device, number)
        counted = {(way, priority): float(values[index]) for index, way, priority in frames}
        lasted = {(way, priority): values[index] / 1e6 for index, way, priority in microseconds}
        for key in sorted(counted.keys() | lasted.keys()):
            yield NetworkPause(
                device=device,
                direction=key[0],
                priority=key[1],
                pause_frames=counted.get(key),
                pause_seconds=lasted.get(key),
            )


def statistics_of(ioctl: Ioctl, device: str) -> int:
    """How many statistics a driver has."""
    command = bytearray(struct.pack("=IIQI", ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS, 0))
    ioctl(device, command)
    _, _, answered, number = struct.unpack("=IIQI", command)
    return int(number) if answered else 0


def name_table(ioctl: Ioctl, device: str, number: int) -> bytes:
    """Their names, each padded to 32 bytes."""
    head = struct.pack("=III", ETHTOOL_GSTRINGS, ETH_SS_STATS, number)
    command = bytearray(head + bytes((number + SPARE) * NAME_BYTES))
    ioctl(device, command)
    return bytes(command[len(head) : len(head) + number * NAME_BYTES])


def numbers(ioctl: Ioctl, device: str, number: int) -> tuple[int, ...]:
    """Their values, in the order of the names."""
    command = bytearray(struct.pack("=II", ETHTOOL_GSTATS, number) + bytes((number + SPARE) * 8))
    ioctl(device, command)
    return struct.unpack_from(f"={number}Q", command, 8)


def places(names: bytes, patterns: tuple[re.Pattern[str], ...]) -> list[Place]:
    """Where in a driver's numbers the pause frames are, or the time they took."""
    found: dict[tuple[str, str], int] = {}
    for index in range(len(names) // NAME_BYTES):
        name = (
            names[index * NAME_BYTES : (index + 1) * NAME_BYTES]
            .partition(b"\0")[0]
            .decode("ascii", "replace")
        )
        match = next(filter(None, (pattern.fullmatch(name) for pattern in patterns)), None)
        if match is not None:
            groups: Mapping[str, str] = match.groupdict()
            found.setdefault((DIRECTIONS[groups["way"]], groups.get("priority", "global")), index)
    return [(index, way, priority) for (way, priority), index in found.items()]


def ask_kernel(device: str, command: bytearray) -> None:
    """The real ioctl, on a socket of its own; any kind of socket will do."""
    answer = (ctypes.c_char * len(command)).from_buffer(command)
    # struct ifreq: 16 bytes of name, then a union of 24 that holds the address of the command.
    request = struct.pack("16sP", device.encode(), ctypes.addressof(answer)).ljust(40, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asking:
        fcntl.ioctl(asking, SIOCETHTOOL, request)
