"""Network interfaces: what counts as one, what its numbers are, and what happens when it goes away."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from clusterwatt.catalog import Level, Metric, faults
from clusterwatt.collectors.ethernet import METRICS, EthernetCollector
from clusterwatt.config.model import EthernetCollector as Settings
from clusterwatt.learnt import Learnt
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.network import Bond, Network, NetworkInfo
from clusterwatt.sysfs import LISTING_SECONDS, Files
from tests.clocks import FakeClock
from tests.faulty import FaultyReads
from tests.machines import ROOTS, capture, put

DEFAULT = Settings()
HEAD = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop ... |bytes packets errs drop ...\n"


def row(name: str, received: int, sent: int = 0) -> str:
    return f"{name}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n"


class Machine:
    """A tree and the collector that reads it."""

    def __init__(self, root: Path, settings: Settings = DEFAULT) -> None:
        self.root = root
        self.clock = FakeClock()
        self.files = Files(root, self.clock)
        self.learnt = Learnt(None, self.clock)
        self.settings = settings
        self.restart()

    def restart(self) -> None:
        """Another agent, which knows what the last one has learnt."""
        self.collector = EthernetCollector(self.files, self.settings, self.clock, self.learnt)

    def counted(self, *rows: str, path: str = "/proc/1/net/dev") -> None:
        put(self.root, path, HEAD + "".join(rows))

    def interface(self, name: str, *, hardware: bool = False, **attributes: str | int) -> None:
        base = f"/sys/class/net/{name}"
        for attribute, text in ({"operstate": "up", "carrier_changes": 1, "type": 1} | attributes).items():
            put(self.root, f"{base}/{attribute}", f"{text}\n")
        if hardware:
            put(self.root, f"{base}/device/vendor", "0x15b3\n")

    def collect(self) -> list[Reading]:
        return list(self.collector.collect())

    def networks(self) -> dict[str, Network]:
        return networks(self.collect())


def networks(readings: list[Reading]) -> dict[str, Network]:
    return {reading.device: reading for reading in readings if isinstance(reading, Network)}


def kinds(readings: list[Reading]) -> dict[str, tuple[str, str]]:
    return {r.device: (r.kind, r.master) for r in readings if isinstance(r, NetworkInfo)}


def bonds(readings: list[Reading]) -> dict[str, tuple[float, float]]:
    return {r.device: (r.members_up, r.members) for r in readings if isinstance(r, Bond)}


def failures(readings: list[Reading]) -> list[tuple[str, str]]:
    return [(reading.item, reading.reason) for reading in readings if isinstance(reading, Failure)]


def collect(name: str, settings: Settings = DEFAULT) -> list[Reading]:
    return Machine(ROOTS / name, settings).collect()


# --- What an interface is ------------------------------------------------------------------------------


def test_an_h100_node_has_one_card_in_use_and_eight_ipoib_interfaces_that_are_not_ethernet() -> None:
    found = kinds(collect("h100-ib"))
    assert {device for device, (kind, _) in found.items() if kind == "physical"} == {"eno3", "enp170s0f1"}
    assert sum(kind == "virtual" for device, (kind, _) in found.items() if device.startswith("ibp")) == 8
    assert found["docker0"] == ("bridge", "")
    assert found["vetha1b2c3d"] == ("virtual", "docker0")
    assert "lo" not in found


def test_bond_vlan_bridge_virtual_function_and_representor() -> None:
    readings = collect("roce-bond")
    assert kinds(readings) == {
        "bond0": ("bond", ""),
        "bond0.100": ("vlan", ""),
        "br-storage": ("bridge", ""),
        "enp26s0np0": ("physical", ""),
        "enp26s0np0_0": ("virtual", ""),
        "enp26s0v0": ("physical", ""),
        "enp60s0np0": ("physical", ""),
        "enp170s0f0np0": ("physical", "bond0"),
        "enp170s0f1np1": ("physical", "bond0"),
    }
    assert bonds(readings) == {"bond0": (1.0, 2.0)}


def test_the_sum_over_physical_interfaces_counts_a_bond_once() -> None:
    readings = collect("roce-bond")
    found = networks(readings)
    physical = [found[device] for device, (kind, _) in kinds(readings).items() if kind == "physical"]
    assert sum(network.receive_bytes or 0 for network in physical) == 9_000_000 + 18_000_000 + 100 + 3_000_000


def test_the_fast_twin_below_an_azure_interface_is_not_counted_again() -> None:
    found = kinds(collect("azure-vm"))
    assert found["eth0"] == ("physical", "")
    assert found["enP27183s1"] == ("virtual", "eth0")


def test_a_cloud_vm_has_a_card_without_speed() -> None:
    eth0 = networks(collect("cloud-vm"))["eth0"]
    assert (eth0.up, eth0.link_rate_bytes_per_second, eth0.receive_bytes) == (1.0, None, 700_000)


@pytest.mark.parametrize("text", ["-1", "0", "65535", "4294967295", ""])
def test_an_unknown_speed_is_absent_and_never_a_number(tmp_path: Path, text: str) -> None:
    machine = Machine(tmp_path)
    machine.counted(row("eth0", 1))
    machine.interface("eth0", hardware=True, speed=text)
    assert machine.networks()["eth0"].link_rate_bytes_per_second is None


def test_speed_is_bytes_a_second_and_only_that_of_a_link_that_is_up() -> None:
    found = networks(collect("h100-ib"))
    assert found["eno3"].link_rate_bytes_per_second == 10e9 / 8
    assert (found["enp170s0f1"].up, found["enp170s0f1"].link_rate_bytes_per_second) == (0.0, None)
    assert found["vetha1b2c3d"].link_rate_bytes_per_second is None  # 10 Gb/s that no veth has
    bond = networks(collect("roce-bond"))
    assert bond["bond0"].link_rate_bytes_per_second == 25e9
    assert bond["enp170s0f1np1"].up == 0.0


@pytest.mark.parametrize(
    ("operstate", "carrier", "up"),
    [("up", "1", 1), ("unknown", "1", 1), ("unknown", "0", 0), ("down", "0", 0), ("dormant", "1", 1)],
)
def test_up_is_operational_or_has_a_carrier(tmp_path: Path, operstate: str, carrier: str, up: float) -> None:
    machine = Machine(tmp_path)
    machine.counted(row("eth0", 1))
    machine.interface("eth0", operstate=operstate, carrier=carrier)
    assert machine.networks()["eth0"].up == up


def test_an_interface_that_is_shut_has_no_carrier_and_is_down(tmp_path: Path, faulty: FaultyReads) -> None:
    machine = Machine(tmp_path)
    machine.counted(row("eth0", 1))
    machine.interface("eth0", hardware=True, operstate="down", carrier="0", speed=1000)
    faulty.faults = {"eth0/carrier": errno.EINVAL, "eth0/speed": errno.EINVAL}
    readings = machine.collect()
    assert networks(readings)["eth0"].up == 0.0
    assert networks(readings)["eth0"].link_rate_bytes_per_second is None
    assert failures(readings) == []


def test_a_driver_that_states_a_speed_while_the_link_is_down_is_not_believed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.counted(row("eth0", 1))
    machine.interface("eth0", hardware=True, operstate="down", carrier=0, speed=1000)
    assert machine.networks()["eth0"].link_rate_bytes_per_second is None


def test_every_counter_is_in_its_place() -> None:
    assert networks(collect("h100-ib"))["eno3"] == Network(
        device="eno3",
        kind="physical",
        receive_bytes=5_000_000_000,
        receive_packets=4_000_000,
        receive_errors=2,
        receive_drops=30,
        transmit_bytes=600_000_000,
        transmit_packets=3_000_000,
        transmit_errors=1,
        transmit_drops=4,
        up=1.0,
        link_rate_bytes_per_second=1_250_000_000.0,
        carrier_changes=3,
    )


def test_include_and_exclude_are_on_the_whole_name() -> None:
    assert set(networks(collect("roce-bond", Settings(include=r"bond0")))) == {"bond0"}
    without = networks(collect("roce-bond", Settings(exclude=r"enp.*|br-.*")))
    assert set(without) == {"bond0", "bond0.100"}
    both = networks(collect("roce-bond", Settings(include=r"enp.*", exclude=r"enp170.*")))
    assert set(both) == {"enp26s0np0", "enp26s0np0_0", "enp26s0v0", "enp60s0np0"}


def test_an_alias_with_a_colon_and_a_number_that_touches_it(tmp_path: Path) -> None:
    put(tmp_path, "/proc/1/net/dev", HEAD + "ibr10:30:7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n")
    found = Machine(tmp_path).networks()
    assert (found["ibr10:30"].receive_bytes, found["ibr10:30"].transmit_bytes) == (7, 8)


def test_a_line_that_is_cut_short_costs_itself_only(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.counted("eth0: 1 2 3\n", "\n", row("eth1", 5))
    assert {device: network.receive_bytes for device, network in machine.networks().items()} == {"eth1": 5}


# --- Coming and going ----------------------------------------------------------------------------------


def test_g31_an_interface_that_vanishes_between_listing_and_reading_is_skipped(
    tmp_path: Path, faulty: FaultyReads
) -> None:
    machine = Machine(tmp_path)
    machine.counted(row("eth0", 10), row("cali0001", 20), row("br-1", 30), row("bond0", 40))
    machine.interface("eth0", hardware=True, speed=1000, duplex="full")
    machine.interface("cali0001")
    machine.interface("br-1", duplex="")
    put(tmp_path, "/sys/class/net/br-1/bridge/bridge_id", "8000\n")
    machine.interface("bond0")
    put(tmp_path, "/sys/class/net/bond0/bonding/slaves", "eth0\n")
    put(tmp_path, "/sys/class/net/bond0/lower_eth0/bonding_slave/mii_status", "up\n")
    put(tmp_path, "/sys/class/net/bonding_masters", "bond0\n")
    faulty.faults = {"cali0001/carrier_changes": errno.ENODEV, "br-1/duplex": errno.EINVAL}
    readings = machine.collect()
    found = networks(readings)
    assert set(found) == {"eth0", "br-1", "bond0"}
    assert found["eth0"].link_rate_bytes_per_second == 125e6
    assert found["br-1"].receive_bytes == 30
    assert bonds(readings) == {"bond0": (1.0, 1.0)}
    assert failures(readings) == []


def test_an_interface_that_comes_is_seen_at_once_and_one_that_goes_leaves_no_descriptor(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    machine.counted(row("eth0", 1))
    machine.interface("eth0", hardware=True)
    assert set(machine.networks()) == {"eth0"}
    machine.interface("veth1")
    machine.interface("veth10")
    machine.counted(row("eth0", 1), row("veth1", 1), row("veth10", 1))
    assert set(machine.networks()) == {"eth0", "veth1", "veth10"}
    shutil.rmtree(tmp_path / "sys/class/net/veth1")
    machine.counted(row("eth0", 1), row("veth10", 1))
    assert set(machine.networks()) == {"eth0", "veth10"}
    kept = [path for path in machine.files._descriptors if "/veth1" in path]
    assert kept
    assert all(path.startswith("/sys/class/net/veth10/") for path in kept)


def test_an_interface_that_came_back_under_its_name_is_read_anew(tmp_path: Path, faulty: FaultyReads) -> None:
    machine = Machine(tmp_path)
    machine.counted(row("eth0", 1))
    machine.interface("eth0", carrier_changes=4)
    machine.collect()
    shutil.rmtree(tmp_path / "sys/class/net/eth0")
    machine.interface("eth0", carrier_changes=9)
    # What the kernel answers on the descriptors of a device that was removed.
    faulty.faults = {"carrier_changes (deleted)": errno.ENODEV, "operstate (deleted)": errno.ENODEV}
    assert machine.networks()["eth0"].carrier_changes == 9


def test_a_change_of_the_link_is_followed_at_once_and_of_the_bond_within_ten_seconds(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.counted(row("eth0", 1))
    machine.interface("eth0", hardware=True, speed=100_000)
    assert machine.networks()["eth0"].link_rate_bytes_per_second == 12.5e9
    machine.interface("eth0", hardware=True, speed=25_000, carrier_changes=3)
    assert machine.networks()["eth0"].link_rate_bytes_per_second == 3.125e9
    (tmp_path / "sys/class/net/eth0/master").symlink_to("../bond7")
    machine.clock.advance(LISTING_SECONDS)
    assert kinds(machine.collect())["eth0"] == ("physical", "bond7")


def test_descriptors_are_kept_between_passes(tmp_path: Path, faulty: FaultyReads) -> None:
    machine = Machine(tmp_path)
    machine.counted(row("eth0", 1))
    machine.interface("eth0", hardware=True, speed=1000)
    machine.collect()
    for _ in range(2):
        machine.clock.advance(LISTING_SECONDS)
        machine.collect()
    faulty.opened.clear()
    faulty.reads.clear()
    machine.clock.advance(1.0)
    machine.collect()
    assert faulty.opened == []
    assert {Path(path).name for path in faulty.reads} == {"dev", "operstate", "carrier_changes"}


def test_a_sick_interface_is_a_failure_and_its_neighbour_is_complete(
    tmp_path: Path, faulty: FaultyReads
) -> None:
    machine = Machine(tmp_path)
    machine.counted(row("eth0", 1), row("eth1", 2))
    machine.interface("eth0", hardware=True)
    machine.interface("eth1", hardware=True)
    faulty.faults = {"eth0/operstate": errno.EIO}
    readings = machine.collect()
    assert failures(readings) == [("eth0", "io_error")]
    assert networks(readings)["eth1"].receive_bytes == 2


def test_a_bond_without_link_monitoring_does_not_call_a_dead_link_up(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.counted(row("bond0", 1), row("eth0", 1), row("eth1", 1))
    machine.interface("bond0")
    put(tmp_path, "/sys/class/net/bond0/bonding/slaves", "eth0 eth1\n")
    for name, state in (("eth0", "up"), ("eth1", "down")):
        machine.interface(name, hardware=True, operstate=state, carrier=int(state == "up"))
        put(tmp_path, f"/sys/class/net/{name}/bonding_slave/mii_status", "up\n")
    assert bonds(machine.collect()) == {"bond0": (1.0, 2.0)}


def test_a_link_that_fell_off_the_bus_is_still_configured(tmp_path: Path) -> None:
    """The kernel forgets the member with the card; what is short shows as members that are not up."""
    machine = Machine(tmp_path)
    names = ["eth0", "eth1"]

    def enslaved(*present: str) -> dict[str, tuple[float, float]]:
        machine.counted(row("bond0", 1), *(row(name, 1) for name in present))
        put(tmp_path, "/sys/class/net/bond0/bonding/slaves", " ".join(present) + "\n")
        return bonds(machine.collect())

    machine.interface("bond0")
    for name in names:
        machine.interface(name, hardware=True)
        put(tmp_path, f"/sys/class/net/{name}/bonding_slave/mii_status", "up\n")
    assert enslaved("eth0") == {"bond0": (1.0, 1.0)}  # while it is put together
    assert enslaved(*names) == {"bond0": (2.0, 2.0)}
    machine.clock.advance(3_600.0)
    assert enslaved(*names) == {"bond0": (2.0, 2.0)}
    assert enslaved("eth0") == {"bond0": (1.0, 2.0)}
    machine.clock.advance(86_400.0)
    machine.restart()
    assert enslaved("eth0") == {"bond0": (1.0, 2.0)}
    assert enslaved() == {"bond0": (0.0, 2.0)}
    assert enslaved(*names) == {"bond0": (2.0, 2.0)}


def test_a_link_that_was_a_member_for_moments_is_not_expected(tmp_path: Path) -> None:
    """As when one cable takes the place of another."""
    machine = Machine(tmp_path)
    machine.interface("bond0")
    machine.counted(row("bond0", 1))
    seen = []
    for links in ("eth0 eth1", "eth0 eth1 eth2", "eth1 eth2"):
        put(tmp_path, "/sys/class/net/bond0/bonding/slaves", links + "\n")
        for _ in range(3):
            seen.append(bonds(machine.collect())["bond0"][1])
            machine.clock.advance(1_000.0)
    assert seen == [2.0] * 3 + [3.0] * 3 + [2.0] * 3


# --- Zeros and resets ----------------------------------------------------------------------------------


def test_g41_a_zero_of_one_moment_is_no_reading(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.interface("eth0", hardware=True)
    seen = []
    for received in (5_000_000_000, 0, 5_000_100_000):
        machine.counted(row("eth0", received, sent=7))
        network = machine.networks()["eth0"]
        seen.append(network.receive_bytes)
        assert network.transmit_bytes == 7
        machine.clock.advance(1.0)
    assert seen == [5_000_000_000, None, 5_000_100_000]


def test_a_driver_that_was_loaded_anew_counts_from_zero_after_one_pass(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.interface("eth0", hardware=True)
    seen = []
    for received in (5_000, 0, 0, 300):
        machine.counted(row("eth0", received))
        seen.append(machine.networks()["eth0"].receive_bytes)
    assert seen == [5_000, None, 0, 300]


def test_a_counter_that_falls_without_reaching_zero_passes_as_it_is(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.interface("eth0", hardware=True)
    machine.counted(row("eth0", 5_000))
    machine.collect()
    machine.counted(row("eth0", 40))
    assert machine.networks()["eth0"].receive_bytes == 40


def test_the_zero_is_held_back_across_a_new_listing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.interface("eth0", hardware=True)
    machine.counted(row("eth0", 5_000))
    machine.collect()
    machine.clock.advance(LISTING_SECONDS)
    machine.counted(row("eth0", 0))
    assert machine.networks()["eth0"].receive_bytes is None


# --- Namespaces ----------------------------------------------------------------------------------------


def test_below_a_host_mount_the_hosts_interfaces_are_read_and_not_the_readers(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.interface("eno1", hardware=True)
    machine.counted(row("eno1", 5))
    machine.counted(row("eth0", 999), path="/proc/net/dev")
    readings = machine.collect()
    assert set(networks(readings)) == {"eno1"}
    assert failures(readings) == []


def test_a_container_with_the_hosts_pids_and_its_own_sysfs_takes_the_hosts_names_from_procfs(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    machine.interface("eth0", speed=10000)  # the container's end of a veth: no hardware
    machine.counted(row("lo", 1), row("eth0", 5), row("bond0", 6), row("cali12", 7), row("docker0", 8))
    machine.counted(row("eth0", 999), path="/proc/net/dev")
    readings = machine.collect()
    assert failures(readings) == [("/sys/class/net", "namespace_mismatch")]
    assert kinds(readings) == {
        "eth0": ("physical", ""),
        "bond0": ("bond", ""),
        "cali12": ("virtual", ""),
        "docker0": ("bridge", ""),
    }
    eth0 = networks(readings)["eth0"]
    assert (eth0.receive_bytes, eth0.up, eth0.carrier_changes) == (
        5,
        None,
        None,
    )  # not those of the other eth0
    assert failures(machine.collect()) == []  # told once


def test_a_container_with_the_hosts_sysfs_but_its_own_procfs_reads_sysfs(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.interface("eno1", hardware=True, speed=1000)
    counters = {"rx_bytes": 11, "tx_bytes": 12, "rx_dropped": 3, "rx_missed_errors": 4, "tx_dropped": 5}
    for name, value in counters.items():
        put(tmp_path, f"/sys/class/net/eno1/statistics/{name}", f"{value}\n")
    machine.counted(row("eth0", 999))
    readings = machine.collect()
    assert failures(readings) == [("/sys/class/net", "namespace_mismatch")]
    eno1 = networks(readings)["eno1"]
    assert set(networks(readings)) == {"eno1"}
    assert (eno1.receive_bytes, eno1.transmit_bytes, eno1.receive_drops, eno1.transmit_drops) == (
        11,
        12,
        7,
        5,
    )
    assert eno1.receive_packets is None
    assert eno1.up == 1.0


def test_a_virtual_function_in_a_container_does_not_make_its_sysfs_the_hosts(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.interface("net1", hardware=True)
    put(tmp_path, "/sys/class/net/net1/device/physfn/vendor", "0x15b3\n")
    machine.counted(row("eno1", 5))
    assert set(machine.networks()) == {"eno1"}


def test_a_pod_that_starts_during_the_comparison_is_no_mismatch(tmp_path: Path, faulty: FaultyReads) -> None:
    machine = Machine(tmp_path)
    machine.interface("eth0", hardware=True)
    machine.counted(row("eth0", 5))
    machine.files.names("/sys/class/net")
    machine.interface("cali1")  # after the listing, before the table is read
    machine.counted(row("eth0", 5), row("cali1", 6))
    readings = machine.collect()
    assert failures(readings) == []
    assert set(networks(readings)) == {"eth0", "cali1"}


def test_a_pod_that_ends_during_the_comparison_is_no_mismatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    machine.interface("eth0", hardware=True)
    machine.interface("cali1")
    machine.counted(row("eth0", 5))
    raw = machine.files.raw

    def end_pod_first(path: str) -> bytes | None:
        shutil.rmtree(tmp_path / "sys/class/net/cali1", ignore_errors=True)
        return raw(path)

    monkeypatch.setattr(machine.files, "raw", end_pod_first)
    readings = machine.collect()
    assert failures(readings) == []
    assert set(networks(readings)) == {"eth0"}


def test_a_hidden_process_1_leaves_the_readers_own_table(tmp_path: Path, faulty: FaultyReads) -> None:
    machine = Machine(tmp_path)
    machine.interface("eth0", hardware=True)
    machine.counted(row("eth0", 4))
    machine.counted(row("eth0", 5), path="/proc/net/dev")
    faulty.faults = {"/proc/1/net/dev": errno.EACCES}
    readings = machine.collect()
    assert networks(readings)["eth0"].receive_bytes == 5
    assert failures(readings) == []


def test_without_sysfs_names_decide_and_nothing_is_said_of_namespaces(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.counted(
        row("lo", 1), row("eth0", 5), row("eth0.7", 1), row("ib0", 1), row("veth1", 2), row("br-ab", 3)
    )
    readings = machine.collect()
    assert {device: kind for device, (kind, _) in kinds(readings).items()} == {
        "eth0": "physical",
        "eth0.7": "vlan",
        "ib0": "virtual",
        "veth1": "virtual",
        "br-ab": "bridge",
    }
    assert failures(readings) == []


def test_without_procfs_sysfs_counts(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.interface("eth0", hardware=True)
    put(tmp_path, "/sys/class/net/eth0/statistics/rx_bytes", "77\n")
    put(tmp_path, "/sys/class/net/bonding_masters", "\n")
    readings = machine.collect()
    assert networks(readings)["eth0"].receive_bytes == 77
    assert failures(readings) == []


def test_a_machine_without_network_has_no_series_and_no_failure(tmp_path: Path) -> None:
    assert Machine(tmp_path).collect() == []


# --- Levels and captures -------------------------------------------------------------------------------


def level(name: str, device: str, readings: list[Reading]) -> Level:
    metric: Metric = next(metric for metric in METRICS if metric.name == name)
    reading = next(r for r in readings if type(r) is metric.reading and getattr(r, "device", "") == device)
    return metric.level_of(reading)


def test_series_come_with_the_level_of_their_kind() -> None:
    readings = collect("roce-bond")
    assert level("network_receive_bytes_total", "enp60s0np0", readings) is Level.CORE
    assert level("network_receive_bytes_total", "bond0", readings) is Level.CORE
    assert level("network_receive_packets_total", "bond0", readings) is Level.STANDARD
    assert level("network_info", "bond0", readings) is Level.STANDARD
    for device in ("bond0.100", "br-storage", "enp26s0np0_0"):
        assert level("network_receive_bytes_total", device, readings) is Level.FULL
        assert level("network_up", device, readings) is Level.FULL
        assert level("network_info", device, readings) is Level.FULL
    assert level("bond_members_up", "bond0", readings) is Level.STANDARD


def test_names_keep_the_rules() -> None:
    assert list(faults(METRICS)) == []


def test_the_capture_of_the_node_exporter_project(tmp_path: Path) -> None:
    shutil.copytree(capture("sysfs/node-exporter/class/net"), tmp_path / "sys/class/net")
    put(tmp_path, "/sys/class/net/ens10f0/device/vendor", "0x8086\n")  # captures lost their links
    readings = Machine(tmp_path).collect()
    folder = tmp_path / "sys/class/net/ens10f0"
    found = networks(readings)["ens10f0"]
    counted = {name: int((folder / "statistics" / name).read_text()) for name in ("rx_bytes", "tx_packets")}
    assert (found.receive_bytes, found.transmit_packets) == (counted["rx_bytes"], counted["tx_packets"])
    assert found.receive_drops == 29220
    assert found.link_rate_bytes_per_second == 125e6
    assert networks(readings)["bond0"].link_rate_bytes_per_second is None  # says -1
    assert networks(readings)["dmz"].link_rate_bytes_per_second == 125e6
    assert bonds(readings) == {"bond0": (0.0, 0.0), "dmz": (2.0, 2.0), "int": (1.0, 2.0)}
    assert kinds(readings)["ens10f0"] == ("physical", "")
    assert failures(readings) == []


def test_the_capture_of_the_procfs_project(tmp_path: Path) -> None:
    text = capture("procfs/procfs-lib/net/dev").read_text()
    put(tmp_path, "/proc/1/net/dev", text)
    found = Machine(tmp_path).networks()
    (eth0,) = [line.split() for line in text.splitlines() if line.strip().startswith("eth0")]
    assert (found["eth0"].receive_bytes, found["eth0"].transmit_bytes) == (int(eth0[1]), int(eth0[9]))
    assert set(found) == {"eth0", "docker0", "vethf345468"}
