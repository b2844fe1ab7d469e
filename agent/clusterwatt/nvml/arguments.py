"""Arguments of a driver call as plain values (numbers, texts, lists, objects), and back into memory.

The binding passes what nvml.h declares: numbers by value, handles, and memory of the caller that the driver
fills: a number, a text, a structure, an array of structures. Any structure of the binding goes by its own
`_fields_`, so that a new one needs nothing here.

Members that are zero or empty are left out. Text is Latin-1: one character stands for each byte, whatever the
driver put there. A union is its bytes as a number. Handles are addresses and mean nothing elsewhere: they get
numbers in the order in which they appear.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

# The base classes of ctypes that have no public names.
SIMPLE: Any = ctypes.c_uint.__mro__[1]
POINTER: Any = ctypes.POINTER(ctypes.c_uint).__mro__[1]
BY_REFERENCE: Any = type(ctypes.byref(ctypes.c_uint()))

BYTES = (ctypes.c_char, ctypes.c_ubyte)
FOREIGN_MEMORY = (ctypes.c_char_p, ctypes.c_void_p)  # the driver's own texts, such as names of metrics
# Members that say what is asked for; what else a structure holds before the call is left over from the last.
SELECTORS = frozenset(
    {
        "version",
        "fieldId",
        "scopeId",
        "metricId",
        "numMetrics",
        "sample1",
        "sample2",
        "sensorType",
        "fan",
        "type",
        "pstate",
        "mode",
        "set",
    }
)
# Structures that point at an array of the caller, and the member that says how many entries were filled.
COUNTS = {
    "procUtilArray": "processSamplesCount",
    "procArray": "numProcArrayEntries",
    "entries": "entryCount",
}

Plain = Any  # None, a number, a text, a list or an object of these


class Handles:
    """Numbers for the addresses that stand for GPUs, event sets and the like; and addresses for numbers."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._made: dict[int, Any] = {}
        self._lock = threading.Lock()

    def number(self, address: int) -> int:
        """The number of a handle, a new one at the first sight."""
        with self._lock:
            return self._numbers.setdefault(address, len(self._numbers) + 1)

    def address(self, number: int, kind: Any) -> int:
        """An address that stands for a number: that of an empty object, which lives as long as this."""
        with self._lock:
            made = self._made.get(number)
            if made is None:
                made = self._made[number] = kind()
                self._numbers[ctypes.addressof(made)] = number
            return ctypes.addressof(made)


def asked(arguments: Sequence[Any], handles: Handles) -> list[Plain]:
    """What a call asks for: handles, numbers, and of its memory the members that select.

    A number of 64 bits is `{"wide": n}`: it is a time or a mask, and no part of the question.
    """
    return [_asked(argument, handles) for argument in arguments]


def answered(arguments: Sequence[Any], handles: Handles, *, success: bool) -> list[Plain]:
    """What a call has filled, by argument; None for what is no memory. Only numbers where it failed."""
    counts = [
        memory.value
        for argument in arguments
        if (memory := memory_of(argument)) is not None and type(memory) is ctypes.c_uint
    ]
    filled: list[Plain] = []
    for argument in arguments:
        memory = memory_of(argument)
        if memory is None or not (success or isinstance(memory, SIMPLE)):
            filled.append(None)
            continue
        value = plain(type(memory), ctypes.addressof(memory), handles, follow=success)
        if isinstance(memory, ctypes.Array) and isinstance(value, list) and counts:
            del value[counts[-1] :]  # beyond what was filled lies what an earlier call has left
        elif isinstance(value, str):
            value = value.partition("\0")[0]
        filled.append(value)
    return filled


def answer(arguments: Sequence[Any], values: Sequence[Plain], handles: Handles) -> None:
    """Fill the memory of a call with what `answered` has said of another."""
    for argument, value in zip(arguments, values, strict=False):
        memory = memory_of(argument)
        if memory is not None and value is not None:
            fill(type(memory), ctypes.addressof(memory), value, handles)


def plain(
    kind: Any, address: int, handles: Handles, *, selecting: bool = False, follow: bool = False
) -> Plain:
    """What lies in memory. `selecting`: only members that select; `follow`: also arrays that it points at."""
    if issubclass(kind, ctypes.Structure):
        members = _members(kind, address, handles, selecting=selecting, follow=follow)
        return {name: value for name, value in members if not _empty(value)}
    if issubclass(kind, ctypes.Union):
        return int.from_bytes(ctypes.string_at(address, ctypes.sizeof(kind)), "little")
    if issubclass(kind, ctypes.Array):
        return _plain_array(kind, address, handles, selecting=selecting)
    if issubclass(kind, POINTER):
        target = ctypes.c_void_p.from_address(address).value
        return handles.number(target) if target and _opaque(kind) else None
    if issubclass(kind, FOREIGN_MEMORY):
        return None
    return _number(kind.from_address(address).value)


