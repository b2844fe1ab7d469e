"""RDMA devices and their ports, from /sys/class/infiniband.

Documentation/ABI/stable/sysfs-class-infiniband. Data counters count words of four bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from clusterwatt.collectors.attempts import Attempts
from clusterwatt.collectors.node_exporter.families import COUNTER, GAUGE, Found, Row, table
from clusterwatt.collectors.rdma import RATE
from clusterwatt.collectors.rdma_expectation import GIGABIT_BYTES
from clusterwatt.collectors.rdma_ports import CLASS, WORD_BYTES
from clusterwatt.sysfs import Files

T = TypeVar("T")

STATE = re.compile(r"(\d+):")
MILLISECONDS = 1000.0

# Folder, file, and the name behind `node_infiniband_`.
COUNTERS = (
    ("counters_ext", "port_multicast_rcv_packets", "legacy_multicast_packets_received"),
    ("counters_ext", "port_multicast_xmit_packets", "legacy_multicast_packets_transmitted"),
    ("counters_ext", "port_rcv_data_64", "legacy_data_received_bytes"),
    ("counters_ext", "port_rcv_packets_64", "legacy_packets_received"),
    ("counters_ext", "port_unicast_rcv_packets", "legacy_unicast_packets_received"),
    ("counters_ext", "port_unicast_xmit_packets", "legacy_unicast_packets_transmitted"),
    ("counters_ext", "port_xmit_data_64", "legacy_data_transmitted_bytes"),
    ("counters_ext", "port_xmit_packets_64", "legacy_packets_transmitted"),
    ("counters", "excessive_buffer_overrun_errors", "excessive_buffer_overrun_errors"),
    ("counters", "link_downed", "link_downed"),
    ("counters", "link_error_recovery", "link_error_recovery"),
    ("counters", "local_link_integrity_errors", "local_link_integrity_errors"),
    ("counters", "multicast_rcv_packets", "multicast_packets_received"),
    ("counters", "multicast_xmit_packets", "multicast_packets_transmitted"),
    ("counters", "port_rcv_constraint_errors", "port_constraint_errors_received"),
    ("counters", "port_xmit_constraint_errors", "port_constraint_errors_transmitted"),
    ("counters", "port_rcv_data", "port_data_received_bytes"),
    ("counters", "port_xmit_data", "port_data_transmitted_bytes"),
    ("counters", "port_rcv_discards", "port_discards_received"),
    ("counters", "port_xmit_discards", "port_discards_transmitted"),
    ("counters", "port_rcv_errors", "port_errors_received"),
    ("counters", "port_rcv_packets", "port_packets_received"),
    ("counters", "port_xmit_packets", "port_packets_transmitted"),
    ("counters", "port_xmit_wait", "port_transmit_wait"),
    ("counters", "unicast_rcv_packets", "unicast_packets_received"),
    ("counters", "unicast_xmit_packets", "unicast_packets_transmitted"),
    ("counters", "port_rcv_remote_physical_errors", "port_receive_remote_physical_errors"),
    ("counters", "port_rcv_switch_relay_errors", "port_receive_switch_relay_errors"),
    ("counters", "symbol_error", "symbol_error"),
    ("counters", "VL15_dropped", "vl15_dropped"),
    ("hw_counters", "duplicate_request", "duplicate_requests_packets"),
    ("hw_counters", "implied_nak_seq_err", "implied_nak_seq_errors"),
    ("hw_counters", "local_ack_timeout_err", "local_ack_timeout_errors"),
    ("hw_counters", "np_cnp_sent", "np_cnp_packets_sent"),
    ("hw_counters", "np_ecn_marked_roce_packets", "np_ecn_marked_roce_packets_received"),
    ("hw_counters", "out_of_buffer", "out_of_buffer_drops"),
    ("hw_counters", "out_of_sequence", "out_of_sequence_packets_received"),
    ("hw_counters", "packet_seq_err", "packet_sequence_errors"),
    ("hw_counters", "req_cqe_error", "req_cqes_errors"),
    ("hw_counters", "req_cqe_flush_error", "req_cqes_flush_errors"),
    ("hw_counters", "req_remote_access_errors", "req_remote_access_errors"),
    ("hw_counters", "req_remote_invalid_request", "req_remote_invalid_request_errors"),
    ("hw_counters", "resp_cqe_error", "resp_cqes_errors"),
    ("hw_counters", "resp_cqe_flush_error", "resp_cqes_flush_errors"),
    ("hw_counters", "resp_local_length_error", "resp_local_length_errors"),
    ("hw_counters", "resp_remote_access_errors", "resp_remote_access_errors"),
    ("hw_counters", "rnr_nak_retry_err", "rnr_nak_retry_packets_received"),
    ("hw_counters", "roce_adp_retrans", "roce_adp_retransmits"),
    ("hw_counters", "roce_adp_retrans_to", "roce_adp_retransmits_timeout"),
    ("hw_counters", "roce_slow_restart", "roce_slow_restart_used"),
    ("hw_counters", "roce_slow_restart_cnps", "roce_slow_restart_cnps"),
    ("hw_counters", "roce_slow_restart_trans", "roce_slow_restart"),
    ("hw_counters", "rp_cnp_handled", "rp_cnp_packets_handled"),
    ("hw_counters", "rp_cnp_ignored", "rp_cnp_ignored_packets_received"),
    ("hw_counters", "rx_atomic_requests", "rx_atomic_requests"),
    ("hw_counters", "rx_dct_connect", "rx_dct_connect_requests"),
    ("hw_counters", "rx_icrc_encapsulated", "rx_icrc_encapsulated_errors"),
    ("hw_counters", "rx_read_requests", "rx_read_requests"),
    ("hw_counters", "rx_write_requests", "rx_write_requests"),
)
COLUMNS = (
    ("node_infiniband_state_id", GAUGE),
    ("node_infiniband_physical_state_id", GAUGE),
    ("node_infiniband_rate_bytes_per_second", GAUGE),
    ("node_infiniband_lifespan_seconds", GAUGE),
    *((f"node_infiniband_{name}_total", COUNTER) for _, _, name in COUNTERS),
)


class Infiniband:
    """Reads the counters that each port has."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._attempts = Attempts()

    def families(self) -> Found:
        """One port that fails costs no other."""
        infos: list[Row] = []
        rows: list[Row] = []
        for device in self._files.names(CLASS):
            folder = f"{CLASS}/{device}"
            get = partial(self._attempts.get, item=device)
            texts = [
                get(self._files.text, f"{folder}/{file}") or "" for file in ("board_id", "fw_ver", "hca_type")
            ]
            infos.append(((device, *texts), (1.0,)))
            rows.extend(
                ((device, port), self._port(f"{folder}/ports/{port}", f"{device}/{port}"))
                for port in get(self._files.names, f"{folder}/ports") or ()
            )
        labels = ("device", "board_id", "firmware_version", "hca_type")
        yield from table(CLASS, labels, (("node_infiniband_info", GAUGE),), infos)
        yield from table(CLASS, ("device", "port"), COLUMNS, rows)
        yield from self._attempts.take()

    def _port(self, base: str, item: str) -> list[float | None]:
        def get(read: Callable[[str], T | None], file: str) -> T | None:
            return self._attempts.get(read, f"{base}/{file}", item)

        offered = {
            folder: frozenset(get(self._files.names, folder) or ())
            for folder in ("counters", "counters_ext", "hw_counters")
        }
        states = [STATE.match(get(self._files.text, file) or "") for file in ("state", "phys_state")]
        rate = RATE.match(get(self._files.text, "rate") or "")
        lifespan = get(self._files.integer, "hw_counters/lifespan")
        counts = [
            get(self._files.integer, f"{folder}/{file}") if file in offered[folder] else None
            for folder, file, _ in COUNTERS
        ]
        return [
            *(float(state[1]) if state else None for state in states),
            float(rate[1]) * GIGABIT_BYTES if rate else None,
            None if lifespan is None else lifespan / MILLISECONDS,
            *(
                count * WORD_BYTES if count is not None and name.endswith("_bytes") else count
                for count, (_, _, name) in zip(counts, COUNTERS, strict=True)
            ),
        ]
