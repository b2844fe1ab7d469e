"""What each return code of the NVIDIA driver means for us: one table, and the exceptions made from it.

The codes are those of `nvmlReturn_t` in nvml.h. The same code says different things at three places: while
the driver is opened, while a GPU's handle is fetched, and while one quantity of a GPU is asked for.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

INSUFFICIENT_SIZE = 7
TIMEOUT = 10
FUNCTION_NOT_FOUND = 13
GPU_NOT_FOUND = 28
# Not a code of the driver: its text was not what the binding expects, so the binding raised instead.
UNDECODABLE = -1


class Meaning(enum.Enum):
    """What the refusal of one quantity says."""

    NOT_OFFERED = enum.auto()  # this card, driver or user will not get it: do not ask again
    NO_SAMPLE = enum.auto()  # nothing to report this time
    FAILED = enum.auto()  # this time, for a reason that is worth counting
    DEVICE = enum.auto()  # the whole GPU is in trouble
    GENERATION = enum.auto()  # nothing works any more until NVML is loaded anew


class Ruling(NamedTuple):
    """A return code: its name in nvml.h without prefix, what it says of a quantity, and our word for it."""

    name: str
    meaning: Meaning
    reason: str = "unknown"


RULINGS: Mapping[int, Ruling] = {
    UNDECODABLE: Ruling("UNDECODABLE", Meaning.NO_SAMPLE),
    0: Ruling("SUCCESS", Meaning.NO_SAMPLE),  # raised by the binding for an empty list
    1: Ruling("UNINITIALIZED", Meaning.GENERATION, "uninitialized"),
    2: Ruling("INVALID_ARGUMENT", Meaning.NOT_OFFERED),  # a sensor or a field that the driver does not know
    3: Ruling("NOT_SUPPORTED", Meaning.NOT_OFFERED),
    4: Ruling("NO_PERMISSION", Meaning.NOT_OFFERED, "permission"),  # some quantities are for root only
    5: Ruling("ALREADY_INITIALIZED", Meaning.FAILED),
    6: Ruling("NOT_FOUND", Meaning.NO_SAMPLE),  # no sample since the given time, an empty MIG slot
    7: Ruling("INSUFFICIENT_SIZE", Meaning.NO_SAMPLE),  # the list grew between two calls
    8: Ruling("INSUFFICIENT_POWER", Meaning.FAILED),
    9: Ruling("DRIVER_NOT_LOADED", Meaning.GENERATION, "not_loaded"),
    10: Ruling("TIMEOUT", Meaning.DEVICE, "timeout"),
    11: Ruling("IRQ_ISSUE", Meaning.FAILED),
    12: Ruling("LIBRARY_NOT_FOUND", Meaning.NOT_OFFERED, "not_found"),  # asks another library, as libcuda
    13: Ruling("FUNCTION_NOT_FOUND", Meaning.NOT_OFFERED),
    14: Ruling("CORRUPTED_INFOROM", Meaning.FAILED, "corrupted_inforom"),
    15: Ruling("GPU_IS_LOST", Meaning.DEVICE, "lost"),
    16: Ruling("RESET_REQUIRED", Meaning.DEVICE, "reset_required"),
    17: Ruling("OPERATING_SYSTEM", Meaning.FAILED, "permission"),  # blocked by cgroups
    18: Ruling("LIB_RM_VERSION_MISMATCH", Meaning.GENERATION, "version_mismatch"),
    19: Ruling("IN_USE", Meaning.NO_SAMPLE),
    20: Ruling("MEMORY", Meaning.FAILED),
    21: Ruling("NO_DATA", Meaning.NO_SAMPLE),
    22: Ruling("VGPU_ECC_NOT_SUPPORTED", Meaning.NOT_OFFERED),
    23: Ruling("INSUFFICIENT_RESOURCES", Meaning.FAILED),
    24: Ruling("FREQ_NOT_SUPPORTED", Meaning.NOT_OFFERED),
    25: Ruling("ARGUMENT_VERSION_MISMATCH", Meaning.NOT_OFFERED),  # an older form of the call may do
    26: Ruling("DEPRECATED", Meaning.NOT_OFFERED),
    27: Ruling("NOT_READY", Meaning.NO_SAMPLE),  # the GPU is still being initialised
    28: Ruling("GPU_NOT_FOUND", Meaning.DEVICE, "lost"),
    29: Ruling("INVALID_STATE", Meaning.NO_SAMPLE),  # not in the state that the GPU is in now
    30: Ruling("RESET_TYPE_NOT_SUPPORTED", Meaning.NOT_OFFERED),
    999: Ruling("UNKNOWN", Meaning.FAILED),  # from single broken sensors, and from every call of a dead GPU
}

DEVICE_REASONS = frozenset({"lost", "reset_required", "timeout", "permission", "unknown"})
OPEN_REASONS = frozenset({"not_found", "not_loaded", "version_mismatch", "permission", "unknown"})


def ruling(code: int) -> Ruling:
    """What a code says of a quantity; a code that a later driver invents is a failure that we count."""
    return RULINGS.get(code) or Ruling(f"code {code}", Meaning.FAILED)


def device_reason(code: int) -> str:
    """Why a GPU does not answer, when this code is all that it answers."""
    reason = ruling(code).reason
    return reason if reason in DEVICE_REASONS else "unknown"


def open_reason(code: int) -> str:
    """Why the driver cannot be opened, when opening it ends with this code."""
    reason = ruling(code).reason
    return reason if reason in OPEN_REASONS else "unknown"


def described(call: str, code: int) -> str:
    """A call and its code for the log. The binding's own text would ask the driver, which may be gone."""
    return f"{call}: {ruling(code).name} ({code})"


class Refused(Exception):
    """A driver call ended with a code other than success. Does not leave the session and its devices."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(described(call, code))
        self.code = code


class DriverError(Exception):
    """Something is wrong beyond one quantity; `reason` is a short word from a closed set."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason


class DriverUnavailable(DriverError):
    """The driver cannot be opened: not_found, not_loaded, version_mismatch, permission, wrong_binding, ..."""


class GenerationOver(DriverError):
    """The open session is of no more use: uninitialized, not_loaded, version_mismatch."""


class DeviceTrouble(DriverError):
    """One GPU does not answer, others may: lost, reset_required, timeout, permission, unknown."""
