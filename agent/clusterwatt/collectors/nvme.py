"""Health of NVMe disks: wear, spare, media errors, temperature, from the drive's own log.

The SMART / Health Information log, page 02h of the NVM Express Base Specification, asked for by an admin
command through the controller's device (NVME_IOCTL_ADMIN_CMD, include/uapi/linux/nvme_ioctl.h), which takes
root. Who may not ask gets nothing: it is no failure. The temperature alone is for everybody, from hwmon.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import struct
from collections.abc import Callable, Iterator

from clusterwatt.catalog import FULL, Table
from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.storage import DiskHealth
from clusterwatt.sysfs import Files

CONTROLLERS = "/sys/class/nvme"
NAMESPACE = re.compile(r"(nvme\d+)(?:c\d+)?(n\d+)")

NVME_IOCTL_ADMIN_CMD = 0xC0484E41  # _IOWR('N', 0x41, struct nvme_admin_cmd), 72 bytes
GET_LOG_PAGE = 0x02
HEALTH_LOG = 0x02
LOG_BYTES = 512
ALL_NAMESPACES = 0xFFFFFFFF
TIMEOUT_MS = 2_000
# opcode, flags, reserved, nsid, cdw2, cdw3; metadata, address; their lengths; cdw10 to 15; timeout; result
COMMAND = struct.Struct("=BBHIIIQQII6III")
ZERO_CELSIUS_KELVIN = 273

NOT_OFFERED = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.ENOTTY})

ReadLog = Callable[[str], bytes]

HEALTH = Table(DiskHealth, labels=("device",))
METRICS = (
    HEALTH.gauge(
        "disk_wear_ratio", "Share of the drive's rated life that is used; may exceed 1.", "wear_ratio", FULL
    ),
    HEALTH.gauge("disk_spare_ratio", "Spare blocks that are left, of all spare.", "spare_ratio", FULL),
    HEALTH.counter(
        "disk_media_errors_total",
        "Errors of the medium that the drive could not correct.",
        "media_errors",
        FULL,
    ),
    HEALTH.gauge("disk_temperature_celsius", "Temperature of the drive.", "temperature_celsius", FULL),
)


class NvmeCollector:
    """Asks each controller for its log, and gives it to the disks behind the controller."""

    name = "nvme"

    def __init__(self, files: Files, read_log: ReadLog | None = None) -> None:
        self._files = files
        self._read_log = read_log or read_health_log

    def collect(self) -> Iterator[Reading]:
        """One reading for each disk whose controller answers."""
        seen: set[str] = set()
        for controller in self._files.names(CONTROLLERS):
            disks = {
                found[1] + found[2]
                for name in self._files.names(f"{CONTROLLERS}/{controller}")
                if (found := NAMESPACE.fullmatch(name))
            } - seen
            if not disks:
                continue
            try:
                log = self._read_log(f"{self._files.root}/dev/{controller}")
            except OSError as error:
                if error.errno not in NOT_OFFERED:
                    yield failure(controller, error)
                continue
            if len(log) < LOG_BYTES or not any(log):
                yield Failure(item=controller, reason="format", detail="an empty health log")
                continue
            seen |= disks  # a second path to the same disks says the same
            yield from (health(disk, log) for disk in sorted(disks))


def health(disk: str, log: bytes) -> DiskHealth:
    """The reading of one health log (figure 208 of the specification, revision 2.0)."""
    kelvin = int.from_bytes(log[1:3], "little")
    return DiskHealth(
        device=disk,
        wear_ratio=log[5] / 100,
        spare_ratio=log[3] / 100,
        media_errors=float(int.from_bytes(log[160:176], "little")),
        temperature_celsius=float(kelvin - ZERO_CELSIUS_KELVIN) if kelvin else None,
    )


def read_health_log(path: str) -> bytes:
    """Ask a controller for its health log; blocks for two seconds at most. Raises OSError."""
    log = (ctypes.c_char * LOG_BYTES)()
    dwords = LOG_BYTES // 4 - 1  # counted from zero, in the upper half of command dword 10
    command = bytearray(
        COMMAND.pack(
            GET_LOG_PAGE, 0, 0, ALL_NAMESPACES, 0, 0, 0, ctypes.addressof(log), 0, LOG_BYTES,
            HEALTH_LOG | dwords << 16, 0, 0, 0, 0, 0, TIMEOUT_MS, 0,
        )
    )  # fmt: skip
    device = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = fcntl.ioctl(device, NVME_IOCTL_ADMIN_CMD, command)
    finally:
        os.close(device)
    if status:
        raise OSError(errno.EIO, f"the drive refused with status {status:#x}", path)
    return bytes(log)
