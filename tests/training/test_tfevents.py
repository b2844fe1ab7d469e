"""Events: the two forms of scalars, all else passed over, and any bytes at all."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.training.tfevents import Events, Logged
from tests.training.event_bytes import event, field, number, simple, varint

WALL_S = 1_700_000_001.5


def read(*records: bytes, from_start: bool = True) -> list[tuple[str, float, int, float]]:
    return Events(lambda _: True, from_start=from_start).scalars(list(records))


def tensor(dtype: int, content: bytes, sizes: tuple[int, ...] = ()) -> bytes:
    shape = b"".join(field(2, number(1, size)) for size in sizes)
    return field(8, number(1, dtype) + field(2, shape) + content)


def plugin(name: str) -> bytes:
    return field(9, field(1, field(1, name.encode())))


def value(tag: str, of_tensor: bytes, of_plugin: str = "scalars") -> bytes:
    return field(1, tag.encode()) + of_tensor + (plugin(of_plugin) if of_plugin else b"")


@pytest.mark.parametrize("step", [0, 1, 42, 127, 128, 300, 16_384, 2_097_152, 1 << 30, (1 << 62) + 5, -3])
def test_a_simple_value_is_read_at_any_step_first_and_again(step: int) -> None:
    record = event(WALL_S, step, simple("loss", 0.25))
    assert read(record, record, record) == [("loss", 0.25, step, WALL_S)] * 3


def test_tags_that_look_alike_are_told_apart() -> None:
    records = [event(WALL_S, 42, simple(tag, 1.0)) for tag in ("a", "b", "ab", "*", "\n", "é", "a" * 300)]
    assert [scalar[0] for scalar in read(*records, *records)] == [
        "a",
        "b",
        "ab",
        "*",
        "\n",
        "é",
        "a" * 300,
    ] * 2


def test_several_values_of_one_event_are_read() -> None:
    record = event(WALL_S, 3, simple("a", 1.0), simple("b", 2.0))
    assert read(record, record) == [("a", 1.0, 3, WALL_S), ("b", 2.0, 3, WALL_S)] * 2


@pytest.mark.parametrize(
    ("dtype", "content", "expected"),
    [
        (1, field(4, struct.pack("<f", 0.5)), 0.5),
        (1, field(5, struct.pack("<f", 0.5)), 0.5),
        (1, b"\x2d" + struct.pack("<f", 0.5), 0.5),  # a list of one, not packed
        (1, b"", 0.0),  # what is left out is 0
        (2, field(4, struct.pack("<d", 1e300)), 1e300),
        (2, field(6, struct.pack("<d", 1e300)), 1e300),
        (3, field(7, varint(-7)), -7.0),
        (3, field(4, struct.pack("<i", -7)), -7.0),
        (4, field(7, varint(200)), 200.0),
        (9, field(10, varint(1 << 40)), float(1 << 40)),
        (10, field(11, varint(1)), 1.0),
        (14, field(13, varint(0x3FC0)), 1.5),  # bfloat16
        (14, field(4, struct.pack("<H", 0x3FC0)), 1.5),
        (19, field(13, varint(0x3E00)), 1.5),  # half
        (19, field(4, struct.pack("<e", 1.5)), 1.5),
        (23, field(17, varint((1 << 64) - 1)), float((1 << 64) - 1)),
    ],
)
def test_a_tensor_of_one_element_is_read_in_every_type(dtype: int, content: bytes, expected: float) -> None:
    for sizes in ((), (1,), (1, 1)):
        record = event(WALL_S, 9, value("loss", tensor(dtype, content, sizes)))
        assert read(record) == [("loss", expected, 9, WALL_S)]


def test_what_is_no_scalar_is_passed_over() -> None:
    floats = field(4, struct.pack("<2f", 0.5, 0.5))
    one = field(4, struct.pack("<f", 0.5))
    assert read(event(WALL_S, 1, value("t", tensor(1, floats, (2,))))) == []
    assert read(event(WALL_S, 1, value("t", tensor(7, field(8, b"text")), "text"))) == []
    assert read(event(WALL_S, 1, value("t", tensor(1, one), "hparams"))) == []
    assert read(event(WALL_S, 1, value("t", tensor(1, one), "histograms"))) == []
    assert read(event(WALL_S, 1, field(1, b"i") + field(4, b"an image"))) == []
    assert read(b"\x09" + bytes(8) + field(3, b"brain.Event:2")) == []


def test_the_plugin_may_stand_in_the_first_event_only() -> None:
    one = tensor(1, field(4, struct.pack("<f", 0.5)))
    later = event(WALL_S, 2, value("loss", one, ""))
    assert read(event(WALL_S, 1, value("loss", one)), later) == [
        ("loss", 0.5, 1, WALL_S),
        ("loss", 0.5, 2, WALL_S),
    ]
    assert read(later) == []
    assert read(later, from_start=False) == [("loss", 0.5, 2, WALL_S)]


def test_an_event_of_another_form_is_not_taken_for_the_common_one() -> None:
    common = event(WALL_S, 5, simple("loss", 0.5))
    without_time = field(3, b"1234567") + common[9:]  # as long as a wall time
    assert read(common, without_time) == [("loss", 0.5, 5, WALL_S), ("loss", 0.5, 5, 0.0)]


def test_values_that_are_not_finite_come_as_they_are() -> None:
    record = event(WALL_S, 1, simple("a", math.inf), simple("b", math.nan))
    (_, infinite, *_), (_, not_a_number, *_) = read(record)
    assert infinite == math.inf
    assert math.isnan(not_a_number)


def test_tags_that_nobody_asked_for_tell_that_something_was_logged() -> None:
    events = Events(lambda tag: tag == "loss", from_start=True)
    other = event(WALL_S + 5, 8, simple("other", 1.0))
    records = [event(WALL_S, 7, simple("loss", 0.5)), other]
    assert events.scalars(records) == [("loss", 0.5, 7, WALL_S)]
    assert events.other == (8, WALL_S + 5)
    events.other = None
    assert events.scalars([event(WALL_S + 6, 9, simple("other", 1.0))]) == []
    assert events.other == (9, WALL_S + 6)


def test_a_checkpoint_in_the_session_log_is_noted() -> None:
    events = Events(lambda _: True, from_start=True)
    events.scalars([event(WALL_S, 1) + field(7, number(1, 1))])
    assert events.checkpoint_s is None
    events.scalars([event(WALL_S, 1) + field(7, number(1, 3))])
    assert events.checkpoint_s == WALL_S


def test_a_message_that_is_none_is_counted_and_costs_no_other() -> None:
    events = Events(lambda _: True, from_start=True)
    good = event(WALL_S, 1, simple("loss", 0.5))
    assert events.scalars([good, good[:-2], b"\xff" * 20, b"", good]) == [("loss", 0.5, 1, WALL_S)] * 2
    assert events.malformed == 2


STEPS = st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 1 << 40, (1 << 63) - 1, -1])


@given(st.lists(st.tuples(st.sampled_from(["loss", "lost", "noise", "x"]), STEPS), max_size=40))
def test_events_are_the_same_however_many_are_read_at_once(logged: list[tuple[str, int]]) -> None:
    """Steps of other lengths before and behind, and tags that nobody asked for in between."""
    together = Events(lambda tag: tag.startswith("lo"), from_start=True)
    written = [
        event(1.7e9 + place, step, simple(tag, float(place))) for place, (tag, step) in enumerate(logged)
    ]
    for _ in range(2):  # the second time every tag is known
        assert together.scalars(written) == [
            (tag, float(place), step, 1.7e9 + place)
            for place, (tag, step) in enumerate(logged)
            if tag.startswith("lo")
        ]
    others = [Logged(step, 1.7e9 + n) for n, (tag, step) in enumerate(logged) if not tag.startswith("lo")]
    assert together.other == (others[-1] if others else None)


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_raise(data: bytes, from_start: bool) -> None:
    read(data, from_start=from_start)
    read(event(WALL_S, 1) + field(5, data), from_start=from_start)
    read(event(WALL_S, 1, data), from_start=from_start)
    read(event(WALL_S, 1, value("t", field(8, data))), from_start=from_start)
    read(event(WALL_S, 1, value("t", tensor(14, data))), from_start=from_start)
    read(event(WALL_S, 1) + field(7, data), from_start=from_start)


@given(st.integers(min_value=0, max_value=40), st.binary(max_size=12))
def test_no_change_of_an_event_that_is_known_raises(at: int, change: bytes) -> None:
    good = event(WALL_S, 300, simple("loss", 0.5))
    read(good, good[:at] + change + good[at + len(change) :])
