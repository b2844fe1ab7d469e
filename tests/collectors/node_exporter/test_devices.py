"""Interfaces, ports, disks and sensors under node_exporter's names: one that fails costs no other."""

from __future__ import annotations

import errno
from pathlib import Path

from clusterwatt.collectors import node_exporter
from clusterwatt.collectors.node_exporter import disks, infiniband, mounts, network, sensors
from clusterwatt.readings.base import Failure
from clusterwatt.readings.node_exporter import NodeFamily
from tests.collectors.node_exporter.families import failures, files_of, values
from tests.faulty import FaultyReads
from tests.machines import ROOTS, put


def test_a_speed_that_is_not_known_is_absent(tmp_path: Path) -> None:
    for name, speed in (("eth0", "100000"), ("eth1", "-1"), ("eth2", "4294967295")):
        put(tmp_path, f"/sys/class/net/{name}/operstate", "up\n")
        put(tmp_path, f"/sys/class/net/{name}/speed", speed)
    found = list(network.Interfaces(files_of(tmp_path)).families())
    assert values(found, "node_network_speed_bytes") == {("eth0",): 12_500_000_000}
    assert len(values(found, "node_network_up")) == 3


def test_the_table_of_interfaces_is_that_of_the_first_process(tmp_path: Path) -> None:
    head = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n"
    row = "{}: 1000 10 1 2 3 4 5 6 2000 20 7 8 9 10 11 12\n"
    put(tmp_path, "/proc/1/net/dev", head + row.format("eth0") + row.format("ib0:30"))
    put(tmp_path, "/proc/net/dev", head + row.format("veth0"))
    found = list(network.table_of_devices(files_of(tmp_path)))
    assert values(found, "node_network_receive_bytes_total") == {("eth0",): 1000, ("ib0:30",): 1000}
    assert values(found, "node_network_transmit_compressed_total")["eth0",] == 12
    assert len(found) == 16


def test_a_bond_with_a_member_down_says_so() -> None:
    found = list(network.bonds(files_of(ROOTS / "roce-bond")))
    assert values(found, "node_bonding_slaves") == {("bond0",): 2}
    assert values(found, "node_bonding_active")["bond0",] <= 2


def test_an_rdma_port_that_cannot_be_read_costs_no_other(faulty: FaultyReads) -> None:
    faulty.faults["/sys/class/infiniband/mlx5_0/ports/1/state"] = errno.EIO
    devices = list((ROOTS / "h100-ib/sys/class/infiniband").iterdir())
    found = list(infiniband.Infiniband(files_of(ROOTS / "h100-ib")).families())
    states = values(found, "node_infiniband_state_id")
    assert ("mlx5_0", "1") not in states
    assert len(states) == len(devices) - 1
    assert failures(found) == {"mlx5_0/1"}


def test_g11_words_of_infiniband_become_bytes(tmp_path: Path) -> None:
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    put(tmp_path, f"{port}/counters/port_xmit_data", "1000\n")
    put(tmp_path, f"{port}/counters/port_xmit_packets", "1000\n")
    put(tmp_path, f"{port}/counters/symbol_error", "N/A (no PMA)\n")
    put(tmp_path, f"{port}/hw_counters/lifespan", "12\n")
    put(tmp_path, f"{port}/rate", "400 Gb/sec (4X NDR)\n")
    found = list(infiniband.Infiniband(files_of(tmp_path)).families())
    key = ("mlx5_0", "1")
    assert values(found, "node_infiniband_port_data_transmitted_bytes_total") == {key: 4000}
    assert values(found, "node_infiniband_port_packets_transmitted_total") == {key: 1000}
    assert values(found, "node_infiniband_rate_bytes_per_second") == {key: 50e9}
    assert values(found, "node_infiniband_lifespan_seconds") == {key: 0.012}
    assert not values(found, "node_infiniband_symbol_error_total")


def test_diskstats_of_any_age_and_without_partitions(tmp_path: Path) -> None:
    put(
        tmp_path,
        "/proc/diskstats",
        " 259 0 nvme0n1 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n"
        " 259 1 nvme0n1p1 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n"
        "   8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n",
    )
    found = list(disks.diskstats(files_of(tmp_path)))
    assert values(found, "node_disk_read_bytes_total") == {("nvme0n1",): 1536, ("sda",): 1536}
    assert values(found, "node_disk_discarded_sectors_total") == {("nvme0n1",): 14}
    assert values(found, "node_disk_flush_requests_time_seconds_total") == {("nvme0n1",): 0.017}


def test_udev_names_a_disk(tmp_path: Path) -> None:
    put(tmp_path, "/proc/diskstats", " 8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n")
    put(
        tmp_path,
        "/run/udev/data/b8:0",
        "S:disk/by-id/x\nE:ID_MODEL=DISK\nE:ID_SERIAL_SHORT=S1\nE:ID_WWN=0x1\n",
    )
    (info,) = disks.disk_infos(files_of(tmp_path))
    assert isinstance(info, NodeFamily)
    labels = dict(zip(info.labels, info.samples[0][0], strict=True))
    assert (labels["model"], labels["serial"], labels["wwn"], labels["path"]) == ("DISK", "S1", "0x1", "")


