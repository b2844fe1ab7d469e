"""Protocols, sockets and neighbours of the host's network namespace."""

from __future__ import annotations

from pathlib import Path
from resource import getpagesize

from clusterwatt.collectors.node_exporter import sockets
from tests.collectors.node_exporter.families import files_of, values
from tests.machines import put

SNMP = """Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm MaxConn ActiveOpens RetransSegs
Tcp: 1 -1 3556 14
"""
NETSTAT = """TcpExt: SyncookiesSent TCPTimeouts PAWSActive
TcpExt: 0 7 3
IpExt: InOctets
IpExt: 6286396970
"""
SNMP6 = "Ip6InOctets                     \t460\nIcmp6InType135 \t7\nUdp6NoPorts\t6\n"


def test_counters_of_protocols_that_node_exporter_shows(tmp_path: Path) -> None:
    for file, text in (("snmp", SNMP), ("netstat", NETSTAT), ("snmp6", SNMP6)):
        put(tmp_path, f"/proc/1/net/{file}", text)
    put(tmp_path, "/proc/net/snmp", "Tcp: ActiveOpens\nTcp: 99\n")  # the reader's own namespace
    found = list(sockets.netstat(files_of(tmp_path)))
    numbers = {family.name.removeprefix("node_netstat_") for family in found if hasattr(family, "name")}
    assert numbers == {
        *("Ip_Forwarding", "Tcp_ActiveOpens", "Tcp_RetransSegs", "TcpExt_SyncookiesSent"),
        *("TcpExt_TCPTimeouts", "IpExt_InOctets", "Ip6_InOctets", "Udp6_NoPorts"),
    }
    assert values(found, "node_netstat_Tcp_ActiveOpens") == {(): 3556}
    assert values(found, "node_netstat_IpExt_InOctets") == {(): 6_286_396_970}
    assert values(found, "node_netstat_Ip6_InOctets") == {(): 460}


def test_sockets_and_their_memory(tmp_path: Path) -> None:
    put(tmp_path, "/proc/1/net/sockstat", "sockets: used 229\nTCP: inuse 4 orphan 0 tw 4 alloc 17 mem 2\n")
    put(tmp_path, "/proc/1/net/sockstat6", "TCP6: inuse 17\n")
    found = list(sockets.sockstat(files_of(tmp_path)))
    assert values(found, "node_sockstat_sockets_used") == {(): 229}
    assert values(found, "node_sockstat_TCP_tw") == {(): 4}
    assert values(found, "node_sockstat_TCP_mem_bytes") == {(): 2 * getpagesize()}
    assert values(found, "node_sockstat_TCP6_inuse") == {(): 17}


def test_the_cpu_of_a_line_is_the_one_that_it_names(tmp_path: Path) -> None:
    old = "0000000a 00000001 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000003"
    put(tmp_path, "/proc/1/net/softnet_stat", f"{old} 00000004 00000000 00000007\n{old}\n")
    found = list(sockets.softnet(files_of(tmp_path)))
    assert values(found, "node_softnet_processed_total") == {("7",): 10, ("1",): 10}
    assert values(found, "node_softnet_received_rps_total") == {("7",): 3, ("1",): 3}
    assert values(found, "node_softnet_flow_limit_count_total") == {("7",): 4}


def test_neighbours_by_interface_and_random_bits(tmp_path: Path) -> None:
    head = "IP address       HW type     Flags       HW address            Mask     Device\n"
    row = "10.0.0.{}        0x1         0x2         cc:aa:dd:ee:aa:bb     *        {}\n"
    put(
        tmp_path,
        "/proc/1/net/arp",
        head + row.format(1, "eth0") + row.format(2, "eth0") + row.format(3, "eth1"),
    )
    put(tmp_path, "/proc/sys/kernel/random/entropy_avail", "256\n")
    put(tmp_path, "/proc/sys/kernel/random/poolsize", "256\n")
    arp = list(sockets.neighbours(files_of(tmp_path)))
    assert values(arp, "node_arp_entries") == {("eth0",): 2, ("eth1",): 1}
    assert values(sockets.entropy(files_of(tmp_path)), "node_entropy_pool_size_bits") == {(): 256}
