"""Bytes from a socket: what protobuf writes is read as it was meant, all else is an error or nothing."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.protobuf import MalformedError
from clusterwatt.workloads.kubernetes.kubelet import (
    Assigned,
    AssignedPod,
    ClaimedDevice,
    Container,
    Reader,
    decoded,
)
from tests.workloads.kubernetes.kubelet_server import claim, container, encoded, pod

WORDS = st.text(max_size=20)
CLAIMS = st.builds(claim, WORDS, WORDS, pool=WORDS, driver=WORDS)
DEVICES = st.dictionaries(WORDS, st.lists(WORDS, max_size=4), max_size=3)
CONTAINERS = st.builds(
    lambda name, held, claims: container(name, held, *claims), WORDS, DEVICES, st.lists(CLAIMS, max_size=2)
)
PODS = st.lists(
    st.builds(lambda ns, name, inner: pod(ns, name, *inner), WORDS, WORDS, st.lists(CONTAINERS, max_size=3)),
    max_size=4,
)


def meant(said: dict[str, Any]) -> AssignedPod:
    return AssignedPod(
        said["namespace"],
        said["name"],
        tuple(
            Container(
                inner["name"],
                tuple(
                    Assigned(part["resource_name"], tuple(part["device_ids"])) for part in inner["devices"]
                ),
                tuple(
                    ClaimedDevice(
                        one["driver_name"],
                        one["pool_name"],
                        one["device_name"],
                        tuple(name["name"] for name in one["cdi_devices"] if name["name"]),
                    )
                    for part in inner["dynamic_resources"]
                    for one in part["claim_resources"]
                ),
            )
            for inner in said["containers"]
        ),
    )


@given(PODS)
def test_what_protobuf_writes_is_read_as_it_was_meant(pods: list[dict[str, Any]]) -> None:
    assert decoded(encoded(*pods)) == [meant(said) for said in pods]


@given(st.binary(max_size=300))
def test_any_bytes_are_a_list_or_an_error(content: bytes) -> None:
    with contextlib.suppress(MalformedError):
        decoded(content)


@given(PODS, st.data())
def test_a_message_that_was_damaged_is_a_list_or_an_error(
    pods: list[dict[str, Any]], data: st.DataObject
) -> None:
    content = bytearray(encoded(*pods))
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    with contextlib.suppress(MalformedError):
        decoded(bytes(content[:cut]))


def test_fields_that_are_not_known_are_passed_over() -> None:
    # Field 15: a varint; 14: 64 bits; 13: 32 bits; 12: bytes, among them what ends a varint of ten bytes.
    unknown = (
        b"\x78\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x71"
        + bytes(8)
        + b"\x6d"
        + bytes(4)
        + b"\x62\x02\xff\xff"
    )
    name = b"\x0a\x03one"
    assert decoded(b"\x0a" + bytes([len(unknown + name)]) + unknown + name) == [AssignedPod("", "one", ())]


@pytest.mark.parametrize(
    "content",
    [
        b"\x80" * 10 + b"\x01",  # eleven bytes
        b"\x08" + b"\xff" * 9 + b"\x02",  # 65 bits
        b"\x0a\x05abc",
        b"\x02\x00",  # number 0
        b"\x0b\x0c",  # a group
        b"\x0f",
        b"\x09\x00",
    ],
)
def test_what_is_no_message_is_an_error(content: bytes) -> None:
    with pytest.raises(MalformedError):
        decoded(content)


def test_fields_are_counted_over_the_whole_answer() -> None:
    reader = Reader(max_fields=3)
    assert len(list(reader.parts(memoryview(b"\x0a\x00" * 2)))) == 2
    with pytest.raises(MalformedError, match="too many"):
        list(reader.parts(memoryview(b"\x0a\x00" * 2)))
