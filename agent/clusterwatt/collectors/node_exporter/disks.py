"""Block devices: /proc/diskstats, udev's word on them, RAID arrays, NVMe controllers.

Documentation/admin-guide/iostats.rst, Documentation/admin-guide/md.rst, /run/udev/data (systemd-udevd).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from clusterwatt.collectors.attempts import Attempts
from clusterwatt.collectors.disk import COUNTS, MILLISECONDS, SECTOR_BYTES
from clusterwatt.collectors.node_exporter.families import COUNTER, GAUGE, Found, Row, table
from clusterwatt.sysfs import Files

# node_exporter's own default: it leaves out what is in memory, and partitions.
EXCLUDED = re.compile(r"(z?ram|loop|fd|(h|s|v|xv)d[a-z]|nvme\d+n\d+p)\d+")
COLUMNS = (
    ("node_disk_reads_completed_total", COUNTER),
    ("node_disk_reads_merged_total", COUNTER),
    ("node_disk_read_bytes_total", COUNTER),
    ("node_disk_read_time_seconds_total", COUNTER),
    ("node_disk_writes_completed_total", COUNTER),
    ("node_disk_writes_merged_total", COUNTER),
    ("node_disk_written_bytes_total", COUNTER),
    ("node_disk_write_time_seconds_total", COUNTER),
    ("node_disk_io_now", GAUGE),
    ("node_disk_io_time_seconds_total", COUNTER),
    ("node_disk_io_time_weighted_seconds_total", COUNTER),
    ("node_disk_discards_completed_total", COUNTER),
    ("node_disk_discards_merged_total", COUNTER),
    ("node_disk_discarded_sectors_total", COUNTER),  # sectors, as the name says
    ("node_disk_discard_time_seconds_total", COUNTER),
    ("node_disk_flush_requests_total", COUNTER),
    ("node_disk_flush_requests_time_seconds_total", COUNTER),
)
SECTORS = frozenset({2, 6})
TIMES = frozenset({3, 7, 9, 10, 14, 16})

UDEV = "/run/udev/data"
INFO = ("device", "major", "minor", "path", "wwn", "model", "serial", "revision", "rotational")
SERIALS = ("SCSI_IDENT_SERIAL", "ID_SERIAL_SHORT", "ID_SERIAL")

MDSTAT = "/proc/mdstat"
MD_BLOCKS = re.compile(r"(\d+) blocks")
MD_MEMBERS = re.compile(r"\[(\d+)/(\d+)\] \[[U_]+\]")
MD_ACTIVITY = re.compile(r"recovery|reshape|check|resync")
MD_PROGRESS = re.compile(r"\((\d+)/\d+\)")
MD_STATES = {"active": "active", "inactive": "inactive", "recovery": "recovering", "resync": "resync"} | {
    "check": "check"
}
MD_STATE_LABELS = ("active", "inactive", "recovering", "resync", "check")
MD_COLUMNS = (
    ("node_md_disks_required", GAUGE),
    ("node_md_blocks", GAUGE),
    ("node_md_blocks_synced", GAUGE),
)

NVME = "/sys/class/nvme"
NVME_FILES = ("firmware_rev", "model", "serial", "state", "cntlid")
NVME_INFO = ("device", "firmware_revision", "model", "serial", "state", "cntlid")


def diskstats(files: Files) -> Found:
    """Every block device that node_exporter shows: stacked devices too, so they must not be added up."""
    rows: list[Row] = []
    for name, _, counts in _lines(files):
        rows.append(
            (
                (name,),
                [
                    count * SECTOR_BYTES
                    if column in SECTORS
                    else count / MILLISECONDS
                    if column in TIMES
                    else count
                    for column, count in enumerate(counts)
                ],
            )
        )
    yield from table("/proc/diskstats", ("device",), COLUMNS, rows)


def _lines(files: Files) -> Iterator[tuple[str, tuple[str, str], list[int]]]:
    """Name, major and minor, statistics of each device that is not excluded."""
    for line in (files.text("/proc/diskstats") or "").splitlines():
        major, minor, name, *counts = line.split()
        if len(counts) >= COUNTS and not EXCLUDED.fullmatch(name):
            yield name, (major, minor), [int(count) for count in counts]


def disk_infos(files: Files) -> Found:
    """Identity of each device as udev knows it; empty where udev does not run, as in a VM or container."""
    rows: list[Row] = []
    for name, numbers, _ in _lines(files):
        udev = _udev(files, ":".join(numbers))
        serial = next((udev[key] for key in SERIALS if udev.get(key)), "")
        known = [udev.get(f"ID_{key}", "") for key in ("PATH", "WWN", "MODEL")]
        rotational = files.integer(f"/sys/block/{name}/queue/rotational") == 1
        key = (name, *numbers, *known, serial, udev.get("ID_REVISION", ""), str(int(rotational)))
        rows.append((key, (1.0,)))
    yield from table(UDEV, INFO, (("node_disk_info", GAUGE),), rows)


def _udev(files: Files, numbers: str) -> Mapping[str, str]:
    path = f"{UDEV}/b{numbers}"
    try:
        text = files.text(path) or ""
    except PermissionError:
        return {}
    files.forget(path)  # udev writes a new file for each change
    pairs = (line[2:].partition("=") for line in text.splitlines() if line.startswith("E:"))
    return {key: value for key, _, value in pairs}


def arrays(files: Files) -> Found:
    """RAID arrays by /proc/mdstat: members, state, and how far a recovery or check has come."""
    rows: list[Row] = []
    members: list[Row] = []
    states: list[Row] = []
    for name, lines in _arrays(files.text(MDSTAT) or ""):
        array = _Array(lines)
        rows.append(((name,), (array.required, array.blocks, array.synced)))
        members += [((name, state), (float(count),)) for state, count in array.members.items()]
        states += [((name, state), (float(state == array.state),)) for state in MD_STATE_LABELS]
    yield from table(MDSTAT, ("device",), MD_COLUMNS, rows)
    yield from table(MDSTAT, ("device", "state"), (("node_md_disks", GAUGE),), members)
    yield from table(MDSTAT, ("device", "state"), (("node_md_state", GAUGE),), states)
    yield from _from_sysfs(files)


def _arrays(text: str) -> Iterator[tuple[str, list[str]]]:
    """Name and lines of each array; an empty line ends it."""
    name, lines = "", list[str]()
    for line in [*text.splitlines(), ""]:
        head = re.match(r"(md\S*) : ", line)
        if head or not line.strip() or not line.startswith(" "):
            if name:
                yield name, lines
            name, lines = "", []
        if head:
            name = head[1]
        if name:
            lines.append(line)


class _Array:
    """What the lines of one array say."""

    def __init__(self, lines: list[str]) -> None:
        head, status = lines[0], lines[1] if len(lines) > 1 else ""
        blocks = MD_BLOCKS.search(status)
        self.blocks = float(blocks[1]) if blocks else None
        named = [word for word in head.split() if re.fullmatch(r"\S+\[\d+\](\([A-Z]\))*", word)]
        slots = MD_MEMBERS.search(status)
        inactive = " inactive " in head
        redundant = not inactive and not re.search(r" (raid0|linear) ", head)
        required = active = 0 if inactive else len(named)
        if redundant and slots:
            required, active = int(slots[1]), int(slots[2])
        self.required = float(required)
        self.members = {"active": active, "failed": head.count("(F)"), "spare": head.count("(S)")}
        self.state = "inactive" if inactive else "active"
        self.synced = self.blocks
        for line in lines[2:]:
            activity = MD_ACTIVITY.search(line)
            if activity is None:
                continue
            self.state = MD_STATES.get(activity[0], "")
            progress = MD_PROGRESS.search(line)
            self.synced = float(progress[1]) if progress else 0.0  # PENDING or DELAYED
            return


def _from_sysfs(files: Files) -> Found:
    rows: list[Row] = []
    for name in files.names("/sys/block"):
        folder = f"/sys/block/{name}/md"
        if name.startswith("md") and files.exists(folder):
            rows.append(
                ((name,), (files.integer(f"{folder}/raid_disks"), files.integer(f"{folder}/degraded")))
            )
    columns = (("node_md_raid_disks", GAUGE), ("node_md_degraded", GAUGE))
    yield from table("/sys/block", ("device",), columns, rows)


class Nvme:
    """NVMe controllers by name."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._attempts = Attempts()

    def families(self) -> Found:
        """One row for each controller."""
        rows: list[Row] = []
        for device in self._files.names(NVME):
            texts = [
                self._attempts.get(self._files.text, f"{NVME}/{device}/{file}", device) or ""
                for file in NVME_FILES
            ]
            rows.append(((device, *texts), (1.0,)))
        yield from table(NVME, NVME_INFO, (("node_nvme_info", GAUGE),), rows)
        yield from self._attempts.take()
