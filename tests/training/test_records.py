"""The framing of record files: half records, corrupt ones, holes, and any bytes at all."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.training import crc32c as checksums
from clusterwatt.training import records
from tests.training.event_bytes import crc32c, masked, record, scalar

# RFC 3720, appendix B.4, and the check value that everybody gives for this polynomial.
KNOWN = [
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
]
R0 = bytes.fromhex("1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d")
R1 = bytes.fromhex("1a00000000000000129bd82d0900004040fc54d94110072a0d0a0b0a046c6f7373150000803ee6a14cb4")
R2 = bytes.fromhex("1a00000000000000129bd82d0900008040fc54d94110082a0d0a0b0a046c6f7373150000003e7d752dde")


def find(data: bytes, *, synced: bool = True, at_end: bool = True) -> records.Found:
    return records.find(data, synced=synced, at_end=at_end)


@pytest.mark.parametrize(("data", "checksum"), KNOWN)
def test_the_checksum_is_that_of_the_rfc(data: bytes, checksum: int) -> None:
    assert checksums.crc32c(data) == checksum
    assert checksums.crc32c_in_python(data) == checksum
    assert crc32c(data) == checksum


def test_whole_records_are_found() -> None:
    found = find(R0 + R1 + R2)
    assert found == ([R0[12:-4], R1[12:-4], R2[12:-4]], len(R0 + R1 + R2), True, 0)


@pytest.mark.parametrize("cut", range(len(R1 + R2) + 1))
def test_a_file_that_ends_anywhere_is_read_up_to_its_last_whole_record(cut: int) -> None:
    whole = [R1, R2][: (cut >= len(R1)) + (cut >= len(R1 + R2))]
    found = find((R1 + R2)[:cut])
    assert found.records == [each[12:-4] for each in whole]
    assert found.next_at == sum(map(len, whole))
    assert found.corrupt == 0
    assert find((R1 + R2)[found.next_at :]).records == [each[12:-4] for each in [R1, R2][len(whole) :]]


@pytest.mark.parametrize("at", range(len(R1)))
def test_one_wrong_byte_costs_its_record_only(at: int) -> None:
    wrong = bytearray(R1)
    wrong[at] ^= 0x55
    found = find(R0 + wrong + R2)
    assert found.records == [R0[12:-4], R2[12:-4]]
    assert found.corrupt == 1
    assert found.next_at == len(R0 + R1 + R2)


def test_bytes_that_are_missing_in_the_middle_cost_one_record_only() -> None:
    found = find(R0 + R1[:20] + R2 + R1)
    assert found.records == [R0[12:-4], R2[12:-4], R1[12:-4]]
    assert found.corrupt == 1


def test_a_stretch_that_begins_anywhere_is_read_from_the_next_record() -> None:
    for begin in range(1, len(R1) + 1):
        found = find((R1 + R2)[begin:], synced=False)
        assert found.records == [R2[12:-4]]
        assert found.corrupt == 0


def test_zeros_at_the_end_are_data_that_has_not_arrived() -> None:
    """A network file system may show a file's new size before its content."""
    for known in (0, 5, 12, 30):
        found = find(R1 + R2[:known] + bytes(len(R2) - known + 100))
        assert found == ([R1[12:-4]], len(R1), True, 0)


def test_zeros_in_the_middle_are_a_hole_that_is_passed_over() -> None:
    found = find(R1 + bytes(5000) + R2)
    assert found.records == [R1[12:-4], R2[12:-4]]
    assert found.corrupt == 1


def test_a_hole_longer_than_a_stretch_does_not_hold_up_the_reader() -> None:
    found = find(R1 + bytes(5000), at_end=False)
    assert found.next_at > len(R1 + bytes(4900))
    assert not found.synced


def test_a_long_record_is_passed_over_unread() -> None:
    image = record(bytes(records.MAX_RECORD_BYTES + 1))
    found = find(R1 + image[:100])
    assert found == ([R1[12:-4]], len(R1 + image), True, 0)
    assert find(R1 + image + R2).records == [R1[12:-4], R2[12:-4]]


def test_forged_headers_do_not_hold_up_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claims a long record, whose checksum would have to be worked out in vain."""
    length = struct.pack("<Q", 200_000)
    forged = (length + masked(length)) * 20_000
    summed = 0

    def counting(data: bytes) -> int:
        nonlocal summed
        summed += len(data)
        return checksums.crc32c(data)

    monkeypatch.setattr(records, "crc32c", counting)
    found = find(forged + R1, at_end=False)
    assert summed < 100 * 200_000
    assert found.next_at > len(forged) - 12
    assert find((forged + R1)[found.next_at :] + R2, synced=found.synced).records == [R2[12:-4]]


def test_a_length_that_no_message_has_is_corrupt() -> None:
    length = struct.pack("<Q", 1 << 40)
    found = find(length + masked(length) + R1)
    assert found.records == [R1[12:-4]]
    assert found.corrupt == 1


@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_any_bytes_are_read_and_none_are_held_up(data: bytes, synced: bool, at_end: bool) -> None:
    found = find(data, synced=synced, at_end=at_end)
    assert found.next_at >= 0
    again = find(data[found.next_at :], synced=found.synced, at_end=at_end)
    assert again.records == []


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.data())
def test_records_survive_any_cut_into_stretches(contents: list[bytes], data: st.DataObject) -> None:
    file = b"".join(record(content) for content in contents)
    got: list[bytes] = []
    at, synced, end = 0, True, 0
    while at < len(file):
        end = data.draw(st.integers(min_value=min(end + 1, len(file)), max_value=len(file)))
        found = find(file[at:end], synced=synced)
        got.extend(found.records)
        at, synced = at + found.next_at, found.synced
        if end == len(file) and not found.next_at:
            break
    # A record of zeros only cannot be told from data that has not arrived, until more follows.
    assert got == contents


def test_noise_between_records_costs_none_of_them() -> None:
    dice = random.Random(7)
    wanted, file = [], b""
    for step in range(200):
        each = scalar("loss", step / 7, step, 1_700_000_000.0 + step)
        wanted.append(each[12:-4])
        file += each + dice.randbytes(dice.choice([0, 0, 3, 50]))
    assert find(file).records == wanted