MDSTAT = """Personalities : [raid1] [raid6]
md0 : active raid1 sdb1[1](F) sda1[0]
      1000 blocks super 1.2 [2/1] [U_]

md1 : active (auto-read-only) raid6 sdf[4] sdd[3] sdc[2](S)
      3000 blocks level 6, 64k chunk [4/3] [UUU_]
      bitmap: 0/1 pages [0KB], 65536KB chunk
      [==>..................]  recovery = 12.6% (375/3000) finish=1.0min speed=1K/sec

md2 : inactive sdz[0](S)
      500 blocks super 1.2

unused devices: <none>
"""


def test_raid_arrays_say_what_they_miss_and_how_far_they_are(tmp_path: Path) -> None:
    put(tmp_path, "/proc/mdstat", MDSTAT)
    found = list(disks.arrays(files_of(tmp_path)))
    members = values(found, "node_md_disks")
    assert values(found, "node_md_disks_required") == {("md0",): 2, ("md1",): 4, ("md2",): 0}
    assert members["md0", "active"] == 1
    assert members["md0", "failed"] == 1
    assert members["md1", "spare"] == 1
    assert values(found, "node_md_blocks_synced") == {("md0",): 1000, ("md1",): 375, ("md2",): 500}
    states = {key for key, value in values(found, "node_md_state").items() if value}
    assert states == {("md0", "active"), ("md1", "recovering"), ("md2", "inactive")}


def test_an_export_counts_once_for_each_protocol_and_address() -> None:
    found = list(mounts.nfs(files_of(ROOTS / "nfs-lustre")))
    exports = values(found, "node_mountstats_nfs_age_seconds_total")
    assert exports
    operations = values(found, "node_mountstats_nfs_operations_requests_total")
    assert {key[:3] for key in operations} <= set(exports)
    assert not failures(found)


def test_a_chip_keeps_its_label_between_boots_and_chips_of_one_device_are_told_apart(tmp_path: Path) -> None:
    device = tmp_path / "sys/devices/platform/coretemp.0"
    for number, name in (("hwmon0", "first"), ("hwmon1", "second")):
        put(tmp_path, f"/sys/devices/platform/coretemp.0/hwmon/{number}/name", f"{name}\n")
        put(tmp_path, f"/sys/devices/platform/coretemp.0/hwmon/{number}/temp1_input", "41500\n")
        put(tmp_path, f"/sys/devices/platform/coretemp.0/hwmon/{number}/fan1_input", "1200\n")
        put(tmp_path, f"/sys/devices/platform/coretemp.0/hwmon/{number}/temp1_label", "Core 0\n")
        (device / "hwmon" / number / "device").symlink_to("../..")
    (tmp_path / "sys/class").mkdir()
    (tmp_path / "sys/class/hwmon").symlink_to(device / "hwmon")
    found = list(sensors.Hwmon(files_of(tmp_path)).families())
    chips = ("platform_coretemp_0_first", "platform_coretemp_0_second")
    assert values(found, "node_hwmon_temp_celsius") == {(chip, "temp1"): 41.5 for chip in chips}
    assert values(found, "node_hwmon_fan_rpm") == {(chip, "fan1"): 1200 for chip in chips}
    assert values(found, "node_hwmon_sensor_label")[chips[0], "temp1", "Core 0"] == 1


def test_zones_of_energy_have_the_number_in_their_name_as_label() -> None:
    found = list(sensors.Rapl(files_of(ROOTS / "h100-ib")).families())
    packages = values(found, "node_rapl_package_joules_total")
    assert packages["1", "/sys/class/powercap/intel-rapl:1"] == 123_456.789012


def test_memory_errors_by_controller_and_row(tmp_path: Path) -> None:
    folder = "/sys/devices/system/edac/mc/mc0"
    for file, count in (("ce_count", 3), ("ue_count", 1), ("csrow0/ce_count", 2), ("csrow0/ue_count", 0)):
        put(tmp_path, f"{folder}/{file}", f"{count}\n")
    found = list(sensors.memory_errors(files_of(tmp_path)))
    assert values(found, "node_edac_correctable_errors_total") == {("0",): 3}
    assert values(found, "node_edac_csrow_correctable_errors_total") == {("0", "0"): 2}


def test_a_table_that_is_not_as_specified_costs_no_other(tmp_path: Path) -> None:
    put(tmp_path, "/proc/loadavg", "1.00 2.00 3.00 1/2 3\n")
    put(tmp_path, "/proc/stat", "cpu 1 2\ncpu0 1 x\n")
    found = list(node_exporter.tables(files_of(tmp_path)).collect())
    assert values(found, "node_load1") == {(): 1}
    assert [(r.item, r.reason) for r in found if isinstance(r, Failure)] == [("stat", "format")]


def test_a_part_that_fails_costs_no_other(tmp_path: Path, faulty: FaultyReads) -> None:
    put(tmp_path, "/proc/loadavg", "1.00 2.00 3.00 1/2 3\n")
    put(tmp_path, "/proc/vmstat", "oom_kill 4\n")
    faulty.faults["/proc/vmstat"] = errno.EIO
    found = list(node_exporter.tables(files_of(tmp_path)).collect())
    assert values(found, "node_load15") == {(): 3}
    assert [reading.item for reading in found if isinstance(reading, Failure)] == ["vmstat"]
