"""The number in a tensor of one element: {tensor,tensor_shape,types}.proto in tensorflow/core/framework."""

from __future__ import annotations

import struct
from typing import NamedTuple

from clusterwatt import protobuf
from clusterwatt.protobuf import FIXED32, FIXED64, LENGTH, VARINT, Field, MalformedError

DTYPE, SHAPE, CONTENT, HALF_VAL = 1, 2, 4, 13
HALF, BFLOAT16 = 19, 14


class Type(NamedTuple):
    """How a number is kept: packed in `tensor_content` by `form`, or in the field `tag` of its own."""

    form: str
    tag: int


TYPES = {
    1: Type("<f", 5),
    2: Type("<d", 6),
    3: Type("<i", 7),
    4: Type("<B", 7),
    5: Type("<h", 7),
    6: Type("<b", 7),
    9: Type("<q", 10),
    10: Type("<?", 11),
    BFLOAT16: Type("<H", HALF_VAL),  # the upper half of a float; both kinds of bits share a field
    17: Type("<H", 7),
    HALF: Type("<e", HALF_VAL),
    22: Type("<I", 16),
    23: Type("<Q", 17),
}
FIXED = {5: (FIXED32, "<f"), 6: (FIXED64, "<d")}  # the fields of numbers that are no varints


def scalar(data: bytes, tensor: Field) -> float | None:
    """The number of a tensor with one element; None for any other tensor. Raises MalformedError."""
    dtype, elements, content = 0, 1, None
    own: dict[int, Field] = {}
    for field in protobuf.fields(data, tensor.start, tensor.end):
        if field.tag == DTYPE and field.wire == VARINT:
            dtype = field.number
        elif field.tag == SHAPE and field.wire == LENGTH:
            elements = _elements(data, field)
        elif field.tag == CONTENT and field.wire == LENGTH:
            content = field
        else:
            own[field.tag] = field
    kind = TYPES.get(dtype)
    if kind is None or elements != 1:
        return None
    if content is not None and content.end > content.start:
        return _unpacked(data, content, dtype)
    field_of_kind = own.get(kind.tag)
    return 0.0 if field_of_kind is None else _own(data, field_of_kind, dtype)


def _elements(data: bytes, shape: Field) -> int:
    elements = 1
    for dimension in protobuf.fields(data, shape.start, shape.end):
        if dimension.tag == 3:  # the rank is not known, nor then the size
            return 0
        if dimension.tag == 2 and dimension.wire == LENGTH:
            sizes = [
                protobuf.signed(field.number)
                for field in protobuf.fields(data, dimension.start, dimension.end)
                if field.tag == 1 and field.wire == VARINT
            ]
            if sizes[-1:] != [1]:
                return 0
    return elements


def _unpacked(data: bytes, content: Field, dtype: int) -> float:
    form = TYPES[dtype].form
    if content.end - content.start != struct.calcsize(form):
        raise MalformedError("a tensor of another size than its shape says")
    number = struct.unpack_from(form, data, content.start)[0]
    return from_bits(number) if dtype == BFLOAT16 else float(number)


def _own(data: bytes, field: Field, dtype: int) -> float:
    """The number in a field of its own: alone, or as a list of one (packed, as proto3 writes it)."""
    wire_type, form = FIXED.get(field.tag, (VARINT, ""))
    if field.wire == LENGTH:
        if field.start == field.end:
            return 0.0
        if wire_type == VARINT:
            number, end = protobuf.varint(data, field.start, field.end)
            field = Field(field.tag, VARINT, field.start, end, number)
        else:
            field = Field(field.tag, wire_type, field.start, field.end)
    if field.wire != wire_type:
        raise MalformedError(f"field {field.tag} has wire type {field.wire}")
    if form:
        if field.end - field.start < struct.calcsize(form):
            raise MalformedError("half a number")
        return float(struct.unpack_from(form, data, field.start)[0])
    if dtype == BFLOAT16:
        return from_bits(field.number & 0xFFFF)
    if dtype == HALF:
        return float(struct.unpack("<e", struct.pack("<H", field.number & 0xFFFF))[0])
    return float(field.number if TYPES[dtype].form in {"<I", "<Q"} else protobuf.signed(field.number))


def from_bits(upper: int) -> float:
    """A bfloat16: the upper 16 bits of a float."""
    number: float = struct.unpack("<f", struct.pack("<I", upper << 16))[0]
    return number
