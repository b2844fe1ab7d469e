"""Devices in the words of schedulers, runtimes and device plugins."""

from __future__ import annotations

import pytest

from clusterwatt.attribution.devices import Devices, Known
from tests.attribution.node import A, B, gpu, mig

OTHER_ORDER = [3, 2, 1, 4, 5, 0, 7, 6]  # minors of the GPUs in the driver's order


def eight() -> Devices:
    return Devices(
        gpu(
            f"GPU-{index:08x}-0000-0000-0000-000000000000",
            str(index),
            minor=str(minor),
            pci=f"00000000:{0x10 + index:02X}:00.0",
        )
        for index, minor in enumerate(OTHER_ORDER)
    )


def test_g23_the_minor_is_not_the_index() -> None:
    devices = eight()
    assert devices.resolve("minor:0") == "GPU-00000005-0000-0000-0000-000000000000"
    assert devices.resolve("index:0") == "GPU-00000000-0000-0000-0000-000000000000"
    assert devices.resolve("nvidia0") == devices.resolve("minor:0")


@pytest.mark.parametrize(
    ("reference", "index"),
    [
        ("GPU-00000002-0000-0000-0000-000000000000", 2),
        ("gpu-00000002-0000-0000-0000-000000000000", 2),
        ("GPU-00000003", 3),
        ("GPU-00000003-0000-0000-0000-000000000000::7", 3),
        ("minor:3", 0),
        ("index:3", 3),
        ("pci:0000:1f:00.0", None),
        ("pci:0000:17:00.0", 7),
        ("pci:00000000:17:00.0", 7),
        ("nvidia7", 6),
        ("nvidia7/vgpu2", 6),
        ("GPU-0000000", None),  # of eight, each could be meant
        ("GPU-", None),
        ("GPU-ffffffff", None),
        ("minor:8", None),
        ("minor:", None),
        ("3", None),
        ("", None),
        ("pci:nonsense", None),
        ("nvidia0/gi3", None),
        ("NoDevFiles", None),
    ],
)
def test_a_whole_gpu_by_every_name(reference: str, index: int | None) -> None:
    expected = None if index is None else f"GPU-{index:08x}-0000-0000-0000-000000000000"
    assert eight().resolve(reference) == expected


@pytest.mark.parametrize(
    ("reference", "number"),
    [
        (f"MIG-00000003-{A[4:]}", 3),
        (f"MIG-00000003-{A[4:]}::1", 3),
        ("MIG-00000003", 3),
        (f"MIG-{A}/3/0", 3),
        (f"MIG-{A}/4/0", None),
        ("nvidia0/gi3", 3),
        ("nvidia0/gi3/vgpu1", 3),
        ("nvidia1/gi3", None),
    ],
)
def test_a_mig_instance_by_every_name(reference: str, number: int | None) -> None:
    devices = Devices([gpu(A), gpu(B, "1"), mig(A, 1, "3g.40gb"), mig(A, 3, "2g.20gb")])
    assert devices.resolve(reference) == (None if number is None else f"MIG-{number:08x}-{A[4:]}")


def test_compute_instances_of_one_gpu_instance_are_not_told_apart_by_its_number() -> None:
    devices = Devices([gpu(A), mig(A, 1, "1c.3g.40gb"), gpu("MIG-x", "0:2", parent=A, instance="1")])
    assert devices.resolve("nvidia0/gi1") is None


def test_parts_of_a_board_are_its_compute_slices() -> None:
    devices = Devices([gpu(A), mig(A, 0, "3g.40gb"), mig(A, 1, "2g.20gb"), mig(A, 2, "1g.10gb+me")])
    assert [unit.part for unit in devices.boards[A].units] == [3 / 7, 2 / 7, 1 / 7]
    a30 = Devices([gpu(A, name="NVIDIA A30"), mig(A, 0, "2g.12gb")])
    assert [unit.part for unit in a30.boards[A].units] == [0.5]
    shared = Devices([gpu(A), mig(A, 0, "1c.3g.40gb"), mig(A, 1, "2c.3g.40gb")])
    assert [unit.part for unit in shared.boards[A].units] == [1 / 7, 2 / 7]


def test_a_board_never_gives_out_more_than_itself() -> None:
    devices = Devices([gpu(A, name="NVIDIA A30"), *(mig(A, number, "1g.6gb") for number in range(8))])
    assert sum(unit.part for unit in devices.boards[A].units) == pytest.approx(1.0)


def test_who_holds_a_board_in_instances_holds_all_of_them() -> None:
    devices = Devices([gpu(A), mig(A, 0, "3g.40gb"), mig(A, 1, "2g.20gb")])
    assert [unit.gpu for unit in devices.held_by(A)] == ["0:0", "0:1"]
    assert [unit.gpu for unit in devices.held_by(f"MIG-00000001-{A[4:]}")] == ["0:1"]


def test_a_lost_gpu_keeps_its_names_and_a_dissolved_instance_does_not() -> None:
    known = Known()
    instance = mig(B, 1, "3g.40gb")
    known.take([gpu(A), gpu(B, "1"), instance], {A, B, instance.uuid})
    devices = known.take([gpu(B, "1")], {A, B})
    assert devices.resolve("minor:0") == A
    assert devices.resolve(instance.uuid) is None
    assert not devices.boards[B].partitioned


def test_a_number_that_a_lost_gpu_and_another_have_names_neither() -> None:
    known = Known()
    known.take([gpu(A, "0")], {A})
    devices = known.take([gpu(B, "0", minor="1")], {A, B})
    assert devices.resolve("index:0") is None
    assert devices.resolve("minor:1") == B
