"""How a function of the library is written: registered by name, given plain values and things to fill.

A function gets the handle's object first (for calls on a device), then the arguments as Python values: what
the binding passes by value is a number, what it passes by reference is the ctypes object itself, to be
filled. It returns nothing for success and raises `Refused` with an NVML return code otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

# NVML_ERROR_*, of nvml.h
SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
TIMEOUT = 10
GPU_IS_LOST = 15
VERSION_MISMATCH = 25

Function: TypeAlias = Callable[..., object]
F = TypeVar("F", bound=Function)

Filled: TypeAlias = Any  # a ctypes object of the binding, which has no types


class Refused(Exception):
    """The driver's answer to a call that it does not fulfil."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Entry(msgspec.Struct, frozen=True):
    """A function: what its first argument is, and the driver branch that brought it."""

    function: Function
    on: str
    since: int


FUNCTIONS: dict[str, Entry] = {}


def _register(on: str, names: Sequence[str], since: int) -> Callable[[F], F]:
    def register(function: F) -> F:
        for name in names:
            FUNCTIONS[name] = Entry(function, on, since)
        return function

    return register


def on_system(*names: str, since: int = 0) -> Callable[[F], F]:
    """Register a function that has no device; it gets the library first."""
    return _register("system", names, since)


def on_gpu(*names: str, since: int = 0) -> Callable[[F], F]:
    """Register a function of a whole GPU; a MIG device handle gets NVML_ERROR_NOT_SUPPORTED."""
    return _register("gpu", names, since)


def on_device(*names: str, since: int = 0) -> Callable[[F], F]:
    """Register a function of a whole GPU or a MIG device."""
    return _register("device", names, since)


def needs(offered: object) -> None:
    """Go on only if the card offers this: not None and not False."""
    if offered is None or offered is False:
        raise Refused(NOT_SUPPORTED)


def offered(value: float | None) -> float:
    """A value of the card, which may not offer it."""
    if value is None:
        raise Refused(NOT_SUPPORTED)
    return value


def check_version(struct: Filled, *versions: int) -> None:
    """Compare a struct's version word (size and version) with those that the driver knows."""
    if struct.version not in versions:
        raise Refused(VERSION_MISMATCH)


def write_text(buffer: Filled, text: bytes, size: int) -> None:
    """Copy a text with its closing zero into the caller's buffer, if it is large enough."""
    if size < len(text) + 1:
        raise Refused(INSUFFICIENT_SIZE)
    buffer.value = text


def fill_array(count: Filled, array: Filled, entries: Sequence[dict[str, int]]) -> None:
    """The two-call protocol: say how many there are when there is no or too little room, else copy them."""
    room = count.value if array is not None else 0
    count.value = len(entries)
    if room < len(entries):
        raise Refused(INSUFFICIENT_SIZE)
    for place, members in zip(array or (), entries, strict=False):
        for name, value in members.items():
            setattr(place, name, value)
