"""Protocols, sockets and neighbours, from /proc/PID/net of the host's first process.

Documentation/networking/snmp_counter.rst, Documentation/filesystems/proc.rst (section 1.4), and
net/core/net-procfs.c of Linux.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from resource import getpagesize

from clusterwatt.collectors.node_exporter.families import COUNTER, GAUGE, UNTYPED, Found, Row, single, table
from clusterwatt.sysfs import Files

# The fields that node_exporter shows by default; the kernel has ten times as many.
SHOWN = re.compile(
    r".*_(InErrors|InErrs)|Ip_Forwarding|Ip(6|Ext)_(InOctets|OutOctets)|Icmp6?_(InMsgs|OutMsgs)|"
    r"TcpExt_(Listen.*|Syncookies.*|TCPSynRetrans|TCPTimeouts|TCPOFOQueue|TCPRcvQDrop)|"
    r"Tcp_(ActiveOpens|InSegs|OutSegs|OutRsts|PassiveOpens|RetransSegs|CurrEstab)|"
    r"Udp6?_(InDatagrams|OutDatagrams|NoPorts|RcvbufErrors|SndbufErrors)"
)
PROTOCOL6 = re.compile(r"(Ip6|Icmp6|UdpLite6|Udp6)(.+)")
SOFTNET = (  # columns of softnet_stat, which are hexadecimal
    (0, "node_softnet_processed_total"),
    (1, "node_softnet_dropped_total"),
    (2, "node_softnet_times_squeezed_total"),
    (9, "node_softnet_received_rps_total"),
    (10, "node_softnet_flow_limit_count_total"),
)
CPU_OF_SOFTNET = 12  # since Linux 5.10; before, lines of CPUs that are offline are simply not there


def _net(files: Files, name: str) -> str:
    """A file of the host's network namespace; empty where there is none."""
    for folder in ("/proc/1/net", "/proc/net"):
        try:
            text = files.text(f"{folder}/{name}")
        except PermissionError:  # procfs is mounted with hidepid
            continue
        if text is not None:
            return text
    return ""


def netstat(files: Files) -> Found:
    """Counters of the protocols."""
    found = {
        name: value
        for file in ("netstat", "snmp", "snmp6")
        for name, value in _counts(_net(files, file))
        if SHOWN.fullmatch(name)
    }
    yield from single(
        "/proc/net", ((f"node_netstat_{name}", UNTYPED, value) for name, value in found.items())
    )


def _counts(text: str) -> Iterator[tuple[str, float]]:
    """Either a line of names above each line of numbers, or a name and a number on each line."""
    names: list[str] = []
    for line in text.splitlines():
        protocol, colon, rest = line.partition(":")
        words = rest.split()
        if not colon:
            name, value = line.split()
            found = PROTOCOL6.fullmatch(name)
            if found is not None:
                yield f"{found[1]}_{found[2]}", float(value)
        elif words and words[0].lstrip("-").isdigit():
            yield from ((f"{protocol}_{name}", float(word)) for name, word in zip(names, words, strict=False))
        else:
            names = words


def sockstat(files: Files) -> Found:
    """Sockets by protocol; memory in pages, and in bytes."""
    values: list[tuple[str, str, float]] = []
    for file in ("sockstat", "sockstat6"):
        for line in _net(files, file).splitlines():
            protocol, _, rest = line.partition(":")
            words = rest.split()
            for name, word in zip(words[::2], words[1::2], strict=False):
                values.append((f"node_sockstat_{protocol}_{name}", GAUGE, float(word)))
                if name == "mem":
                    in_bytes = float(int(word) * getpagesize())
                    values.append((f"node_sockstat_{protocol}_mem_bytes", GAUGE, in_bytes))
    yield from single("/proc/net/sockstat", values)


def softnet(files: Files) -> Found:
    """Packets that each CPU took from its interfaces."""
    rows: list[Row] = []
    for index, line in enumerate(_net(files, "softnet_stat").splitlines()):
        columns = [int(word, 16) for word in line.split()]
        cpu = columns[CPU_OF_SOFTNET] if len(columns) > CPU_OF_SOFTNET else index
        rows.append(
            ((str(cpu),), [columns[column] if column < len(columns) else None for column, _ in SOFTNET])
        )
    columns_of_table = tuple((name, COUNTER) for _, name in SOFTNET)
    yield from table("/proc/net/softnet_stat", ("cpu",), columns_of_table, rows)


def neighbours(files: Files) -> Found:
    """Entries of the ARP table by interface."""
    lines = _net(files, "arp").splitlines()[1:]
    often = Counter(words[5] for words in map(str.split, lines) if len(words) > 5)
    rows: list[Row] = [((device,), (float(count),)) for device, count in often.items()]
    yield from table("/proc/net/arp", ("device",), (("node_arp_entries", GAUGE),), rows)


def entropy(files: Files) -> Found:
    """Random bits that the kernel has at hand."""
    folder = "/proc/sys/kernel/random"
    yield from single(
        folder,
        (
            ("node_entropy_available_bits", GAUGE, files.integer(f"{folder}/entropy_avail")),
            ("node_entropy_pool_size_bits", GAUGE, files.integer(f"{folder}/poolsize")),
        ),
    )
