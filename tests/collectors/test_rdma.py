"""RDMA ports: units, names of drivers, odd answers, what a port should be, and coming and going."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from clusterwatt.catalog import Level, faults
from clusterwatt.collectors.rdma import METRICS, RdmaCollector
from clusterwatt.collectors.rdma_rails import Rails
from clusterwatt.config.model import RdmaCollector as Settings
from clusterwatt.learnt import Learnt
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.network import (
    RdmaCongestion,
    RdmaError,
    RdmaPort,
    RdmaPortExpectation,
    RdmaPortInfo,
)
from clusterwatt.sysfs import LISTING_SECONDS, Files
from tests.clocks import FakeClock
from tests.faulty import FaultyReads
from tests.machines import ROOTS, capture, put

DEFAULT = Settings()
HOUR = 3600.0


class Machine:
    """A tree and the collector that reads it."""

    def __init__(self, root: Path, settings: Settings = DEFAULT, learnt: Learnt | None = None) -> None:
        self.root = root
        self.clock = FakeClock()
        self.files = Files(root, self.clock)
        self.collector = RdmaCollector(self.files, settings, self.clock, learnt)

    def port(self, item: str = "mlx5_0/1", **attributes: str) -> None:
        device, port = item.split("/")
        for name, text in ({"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)"} | attributes).items():
            put(self.root, f"/sys/class/infiniband/{device}/ports/{port}/{name}", f"{text}\n")

    def count(self, name: str, value: int | str, item: str = "mlx5_0/1", folder: str = "counters") -> None:
        device, port = item.split("/")
        put(self.root, f"/sys/class/infiniband/{device}/ports/{port}/{folder}/{name}", f"{value}\n")

    def remove(self, device: str) -> None:
        shutil.rmtree(self.root / "sys/class/infiniband" / device)

    def collect(self) -> list[Reading]:
        return list(self.collector.collect())

    def ports(self) -> dict[str, RdmaPort]:
        return ports(self.collect())

    def expectations(self) -> dict[str, tuple[float, float | None]]:
        return expectations(self.collect())


def ports(readings: list[Reading]) -> dict[str, RdmaPort]:
    return {f"{r.device}/{r.port}": r for r in readings if isinstance(r, RdmaPort)}


def expectations(readings: list[Reading]) -> dict[str, tuple[float, float | None]]:
    return {
        f"{r.device}/{r.port}": (r.expected, r.link_rate_bytes_per_second)
        for r in readings
        if isinstance(r, RdmaPortExpectation)
    }


def infos(readings: list[Reading]) -> dict[str, RdmaPortInfo]:
    return {f"{r.device}/{r.port}": r for r in readings if isinstance(r, RdmaPortInfo)}


def errors(readings: list[Reading], item: str) -> dict[str, float]:
    return {
        r.error: r.errors for r in readings if isinstance(r, RdmaError) and f"{r.device}/{r.port}" == item
    }


def congestion(readings: list[Reading], item: str) -> dict[str, float]:
    return {
        r.kind: r.events for r in readings if isinstance(r, RdmaCongestion) and f"{r.device}/{r.port}" == item
    }


def failures(readings: list[Reading]) -> list[tuple[str, str]]:
    return [(reading.item, reading.reason) for reading in readings if isinstance(reading, Failure)]


def collect(name: str, settings: Settings = DEFAULT) -> list[Reading]:
    return Machine(ROOTS / name, settings).collect()


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# --- Units and names -----------------------------------------------------------------------------------


def test_g11_infiniband_words_become_bytes(here: Machine) -> None:
    here.port(rate="100 Gb/sec (2X HDR)")
    for name in ("port_xmit_data", "port_rcv_packets", "port_rcv_errors"):
        here.count(name, 1000)
    received = []
    for words in (1_000_000, 1_250_000):
        here.count("port_rcv_data", words)
        readings = here.collect()
        received.append(ports(readings)["mlx5_0/1"].receive_bytes)
        here.clock.advance(10.0)
    assert received == [4_000_000, 5_000_000]
    port = ports(readings)["mlx5_0/1"]
    assert port.transmit_bytes == 4000
    assert port.receive_packets == 1000
    assert errors(readings, "mlx5_0/1") == {"receive": 1000}
    assert port.link_rate_bytes_per_second == 12.5e9


def test_eight_rails_in_the_order_of_the_bus_and_not_of_the_names() -> None:
    found = infos(collect("h100-ib"))
    by_rail = sorted(found, key=lambda item: int(found[item].rail))
    assert by_rail == [f"mlx5_{number}/1" for number in (0, 3, 4, 5, 6, 9, 10, 11)]
    assert {found[item].netdev for item in found} == {
        f"ibp{bus}s0" for bus in (24, 64, 79, 94, 154, 192, 206, 220)
    }
    assert found["mlx5_0/1"] == RdmaPortInfo("mlx5_0", "1", "InfiniBand", "ibp24s0", "0", "28.41.1000")


def test_a_rail_of_an_h100_node() -> None:
    readings = collect("h100-ib")
    port = ports(readings)["mlx5_6/1"]  # the fifth on the bus
    assert port == RdmaPort(
        device="mlx5_6",
        port="1",
        receive_bytes=20_000_000,
        transmit_bytes=40_000_000,
        receive_packets=20_000,
        transmit_packets=40_000,
        up=1.0,
        link_rate_bytes_per_second=50e9,
        link_downed=0,
    )
    assert errors(readings, "mlx5_6/1") == {
        "symbol": 0,
        "local_link_integrity": 0,
        "buffer_overrun": 0,
        "transmit_discard": 0,
        "retransmit": 11,
        "timeout": 3,
        "link_recovery": 0,
        "receive": 0,
        "remote_physical": 0,
        "out_of_sequence": 0,
        "rnr": 0,
        "icrc": 0,
    }
    assert congestion(readings, "mlx5_6/1") == {"transmit_wait": 400}


def test_bonds_and_virtual_functions_have_no_rail() -> None:
    found = infos(collect("roce-bond"))
    assert {item: info.rail for item, info in found.items()} == {
        "mlx5_0/1": "0",
        "mlx5_1/1": "1",
        "mlx5_2/1": "",  # a virtual function, which lies between the two on the bus
        "mlx5_bond_0/1": "",
    }
    assert found["mlx5_bond_0/1"].netdev == "bond0"
    assert found["mlx5_bond_0/1"].link_layer == "Ethernet"


def test_rails_as_configured() -> None:
    found = infos(collect("roce-bond", Settings(rails=("mlx5_bond_0/1", "mlx5_1/1"))))
    assert {item: info.rail for item, info in found.items() if info.rail} == {
        "mlx5_bond_0/1": "0",
        "mlx5_1/1": "1",
    }


def test_a_card_that_fell_off_the_bus_does_not_rename_the_other_rails(
    here: Machine, faulty: FaultyReads
) -> None:
    for number, address in enumerate(("0000:18:00.0", "0000:9a:00.0", "0001:01:00.0")):
        here.port(f"mlx5_{number}/1")
        put(here.root, f"/sys/devices/{address}/vendor", "0x15b3\n")
        (here.root / f"sys/class/infiniband/mlx5_{number}/device").symlink_to(f"../../../devices/{address}")
    here.collect()
    faulty.faults = REMOVED
    here.remove("mlx5_1")
    here.collect()
    found = infos(here.collect())
    assert {item: info.rail for item, info in found.items()} == {"mlx5_0/1": "0", "mlx5_2/1": "2"}


def test_congestion_of_roce() -> None:
    readings = collect("roce-bond")
    assert congestion(readings, "mlx5_1/1") == {
        "transmit_wait": 0,
        "ecn_marked": 18,
        "cnp_sent": 10,
        "cnp_handled": 8,
    }
    assert errors(readings, "mlx5_1/1")["out_of_sequence"] == 2
    assert errors(readings, "mlx5_1/1")["rnr"] == 1


def test_efa_counts_bytes_and_not_words() -> None:
    readings = collect("efa")
    port = ports(readings)["rdmap80s0/1"]
    assert (port.receive_bytes, port.transmit_bytes) == (444_000, 222_000)
    assert (port.receive_packets, port.transmit_packets) == (800, 600)
    assert port.link_rate_bytes_per_second == 12.5e9
    assert errors(readings, "rdmap80s0/1") == {"retransmit": 6, "timeout": 2, "receive": 1}
    assert congestion(readings, "rdmap80s0/1") == {}
    assert infos(readings)["rdmap80s0/1"].rail == "1"


def test_ionic_counts_below_hw_counters_while_its_counters_stay_empty() -> None:
    readings = collect("broken-ports")
    port = ports(readings)["ionic_0/1"]
    assert (port.receive_bytes, port.transmit_bytes, port.receive_packets) == (5_050, 6_060, 50)
    assert congestion(readings, "ionic_0/1") == {"ecn_marked": 3, "cnp_sent": 2, "cnp_handled": 1}


def test_plain_bytes_count_where_the_words_are_not_offered(here: Machine) -> None:
    here.port("bnxt_re0/1")
    here.count("port_rcv_data", "N/A (no PMA)", "bnxt_re0/1")
    here.count("rx_bytes", 100, "bnxt_re0/1", "hw_counters")
    here.port("bnxt_re1/1")
    here.count("port_rcv_data", 50, "bnxt_re1/1")
    here.count("rx_bytes", 100, "bnxt_re1/1", "hw_counters")
    found = here.ports()
    assert (found["bnxt_re0/1"].receive_bytes, found["bnxt_re1/1"].receive_bytes) == (100, 200)


def test_rails_of_one_card_follow_the_numbers_of_its_ports() -> None:
    rails = Rails(())
    for port in (10, 2, 1):
        rails.see(f"opa0/{port}", (0, 24, 0, 0))
    assert [rails.of(f"opa0/{port}") for port in (1, 2, 10)] == ["0", "1", "2"]


def test_counters_of_a_device_belong_to_its_only_port(here: Machine) -> None:
    here.port("mana_0/1")
    put(here.root, "/sys/class/infiniband/mana_0/hw_counters/sent_cnps", "6\n")
    here.count("rx_bytes", 100, "mana_0/1", "hw_counters")
    here.port("twin_0/1")
    here.port("twin_0/2")
    put(here.root, "/sys/class/infiniband/twin_0/hw_counters/sent_cnps", "6\n")
    readings = here.collect()
    assert congestion(readings, "mana_0/1") == {"cnp_sent": 6}
    assert ports(readings)["mana_0/1"].receive_bytes == 100
    assert congestion(readings, "twin_0/1") == congestion(readings, "twin_0/2") == {}


def test_the_configured_lifetime_of_hw_counters_is_no_counter(here: Machine) -> None:
    here.port()
    here.count("lifespan", 12, folder="hw_counters")
    readings = here.collect()
    assert errors(readings, "mlx5_0/1") == congestion(readings, "mlx5_0/1") == {}


@pytest.mark.parametrize(
    ("text", "gigabit"),
    [
        ("400 Gb/sec (4X NDR)", 400),
        ("200 Gb/sec (2X NDR)", 200),
        ("25 Gb/sec (1X EDR)", 25),
        ("2.5 Gb/sec (1X SDR)", 2.5),
        ("10 Gb/sec (4X)", 10),
        ("1600 Gb/sec (8X XDR)", 1600),
        ("<unknown>", None),
        ("", None),
    ],
)
def test_rates(here: Machine, text: str, gigabit: float | None) -> None:
    here.port(rate=text)
    rate = here.ports()["mlx5_0/1"].link_rate_bytes_per_second
    assert rate == (None if gigabit is None else gigabit * 1e9 / 8)


@pytest.mark.parametrize(
    ("state", "up"),
    [
        ("4: ACTIVE", 1),
        ("4: whatever", 1),
        ("1: DOWN", 0),
        ("2: INIT", 0),
        ("3: ARMED", 0),
        ("5: ACTIVE_DEFER", 0),
        ("0: NOP", 0),
    ],
)
def test_a_port_is_up_by_the_number_of_its_state(here: Machine, state: str, up: float) -> None:
    here.port(state=state)
    assert here.ports()["mlx5_0/1"].up == up


def test_an_odd_physical_state_does_not_make_an_active_port_down() -> None:
    assert ports(collect("broken-ports"))["mlx5_0/1"].up == 1.0


# --- Contents and failures -----------------------------------------------------------------------------


def test_g32_a_port_that_answers_with_words_costs_nobody_else(here: Machine) -> None:
    here.port("i40iw0/1", rate="10 Gb/sec (4X)")
    for name in ("port_rcv_data", "port_xmit_data", "link_downed", "symbol_error", "port_xmit_wait"):
        here.count(name, "N/A (no PMA)", "i40iw0/1")
    here.port()
    here.count("port_rcv_data", 250)
    readings = here.collect()
    assert ports(readings)["mlx5_0/1"].receive_bytes == 1000
    mute = ports(readings)["i40iw0/1"]
    assert (mute.receive_bytes, mute.transmit_bytes, mute.link_downed) == (None, None, None)
    assert (mute.up, mute.link_rate_bytes_per_second) == (1.0, 1.25e9)
    assert errors(readings, "i40iw0/1") == congestion(readings, "i40iw0/1") == {}
    assert failures(readings) == []


def test_a_counter_that_is_refused_is_absent_and_the_port_stays(here: Machine, faulty: FaultyReads) -> None:
    """Newer kernels answer EINVAL where older ones said `N/A` (prometheus/node_exporter#3265)."""
    here.port()
    here.count("port_rcv_data", 5)
    here.count("symbol_error", 5)
    faulty.faults = {"counters/port_rcv_data": errno.EINVAL}
    readings = here.collect()
    assert ports(readings)["mlx5_0/1"].receive_bytes is None
    assert ports(readings)["mlx5_0/1"].up == 1.0
    assert errors(readings, "mlx5_0/1") == {"symbol": 5}
    assert failures(readings) == []


def test_a_file_that_fails_costs_itself_and_is_reported(here: Machine, faulty: FaultyReads) -> None:
    for item in ("mlx5_0/1", "mlx5_1/1"):
        here.port(item)
        here.count("port_rcv_data", 5, item)
        here.count("port_xmit_data", 6, item)
    faulty.faults = {"mlx5_0/ports/1/counters/port_rcv_data": errno.EIO}
    here.collect()  # finds the ports
    readings = here.collect()
    found = ports(readings)
    assert (found["mlx5_0/1"].receive_bytes, found["mlx5_0/1"].transmit_bytes) == (None, 24)
    assert found["mlx5_1/1"].receive_bytes == 20
    assert failures(readings) == [("mlx5_0/1", "io_error")]


def test_a_state_that_fails_leaves_the_counters(here: Machine, faulty: FaultyReads) -> None:
    here.port()
    here.count("port_rcv_data", 5)
    faulty.faults = {"ports/1/state": errno.EIO}
    readings = here.collect()
    assert (ports(readings)["mlx5_0/1"].up, ports(readings)["mlx5_0/1"].receive_bytes) == (None, 20)
    assert failures(readings) == [("mlx5_0/1", "io_error")]


def test_firmware_that_is_silent_is_asked_once_in_a_pass(here: Machine, faulty: FaultyReads) -> None:
    names = ("port_rcv_data", "port_xmit_data", "symbol_error", "link_downed")
    for item in ("mlx5_0/1", "mlx5_1/1"):
        here.port(item)
        for name in names:
            here.count(name, 5, item)
    here.collect()
    faulty.faults = {f"mlx5_0/ports/1/{name}": errno.ETIMEDOUT for name in ("state", "rate")} | {
        f"mlx5_0/ports/1/counters/{name}": errno.ETIMEDOUT for name in names
    }
    faulty.reads.clear()
    readings = here.collect()
    assert len([path for path in faulty.reads if "mlx5_0" in path]) == 1
    assert failures(readings) == [("mlx5_0/1", "timeout")]
    assert ports(readings)["mlx5_1/1"].receive_bytes == 20
    faulty.reads.clear()
    here.collect()
    assert len([path for path in faulty.reads if "mlx5_0" in path]) == 1  # asked again in the next pass


def test_saturated_error_counters_pass_as_they_are() -> None:
    readings = collect("broken-ports")
    assert ports(readings)["mlx5_0/1"].link_downed == 255
    assert errors(readings, "mlx5_0/1")["symbol"] == 65535
    assert errors(readings, "mlx5_0/1")["buffer_overrun"] == 15
    assert congestion(readings, "mlx5_0/1")["transmit_wait"] == 4294967295


def test_a_full_32_bit_traffic_counter_is_absent_and_not_silence() -> None:
    port = ports(collect("broken-ports"))["mthca0/1"]
    assert (port.receive_bytes, port.receive_packets) == (None, None)
    assert (port.transmit_bytes, port.transmit_packets) == (4000, 8)


def test_a_64_bit_counter_may_have_that_value(here: Machine) -> None:
    here.port()
    here.count("port_rcv_data", 4294967295)
    here.count("unicast_rcv_packets", 9)
    assert here.ports()["mlx5_0/1"].receive_bytes == 4 * 4294967295


def test_wide_counters_of_old_kernels_are_preferred() -> None:
    found = ports(collect("broken-ports"))
    assert found["mlx4_0/1"].receive_bytes == 4 * 9_000_000_000
    assert found["mlx4_0/2"].transmit_bytes == 4 * 16_000_000_000
    assert found["mlx4_0/1"].receive_packets == 5_000_000_000


def test_two_ports_of_one_function_have_their_own_interfaces_and_rails() -> None:
    found = infos(collect("broken-ports"))
    assert (found["mlx4_0/1"].netdev, found["mlx4_0/2"].netdev) == ("ib1", "ib2")
    assert int(found["mlx4_0/2"].rail) == int(found["mlx4_0/1"].rail) + 1


def test_a_machine_without_rdma_has_no_series_and_no_failure() -> None:
    assert collect("cloud-vm") == []


def test_an_empty_gid_slot_does_not_cost_the_name_of_the_interface(
    here: Machine, faulty: FaultyReads
) -> None:
    here.port(**{"gid_attrs/ndevs/0": ""})
    put(here.root, "/sys/class/infiniband/mlx5_0/device/net/ib0/dev_port", "0\n")
    faulty.faults = {"gid_attrs/ndevs/0": errno.EINVAL}
    readings = here.collect()
    assert infos(readings)["mlx5_0/1"].netdev == "ib0"
    assert failures(readings) == []


# --- What a port should be -----------------------------------------------------------------------------


def test_a_port_is_expected_once_it_was_up_for_an_hour(here: Machine) -> None:
    here.port()
    here.port("mlx5_1/1", state="1: DOWN", rate="10 Gb/sec (4X SDR)")
    assert here.expectations() == {"mlx5_0/1": (0.0, 50e9), "mlx5_1/1": (0.0, None)}
    here.clock.advance(HOUR - 1)
    assert here.expectations()["mlx5_0/1"][0] == 0.0
    here.clock.advance(1)
    assert here.expectations() == {"mlx5_0/1": (1.0, 50e9), "mlx5_1/1": (0.0, None)}
    here.port(state="1: DOWN", rate="10 Gb/sec (4X SDR)")
    readings = here.collect()
    assert expectations(readings)["mlx5_0/1"] == (1.0, 50e9)
    assert ports(readings)["mlx5_0/1"].up == 0.0


@pytest.mark.parametrize("gone", [False, True])
def test_a_port_that_is_down_stays_expected_when_the_agent_is_restarted(tmp_path: Path, gone: bool) -> None:
    learnt = Learnt(None, FakeClock())  # its file: tests/test_learnt.py
    here = Machine(tmp_path, learnt=learnt)
    here.port()
    here.port("mlx5_1/1")
    put(tmp_path, "/sys/class/infiniband/mlx5_0/node_guid", "a088:c203:0012:0001\n")
    here.collect()
    here.clock.advance(HOUR)
    here.collect()
    if gone:
        here.remove("mlx5_0")
    else:
        here.port(state="1: DOWN", rate="10 Gb/sec (4X SDR)")
    readings = Machine(tmp_path, learnt=learnt).collect()
    assert ports(readings)["mlx5_0/1"].up == 0.0
    assert expectations(readings) == {"mlx5_0/1": (1.0, 50e9), "mlx5_1/1": (1.0, 50e9)}


def test_another_card_of_the_same_name_is_learnt_anew(tmp_path: Path) -> None:
    learnt = Learnt(None, FakeClock())
    here = Machine(tmp_path, learnt=learnt)
    here.port()
    put(tmp_path, "/sys/class/infiniband/mlx5_0/node_guid", "a088:c203:0012:0001\n")
    here.collect()
    here.clock.advance(HOUR)
    here.collect()
    put(tmp_path, "/sys/class/infiniband/mlx5_0/node_guid", "a088:c203:0012:0002\n")
    here.port(rate="200 Gb/sec (4X HDR)")
    assert Machine(tmp_path, learnt=learnt).expectations() == {"mlx5_0/1": (0.0, 25e9)}


def test_a_break_starts_the_hour_anew(here: Machine) -> None:
    here.port()
    here.collect()
    here.clock.advance(HOUR / 2)
    here.port(state="1: DOWN")
    here.collect()
    here.port()
    here.collect()
    here.clock.advance(HOUR - 1)
    assert here.expectations()["mlx5_0/1"][0] == 0.0
    here.clock.advance(1)
    assert here.expectations()["mlx5_0/1"][0] == 1.0


def test_a_link_that_trained_too_low_is_below_the_highest_rate_seen(here: Machine) -> None:
    here.port()
    here.collect()
    here.port(rate="200 Gb/sec (4X HDR)")
    here.clock.advance(LISTING_SECONDS)
    readings = here.collect()
    assert ports(readings)["mlx5_0/1"].link_rate_bytes_per_second == 25e9
    assert expectations(readings)["mlx5_0/1"][1] == 50e9


def test_a_new_rate_after_a_change_of_state_is_seen_at_once(here: Machine) -> None:
    here.port(state="2: INIT", rate="10 Gb/sec (4X SDR)")
    assert here.ports()["mlx5_0/1"].link_rate_bytes_per_second is None  # of the lanes, not of a link
    here.port()
    assert here.ports()["mlx5_0/1"].link_rate_bytes_per_second == 50e9


def test_what_is_configured_holds_from_the_start_and_for_nobody_else(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Settings(expected_ports=("mlx5_0/1",), expected_link_gbit=400))
    machine.port(rate="200 Gb/sec (4X HDR)")
    machine.port("mlx5_1/1", rate="25 Gb/sec (1X EDR)")
    assert machine.expectations() == {"mlx5_0/1": (1.0, 50e9), "mlx5_1/1": (0.0, 3.125e9)}
    machine.clock.advance(2 * HOUR)
    assert machine.expectations()["mlx5_1/1"] == (0.0, 3.125e9)


def test_a_virtual_function_is_not_learnt(here: Machine) -> None:
    here.port()
    put(here.root, "/sys/class/infiniband/mlx5_0/device/physfn/vendor", "0x15b3\n")
    here.collect()
    here.clock.advance(2 * HOUR)
    assert here.expectations()["mlx5_0/1"][0] == 0.0


# --- Coming and going ----------------------------------------------------------------------------------

# What the kernel answers on descriptors of a removed device; those of a deleted plain file go on reading.
REMOVED = {" (deleted)": errno.ENODEV}


def test_a_device_that_is_gone_leaves_no_series(here: Machine, faulty: FaultyReads) -> None:
    faulty.faults = REMOVED
    here.port()
    here.port("mlx5_1/1")
    here.collect()
    here.remove("mlx5_1")
    readings = here.collect()
    assert set(ports(readings)) == {"mlx5_0/1"}
    assert set(infos(readings)) == {"mlx5_0/1"}
    assert failures(readings) == []


@pytest.mark.parametrize("later_s", [0.0, LISTING_SECONDS], ids=["before a listing", "after it"])
def test_a_device_that_is_gone_leaves_no_descriptor(
    here: Machine, faulty: FaultyReads, later_s: float
) -> None:
    faulty.faults = REMOVED
    for item in ("mlx5_0/1", "mlx5_1/1"):
        here.port(item)
        here.count("port_rcv_data", 1, item)
    here.collect()
    here.remove("mlx5_1")
    here.clock.advance(later_s)
    here.collect()
    here.collect()
    kept = list(here.files._descriptors)
    assert any("/mlx5_0/" in path for path in kept)
    assert not any("/mlx5_1/" in path for path in kept)


def test_an_expected_port_that_is_gone_is_a_port_that_is_down(here: Machine, faulty: FaultyReads) -> None:
    faulty.faults = REMOVED
    here.port()
    here.port("mlx5_1/1")
    here.collect()
    here.clock.advance(HOUR)
    here.collect()
    here.remove("mlx5_1")
    for _ in range(3):
        readings = here.collect()
        assert ports(readings)["mlx5_1/1"] == RdmaPort(device="mlx5_1", port="1", up=0.0)
        assert expectations(readings)["mlx5_1/1"] == (1.0, 50e9)
        here.clock.advance(LISTING_SECONDS)
    here.port("mlx5_1/1")
    here.clock.advance(LISTING_SECONDS)
    assert here.ports()["mlx5_1/1"].up == 1.0


def test_a_configured_port_that_never_was_there_is_down(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Settings(expected_ports=("mlx5_7/1",)))
    readings = machine.collect()
    assert ports(readings)["mlx5_7/1"].up == 0.0
    assert expectations(readings)["mlx5_7/1"] == (1.0, None)


def test_a_device_that_came_back_is_read_anew(here: Machine, faulty: FaultyReads) -> None:
    here.port()
    here.count("port_rcv_data", 100)
    here.collect()
    here.remove("mlx5_0")
    here.port()
    here.count("port_rcv_data", 7)
    faulty.faults = REMOVED
    assert here.ports()["mlx5_0/1"].receive_bytes == 28


def test_a_device_that_comes_is_seen_within_ten_seconds(here: Machine) -> None:
    here.port()
    here.collect()
    here.port("mlx5_1/1")
    here.clock.advance(LISTING_SECONDS)
    assert set(here.ports()) == {"mlx5_0/1", "mlx5_1/1"}


def test_a_pass_opens_and_lists_nothing(tmp_path: Path, faulty: FaultyReads) -> None:
    shutil.copytree(ROOTS / "h100-ib" / "sys", tmp_path / "sys", symlinks=True)
    machine = Machine(tmp_path)
    machine.collect()
    faulty.opened.clear()
    faulty.reads.clear()
    machine.clock.advance(2.0)
    machine.collect()
    assert faulty.opened == []
    assert len(faulty.reads) == len(set(faulty.reads))
    assert len(faulty.reads) < 8 * 30


# --- Levels and captures -------------------------------------------------------------------------------


def test_errors_come_with_the_level_of_their_kind() -> None:
    metric = next(metric for metric in METRICS if metric.name == "rdma_errors_total")
    level = {
        error: metric.level_of(RdmaError("mlx5_0", "1", error, 0)) for error in ("symbol", "timeout", "icrc")
    }
    assert level == {"symbol": Level.STANDARD, "timeout": Level.STANDARD, "icrc": Level.FULL}
    assert {metric.name for metric in METRICS if metric.level is Level.CORE} == {
        "rdma_receive_bytes_total",
        "rdma_transmit_bytes_total",
        "rdma_port_up",
        "rdma_port_expected",
        "rdma_link_downed_total",
    }


def test_names_keep_the_rules() -> None:
    assert list(faults(METRICS)) == []


CAPTURES = ("sysfs/gpud-h100", "sysfs/node-exporter", "sysfs/procfs-lib")


@pytest.mark.parametrize("path", CAPTURES)
def test_captures_of_real_machines(tmp_path: Path, path: str) -> None:
    tree = capture(path) / "class" / "infiniband"
    shutil.copytree(tree, tmp_path / "sys/class/infiniband")
    readings = Machine(tmp_path).collect()
    assert failures(readings) == []
    found = ports(readings)
    folders = {f"{f.parent.parent.name}/{f.name}": f for f in tree.glob("*/ports/*")}
    assert set(found) == set(folders)

    def number(file: Path) -> float | None:
        text = file.read_text().strip() if file.exists() else ""
        return float(text) if text.isdigit() else None

    def words(folder: Path, name: str) -> float | None:
        wide = number(folder / "counters_ext" / f"{name}_64")
        count = number(folder / "counters" / name) if wide is None else wide
        return None if count is None else 4 * count

    for item, folder in folders.items():
        port = found[item]
        assert port.receive_bytes == words(folder, "port_rcv_data")
        assert port.transmit_bytes == words(folder, "port_xmit_data")
        assert port.link_downed == number(folder / "counters" / "link_downed")
        assert port.up == float((folder / "state").read_text().startswith("4"))
        assert port.link_rate_bytes_per_second == float((folder / "rate").read_text().split()[0]) / 8 * 1e9
        for error, file in (
            ("symbol", "counters/symbol_error"),
            ("buffer_overrun", "counters/excessive_buffer_overrun_errors"),
            ("retransmit", "hw_counters/packet_seq_err"),
            ("timeout", "hw_counters/local_ack_timeout_err"),
            ("icrc", "hw_counters/rx_icrc_encapsulated"),
        ):
            assert errors(readings, item).get(error) == number(folder / file)


def test_the_h100_capture_by_hand(tmp_path: Path) -> None:
    shutil.copytree(capture("sysfs/gpud-h100/class"), tmp_path / "sys/class")
    readings = Machine(tmp_path).collect()
    assert sum(port.link_rate_bytes_per_second == 50e9 for port in ports(readings).values()) == 8
    worn = ports(readings)["mlx5_1/1"]
    assert (worn.receive_bytes, worn.link_downed) == (820_514_751_096_996, 255)
    assert congestion(readings, "mlx5_1/1") == {"transmit_wait": 2489603687}
    assert infos(readings)["mlx5_bond_0/1"].link_layer == "Ethernet"
