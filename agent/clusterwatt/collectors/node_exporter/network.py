"""Interfaces: the table in procfs, attributes below /sys/class/net, bonds.

Documentation/networking/statistics.rst, Documentation/ABI/testing/sysfs-class-net.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from clusterwatt.collectors.attempts import Attempts
from clusterwatt.collectors.ethernet import MEGABIT_BYTES, TABLES, UNKNOWN_SPEEDS
from clusterwatt.collectors.interfaces import CLASS, is_interface
from clusterwatt.collectors.node_exporter.families import COUNTER, GAUGE, Found, Row, table
from clusterwatt.sysfs import Files

T = TypeVar("T")

# Columns of /proc/net/dev: receive, then transmit.
TABLE = (
    *("receive_bytes", "receive_packets", "receive_errs", "receive_drop", "receive_fifo", "receive_frame"),
    *("receive_compressed", "receive_multicast"),
    *("transmit_bytes", "transmit_packets", "transmit_errs", "transmit_drop", "transmit_fifo"),
    *("transmit_colls", "transmit_carrier", "transmit_compressed"),
)
TABLE_COLUMNS = tuple((f"node_network_{name}_total", COUNTER) for name in TABLE)

ATTRIBUTES = (  # file, name, kind
    ("addr_assign_type", "address_assign_type", GAUGE),
    ("carrier", "carrier", GAUGE),
    ("carrier_changes", "carrier_changes_total", COUNTER),
    ("carrier_up_count", "carrier_up_changes_total", COUNTER),
    ("carrier_down_count", "carrier_down_changes_total", COUNTER),
    ("dev_id", "device_id", GAUGE),
    ("dormant", "dormant", GAUGE),
    ("flags", "flags", GAUGE),
    ("ifindex", "iface_id", GAUGE),
    ("iflink", "iface_link", GAUGE),
    ("link_mode", "iface_link_mode", GAUGE),
    ("mtu", "mtu_bytes", GAUGE),
    ("name_assign_type", "name_assign_type", GAUGE),
    ("netdev_group", "net_dev_group", GAUGE),
    ("tx_queue_len", "transmit_queue_length", GAUGE),
    ("type", "protocol_type", GAUGE),
    ("statistics/rx_nohandler", "receive_nohandler_total", COUNTER),
)
COLUMNS = (
    ("node_network_up", GAUGE),
    ("node_network_speed_bytes", GAUGE),
    *((f"node_network_{name}", kind) for _, name, kind in ATTRIBUTES),
)
INFO = ("device", "address", "broadcast", "duplex", "operstate", "adminstate", "ifalias")
IFF_UP = 1


def table_of_devices(files: Files) -> Found:
    """The counters of each interface, from the network namespace of the host's first process."""
    rows: list[Row] = []
    for path in TABLES:
        try:
            content = files.text(path)
        except PermissionError:  # procfs is mounted with hidepid
            continue
        if content is None:
            continue
        for line in content.splitlines()[1:]:
            name, colon, numbers = line.rpartition(":")
            if colon and "|" not in line:
                rows.append(((name.strip(),), [float(number) for number in numbers.split()]))
        break
    yield from table("/proc/net/dev", ("device",), TABLE_COLUMNS, rows)


class Interfaces:
    """Attributes of each interface that is there."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._attempts = Attempts()

    def families(self) -> Found:
        """A speed that the driver does not know is absent."""
        rows: list[Row] = []
        infos: list[Row] = []
        for name in self._files.names(CLASS):
            if not is_interface(self._files, name):
                continue
            get = partial(self._get, name)
            state = get(self._files.text, "operstate")
            if state is None:
                continue
            numbers = [_integer(get(self._files.text, file)) for file, _, _ in ATTRIBUTES]
            speed = get(self._files.integer, "speed")
            known = speed is not None and speed >= 0 and speed not in UNKNOWN_SPEEDS
            rate = speed * MEGABIT_BYTES if known and speed is not None else None
            rows.append(((name,), [float(state == "up"), rate, *numbers]))
            flags = _integer(get(self._files.text, "flags"))
            texts = [get(self._files.text, file) or "" for file in ("address", "broadcast", "duplex")]
            admin = "unknown" if flags is None else "up" if flags & IFF_UP else "down"
            alias = get(self._files.text, "ifalias") or ""
            infos.append(((name, *texts, state, admin, alias), (1.0,)))
        yield from table(CLASS, ("device",), COLUMNS, rows)
        yield from table(CLASS, INFO, (("node_network_info", GAUGE),), infos)
        yield from self._attempts.take()

    def _get(self, name: str, read: Callable[[str], T | None], file: str) -> T | None:
        return self._attempts.get(read, f"{CLASS}/{name}/{file}", name)


def bonds(files: Files) -> Found:
    """Members of each bond, and those whose link monitoring says that they are up."""
    rows: list[Row] = []
    for bond in (files.text(f"{CLASS}/bonding_masters") or "").split():
        members = (files.text(f"{CLASS}/{bond}/bonding/slaves") or "").split()
        states = [_mii_status(files, bond, member) for member in members]
        rows.append(((bond,), (float(len(members)), float(states.count("up")))))
    columns = (("node_bonding_slaves", GAUGE), ("node_bonding_active", GAUGE))
    yield from table(CLASS, ("master",), columns, rows)


def _mii_status(files: Files, bond: str, member: str) -> str | None:
    for link in ("lower", "slave"):  # the second on old kernels
        status = files.text(f"{CLASS}/{bond}/{link}_{member}/bonding_slave/mii_status")
        if status is not None:
            return status
    return None


def _integer(text: str | None) -> int | None:
    """Some attributes are written in hexadecimal."""
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        return None
