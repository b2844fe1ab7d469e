"""Pause frames by the driver, with a kernel that answers the ioctl in place of the real one."""

from __future__ import annotations

import errno
import os
import socket
import struct

import pytest

from clusterwatt.catalog import Level, faults
from clusterwatt.collectors.ethtool import (
    METRICS,
    NOT_OFFERED,
    EthtoolCollector,
    ask_kernel,
    name_table,
    numbers,
    statistics_of,
)
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.network import NetworkPause
from clusterwatt.sysfs import Files
from tests.machines import machine

# include/uapi/linux/ethtool.h
GSTRINGS, GSTATS, GSSET_INFO, SS_STATS = 0x1B, 0x1D, 0x37, 1


class Kernel:
    """Answers the three commands for interfaces whose statistics are given by name, as dev_ethtool() does."""

    def __init__(self, **cards: dict[str, int]) -> None:
        self.cards = cards
        self.errors: dict[str, int] = {}
        self.grows_by = 0
        self.commands: list[tuple[str, int]] = []

    def __call__(self, device: str, command: bytearray) -> None:
        (number,) = struct.unpack_from("=I", command)
        self.commands.append((device, number))
        code = self.errors.get(device, 0 if device in self.cards else errno.ENODEV)
        if code:
            raise OSError(code, os.strerror(code))
        card = self.cards[device]
        if number == GSSET_INFO:
            (asked,) = struct.unpack_from("=Q", command, 8)
            assert asked == 1 << SS_STATS
            struct.pack_into("=QI", command, 8, asked if card else 0, len(card))
            return
        more = {f"new_{index}": index for index in range(self.grows_by)}
        if number == GSTRINGS:
            names = [name.encode().ljust(32, b"\0") for name in (card | more)]
            put_at(command, 12, b"".join(names))
        elif number == GSTATS:
            put_at(command, 8, struct.pack(f"={len(card | more)}Q", *(card | more).values()))
        else:
            raise AssertionError(f"ethtool command {number:#x}")


def put_at(command: bytearray, offset: int, content: bytes) -> None:
    assert offset + len(content) <= len(command), "the kernel would have written beyond the buffer"
    command[offset : offset + len(content)] = content


def collect(files: Files, kernel: Kernel) -> list[Reading]:
    return list(EthtoolCollector(files, kernel).collect())


def pauses(readings: list[Reading]) -> dict[tuple[str, str, str], tuple[float | None, float | None]]:
    return {
        (r.device, r.direction, r.priority): (r.pause_frames, r.pause_seconds)
        for r in readings
        if isinstance(r, NetworkPause)
    }


MLX5 = {
    "rx_packets": 7,
    "rx_prio3_bytes": 900,
    "rx_prio3_pause": 12,
    "rx_prio3_pause_duration": 2_500_000,
    "rx_prio3_pause_transition": 6,
    "tx_prio3_pause": 3,
    "tx_prio3_pause_duration": 1_000,
    "rx_pause_ctrl_phy": 0,
    "tx_pause_ctrl_phy": 4,
    "ch0_rx_packets": 5,
}


def test_pause_frames_of_mlx5_by_priority_and_microseconds_as_seconds() -> None:
    found = pauses(collect(machine("roce-bond"), Kernel(enp26s0np0=MLX5)))
    assert found == {
        ("enp26s0np0", "receive", "3"): (12, 2.5),
        ("enp26s0np0", "transmit", "3"): (3, 0.001),
        ("enp26s0np0", "receive", "global"): (0, None),
        ("enp26s0np0", "transmit", "global"): (4, None),
    }


@pytest.mark.parametrize(
    ("card", "found"),
    [
        (
            {"rx_pfc_ena_frames_pri5": 8, "pfc_pri5_rx_duration_us": 1_500_000},
            {("receive", "5"): (8, 1.5)},
        ),
        ({"tx_priority_0_xoff.nic": 2, "tx_priority_0_xon.nic": 9}, {("transmit", "0"): (2, None)}),
        ({"rx_pripause_7_1us_count": 20}, {("receive", "7"): (None, 0.00002)}),
        ({"rx_packets": 1}, {}),
        ({}, {}),
    ],
    ids=["bnxt_en", "ice", "ionic", "none", "no statistics"],
)
def test_names_of_other_drivers(
    card: dict[str, int], found: dict[tuple[str, str], tuple[float | None, float | None]]
) -> None:
    kernel = Kernel(enp26s0np0=card)
    assert pauses(collect(machine("roce-bond"), kernel)) == {
        ("enp26s0np0", *key): value for key, value in found.items()
    }


def test_only_physical_interfaces_are_asked() -> None:
    kernel = Kernel()
    assert collect(machine("roce-bond"), kernel) == []
    assert {device for device, _ in kernel.commands} == {
        "enp26s0np0",
        "enp26s0v0",
        "enp60s0np0",
        "enp170s0f0np0",
        "enp170s0f1np1",
    }


def test_a_card_that_does_not_offer_statistics_is_no_failure_and_a_sick_one_is() -> None:
    kernel = Kernel(enp26s0np0=MLX5, enp60s0np0=MLX5, enp26s0v0=MLX5)
    kernel.errors = {"enp26s0v0": errno.EOPNOTSUPP, "enp60s0np0": errno.EIO}
    readings = collect(machine("roce-bond"), kernel)
    assert {device for device, _, _ in pauses(readings)} == {"enp26s0np0"}
    assert [(r.item, r.reason) for r in readings if isinstance(r, Failure)] == [("enp60s0np0", "io_error")]


def test_a_driver_that_grows_between_two_questions_has_room_for_its_answer() -> None:
    kernel = Kernel(enp26s0np0=MLX5)
    kernel.grows_by = 8000
    assert pauses(collect(machine("roce-bond"), kernel))["enp26s0np0", "receive", "3"] == (12, 2.5)


def test_names_that_moved_are_found_again() -> None:
    kernel = Kernel(enp26s0np0={"rx_prio3_pause": 5, "rx_bytes": 9})
    collector = EthtoolCollector(machine("roce-bond"), kernel)
    assert pauses(list(collector.collect()))["enp26s0np0", "receive", "3"] == (5, None)
    kernel.cards["enp26s0np0"] = {"rx_bytes": 10, "rx_prio3_pause": 6}
    assert pauses(list(collector.collect()))["enp26s0np0", "receive", "3"] == (6, None)


def test_the_real_kernel_speaks_this_language() -> None:
    """What it answers depends on the machine; that it answers with what was asked for does not."""
    names = [name for _, name in socket.if_nameindex()]
    tables = {}
    for name in (*names, "none-such0"):
        try:
            number = statistics_of(ask_kernel, name)
            tables[name] = name_table(ask_kernel, name, number), numbers(ask_kernel, name, number)
        except OSError as error:
            if error.errno not in NOT_OFFERED:
                raise
    assert "none-such0" not in tables
    for table, values in tables.values():
        assert len(table) == 32 * len(values)
        assert all(
            table[start : start + 32].partition(b"\0")[0].isascii() for start in range(0, len(table), 32)
        )


def test_pause_frames_come_with_the_full_profile() -> None:
    assert {metric.level for metric in METRICS} == {Level.FULL}
    assert list(faults(METRICS)) == []