def fill(kind: Any, address: int, value: Plain, handles: Handles) -> None:
    """Put a plain value into memory; what it leaves out becomes zero, but for addresses of the caller."""
    if issubclass(kind, ctypes.Structure):
        _fill_structure(kind, address, value or {}, handles)
    elif issubclass(kind, ctypes.Union):
        raw = int(value or 0).to_bytes(ctypes.sizeof(kind), "little")
        ctypes.memmove(address, raw, len(raw))
    elif issubclass(kind, ctypes.Array):
        _fill_array(kind, address, value, handles)
    elif issubclass(kind, POINTER):
        if _opaque(kind):
            target = handles.address(value, kind._type_) if value else None
            ctypes.c_void_p.from_address(address).value = target
    elif not issubclass(kind, FOREIGN_MEMORY):
        place = kind.from_address(address)
        place.value = type(place.value)(value or 0) if kind is not ctypes.c_char else _bytes(value, 1)


def _asked(argument: Any, handles: Handles) -> Plain:
    memory = memory_of(argument)
    if memory is not None:
        known = plain(type(memory), ctypes.addressof(memory), handles, selecting=True)
        return {"memory": known if isinstance(known, dict | list) else None}
    if isinstance(argument, POINTER):
        target = ctypes.cast(argument, ctypes.c_void_p).value
        return {"handle": handles.number(target) if target else 0}
    if isinstance(argument, SIMPLE):
        wide = isinstance(argument, ctypes.c_ulonglong | ctypes.c_longlong)
        value = _number(argument.value)
        return {"wide": value} if wide else value
    return _number(argument)


def memory_of(argument: Any) -> Any:
    """The ctypes object that an argument gives the driver to read and fill; None when it is a plain value."""
    if isinstance(argument, BY_REFERENCE):
        return argument._obj  # noqa: SLF001 - ctypes has no public way back from byref()
    if isinstance(argument, ctypes.Array | ctypes.Structure | ctypes.Union):
        return argument
    if isinstance(argument, POINTER) and not _opaque(type(argument)):
        return argument.contents if argument else None
    return None


def _members(
    kind: Any, address: int, handles: Handles, *, selecting: bool, follow: bool
) -> Iterator[tuple[str, Plain]]:
    for name, member, is_bits in _fields(kind):
        nested = issubclass(member, ctypes.Structure) or (
            issubclass(member, ctypes.Array) and issubclass(member._type_, ctypes.Structure)
        )
        if selecting and not nested and name not in SELECTORS:
            continue
        place = address + getattr(kind, name).offset
        if is_bits:
            yield name, getattr(kind.from_address(address), name)
        elif follow and name in COUNTS and issubclass(member, POINTER):
            count = getattr(kind.from_address(address), COUNTS[name])
            target = ctypes.c_void_p.from_address(place).value
            if target and count:
                yield name, plain(member._type_ * count, target, handles)
        else:
            yield name, plain(member, place, handles, selecting=selecting)


def _fill_structure(kind: Any, address: int, values: dict[str, Plain], handles: Handles) -> None:
    for name, member, is_bits in _fields(kind):
        value = values.get(name)
        place = address + getattr(kind, name).offset
        if is_bits:
            setattr(kind.from_address(address), name, value or 0)
        elif name in COUNTS and issubclass(member, POINTER):
            target = ctypes.c_void_p.from_address(place).value
            if target and isinstance(value, list):
                fill(member._type_ * len(value), target, value, handles)
        else:
            fill(member, place, value, handles)


def _plain_array(kind: Any, address: int, handles: Handles, *, selecting: bool) -> Plain:
    entry = kind._type_
    if entry in BYTES:
        return ctypes.string_at(address, ctypes.sizeof(kind)).rstrip(b"\0").decode("latin-1")
    step = ctypes.sizeof(entry)
    entries = [
        plain(entry, address + place * step, handles, selecting=selecting) for place in range(kind._length_)
    ]
    while entries and _empty(entries[-1]):
        entries.pop()
    return entries


def _fill_array(kind: Any, address: int, value: Plain, handles: Handles) -> None:
    size, entry = ctypes.sizeof(kind), kind._type_
    if entry in BYTES:
        ctypes.memmove(address, _bytes(value, size), size)
        return
    entries, step = (value or ())[: kind._length_], ctypes.sizeof(entry)
    for place, single in enumerate(entries):
        fill(entry, address + place * step, single, handles)
    ctypes.memset(address + len(entries) * step, 0, size - len(entries) * step)


def _fields(kind: Any) -> Iterator[tuple[str, Any, bool]]:
    """Name and type of each member, and whether it is a field of bits."""
    for base in reversed(kind.__mro__):
        for name, member, *bits in base.__dict__.get("_fields_", ()):
            yield name, member, bool(bits)


def _opaque(kind: Any) -> bool:
    """Whether a pointer is a handle: it points at a structure that nobody outside the driver knows."""
    return issubclass(kind._type_, ctypes.Structure) and not any(True for _ in _fields(kind._type_))


def _number(value: Any) -> Plain:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # JSON has no such numbers
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _bytes(value: Plain, size: int) -> bytes:
    return (value or "").encode("latin-1")[:size].ljust(size, b"\0")


def _empty(value: Plain) -> bool:
    return value is None or value in (0, "", [], {})
