"""Which RDMA ports there are, what each is, and which files hold its numbers.

From /sys/class/infiniband (Documentation/ABI/stable/sysfs-class-infiniband). Drivers name the same thing in
different ways and places; this is where the names are put together, once for each listing, so that a pass
only reads files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from clusterwatt.collectors.attempts import Attempts
from clusterwatt.collectors.rdma_rails import Rails, bus_address
from clusterwatt.readings.network import RdmaPortInfo
from clusterwatt.sysfs import Files

CLASS = "/sys/class/infiniband"
WORD_BYTES = 4  # the data counters of InfiniBand count 32-bit words, whatever the width of the link

Sources = tuple[tuple[tuple[str, ...], int], ...]

# For each quantity the sources in the order of preference: names whose values are added, and what one unit is
# worth. `*_64` from counters_ext (Linux before 4.5); `rdma_ucast` from ionic, whose counters/ stay empty
# (ROCm/omnistat#301); `rx_bytes` from EFA, bnxt_re and mana (drivers/infiniband/hw).
TRAFFIC: Mapping[str, Sources] = {
    "receive_bytes": (
        (("port_rcv_data_64",), WORD_BYTES),
        (("rx_rdma_ucast_bytes", "rx_rdma_mcast_bytes"), 1),
        (("port_rcv_data",), WORD_BYTES),
        (("rx_bytes",), 1),
    ),
    "transmit_bytes": (
        (("port_xmit_data_64",), WORD_BYTES),
        (("tx_rdma_ucast_bytes", "tx_rdma_mcast_bytes"), 1),
        (("port_xmit_data",), WORD_BYTES),
        (("tx_bytes",), 1),
    ),
    "receive_packets": (
        (("port_rcv_packets_64",), 1),
        (("rx_rdma_ucast_pkts", "rx_rdma_mcast_pkts"), 1),
        (("port_rcv_packets",), 1),
        (("rx_pkts",), 1),
        (("rx_packets",), 1),
    ),
    "transmit_packets": (
        (("port_xmit_packets_64",), 1),
        (("tx_rdma_ucast_pkts", "tx_rdma_mcast_pkts"), 1),
        (("port_xmit_packets",), 1),
        (("tx_pkts",), 1),
        (("tx_packets",), 1),
    ),
}

# Our names, and the files that count it: InfiniBand and mlx5 first, then EFA, bnxt_re, mana, ionic.
ERRORS: Mapping[str, tuple[str, ...]] = {
    "symbol": ("symbol_error",),
    "local_link_integrity": ("local_link_integrity_errors",),
    "buffer_overrun": ("excessive_buffer_overrun_errors",),
    "transmit_discard": ("port_xmit_discards",),
    "retransmit": (
        "packet_seq_err",
        "retrans_pkts",
        "seq_err_naks_rcvd",
        "requester_oos_nak",
        "req_rx_pkt_seq_err",
    ),
    "timeout": (
        "local_ack_timeout_err",
        "retrans_timeout_events",
        "to_retransmits",
        "requester_timeout",
        "tx_rdma_ack_timeout",
    ),
    "link_recovery": ("link_error_recovery",),
    "receive": ("port_rcv_errors", "rx_drops", "rx_roce_errors"),
    "remote_physical": ("port_rcv_remote_physical_errors",),
    "out_of_sequence": ("out_of_sequence", "oos_drop_count", "responder_oos"),
    "rnr": ("rnr_nak_retry_err", "rnr_naks_rcvd", "requester_rnr_nak"),
    "icrc": ("rx_icrc_encapsulated",),
}
CONGESTION: Mapping[str, tuple[str, ...]] = {
    "transmit_wait": ("port_xmit_wait",),
    "ecn_marked": ("np_ecn_marked_roce_packets", "rx_rdma_ecn_pkts", "received_ecns"),
    "cnp_sent": ("np_cnp_sent", "tx_rdma_cnp_pkts", "sent_cnps"),
    "cnp_handled": ("rp_cnp_handled", "rx_rdma_cnp_pkts", "received_cnps"),
}

FIRST_PMA = ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets")


class Traffic(msgspec.Struct, frozen=True):
    """Files whose values are added, and what one unit is worth. `narrow`: 32 bits wide, stops at all ones."""

    paths: tuple[str, ...]
    unit: int
    narrow: bool


class Port(msgspec.Struct, frozen=True):
    """A port, and the paths of all that is read of it at each pass. `item` is `device/port`."""

    device: str
    port: str
    item: str
    base: str
    info: RdmaPortInfo
    virtual: bool
    traffic: Mapping[str, Traffic]
    errors: Mapping[str, str]
    congestion: Mapping[str, str]
    link_downed: str | None


def find_ports(files: Files, attempts: Attempts, rails: Rails) -> list[Port]:
    """Every port of every device. What cannot be read of a port is left empty and noted in `attempts`.

    Raises OSError when the devices cannot be listed.
    """
    places: list[tuple[str, str, bool]] = []
    for device in files.names(CLASS):
        folder = f"{CLASS}/{device}"
        ports = attempts.get(files.names, f"{folder}/ports", device) or ()
        address = attempts.get(partial(bus_address, files), folder, device)
        for port in ports:
            places.append((device, port, len(ports) == 1))
            if address is not None:
                rails.see(f"{device}/{port}", address)
    return [
        _port(files, attempts, device, port, only, rails.of(f"{device}/{port}"))
        for device, port, only in places
    ]


def _port(files: Files, attempts: Attempts, device: str, port: str, only: bool, rail: str) -> Port:
    base = f"{CLASS}/{device}/ports/{port}"
    item = f"{device}/{port}"
    paths = dict(_counter_files(files, attempts, device, port, only))
    chosen = {
        quantity: _traffic(files, attempts, paths, sources, item) for quantity, sources in TRAFFIC.items()
    }
    return Port(
        device=device,
        port=port,
        item=item,
        base=base,
        info=RdmaPortInfo(
            device=device,
            port=port,
            link_layer=attempts.get(files.text, f"{base}/link_layer", item) or "",
            netdev=_netdev(files, attempts, device, port),
            rail=rail,
            firmware=attempts.get(files.text, f"{CLASS}/{device}/fw_ver", item) or "",
        ),
        virtual=files.exists(f"{CLASS}/{device}/device/physfn"),
        traffic={quantity: traffic for quantity, traffic in chosen.items() if traffic is not None},
        errors=_first_of(ERRORS, paths),
        congestion=_first_of(CONGESTION, paths),
        link_downed=paths.get("link_downed"),
    )


def _counter_files(
    files: Files, attempts: Attempts, device: str, port: str, only: bool
) -> Iterator[tuple[str, str]]:
    """Names and paths of the port's counters, and of the device's where it has only this port."""
    base = f"{CLASS}/{device}/ports/{port}"
    folders = [f"{base}/hw_counters", f"{base}/counters", f"{base}/counters_ext"]
    if only:
        folders.insert(0, f"{CLASS}/{device}/hw_counters")
    for folder in folders:
        for name in attempts.get(files.names, folder, f"{device}/{port}") or ():
            yield name, f"{folder}/{name}"


def _first_of(names: Mapping[str, tuple[str, ...]], paths: Mapping[str, str]) -> dict[str, str]:
    found = {ours: [paths[name] for name in theirs if name in paths] for ours, theirs in names.items()}
    return {ours: candidates[0] for ours, candidates in found.items() if candidates}


def _traffic(
    files: Files, attempts: Attempts, paths: Mapping[str, str], sources: Sources, item: str
) -> Traffic | None:
    """The first source that offers a number now; when none does, the first, so that a failure shows."""
    offered = [(names, unit) for names, unit in sources if names[0] in paths]
    if not offered:
        return None
    names, unit = next(
        (
            (names, unit)
            for names, unit in offered
            if attempts.get(files.integer, paths[names[0]], item) is not None
        ),
        offered[0],
    )
    # Old HCAs and some VFs have only the 32-bit counters of the first PMA; they lack the unicast ones
    # (drivers/infiniband/core/sysfs.c, get_counter_table).
    narrow = names[0] in FIRST_PMA and "unicast_rcv_packets" not in paths
    return Traffic(tuple(paths[name] for name in names if name in paths), unit, narrow)


def _netdev(files: Files, attempts: Attempts, device: str, port: str) -> str:
    """The network interface of a port: that of its first GID, else the device's; empty when there is none."""
    item = f"{device}/{port}"
    ndev = attempts.get(files.text, f"{CLASS}/{device}/ports/{port}/gid_attrs/ndevs/0", item)
    if ndev:
        return ndev
    folder = f"{CLASS}/{device}/device/net"
    names = attempts.get(files.names, folder, item) or ()
    if len(names) > 1:
        # Two ports on one function, or IPoIB children beside their parent: dev_port counts ports from 0.
        numbers = {name: attempts.get(files.integer, f"{folder}/{name}/dev_port", item) for name in names}
        names = tuple(name for name in names if str((numbers[name] or 0) + 1) == port)
    return names[0] if names else ""
