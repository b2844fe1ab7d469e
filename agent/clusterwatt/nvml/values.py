"""Field values, samples, processes, GPM metrics as they lie in memory: `nvmlFieldValue_t` and so on (nvml.h).

Some hundred of them are read each second. The binding's classes run Python code at every look at a member,
which made them the largest part of the cost; here a whole array is unpacked at once. A test holds the layout
against that of the binding.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from clusterwatt.nvml.constants import FIELD_MEMORY_TEMPERATURE, Field

# fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value
FIELD = struct.Struct("=IIqqII8s")
ANSWER = "24xII8s"  # of those its last three: what a driver fills in and we look at
# timeStamp, sampleValue
SAMPLE = struct.Struct("=Q8s")
# pid, usedGpuMemory, gpuInstanceId, computeInstanceId
PROCESS = struct.Struct("=I4xQII")
# pid, timeStamp, smUtil, memUtil, encUtil, decUtil
PROCESS_SAMPLE = struct.Struct("=I4xQIIII")
# metricId, nvmlReturn, value; then three pointers to texts
METRIC = struct.Struct("=IId24x")

# The value union by nvmlValueType_t; an unsigned long has 64 bits on Linux.
DOUBLE, UNSIGNED_INT, UNSIGNED_LONG, UNSIGNED_LONG_LONG, SIGNED_LONG_LONG, SIGNED_INT, UNSIGNED_SHORT = range(
    7
)
UNION = tuple(struct.Struct(f"={letter}") for letter in "dIQQqiH")
# "Not available" is all ones in the width of the value.
NOT_AVAILABLE = {UNSIGNED_INT: 0xFFFFFFFF, UNSIGNED_LONG: (1 << 64) - 1, UNSIGNED_LONG_LONG: (1 << 64) - 1}
LAST_UNTYPED_FIELD = 31  # NVML does not set the value type of ids 1 to 31: unsigned, 64 bits


class Process(NamedTuple):
    """A line of a process list. None: the driver does not tell, or the process is in no instance of MIG."""

    pid: int
    used_bytes: int | None
    gpu_instance: int | None
    compute_instance: int | None


class ProcessSample(NamedTuple):
    """How much of the SMs' time a process had in one period of the driver, in per cent; not checked."""

    pid: int
    stamp_us: int
    sm_percent: int


class FieldBatch:
    """Fields that are asked for in one call, and the array that the driver fills; used again and again.

    `all_known`: every one of them has been answered before.
    """

    def __init__(self, fields: Sequence[Field], array: Any) -> None:
        self.fields = tuple(fields)
        self.array = array
        self.all_known = False
        self._bytes = (ctypes.c_char * ctypes.sizeof(array)).from_buffer(array)
        self._blank = b"".join(FIELD.pack(number, scope, 0, 0, 0, 0, b"") for number, scope in fields)
        self._answers = struct.Struct("=" + ANSWER * len(fields))
        self._types = tuple(map(_type_known, fields))

    def blank(self) -> Any:
        """The array with the ids in it and nothing else."""
        self._bytes.raw = self._blank
        return self.array

    def answers(self) -> tuple[dict[Field, float], dict[Field, int]]:
        """Values of the fields that have one, and return codes of those that were refused."""
        flat = self._answers.unpack(self.array)
        values: dict[Field, float] = {}
        refused: dict[Field, int] = {}
        # Some hundred a second: three slices of one row cost half of what a row for each field does.
        for field, known, stated, code, union in zip(
            self.fields, self._types, flat[::3], flat[1::3], flat[2::3], strict=True
        ):
            if code:
                refused[field] = code
                continue
            value = union_value(union, stated if known is None else known)
            if value is not None:
                values[field] = value
        return values, refused


class MetricBatch:
    """GPM metrics that are asked for in one call, and the request that holds them; used again and again.

    The structure has grown with the binding while its version stayed 1. Its array comes last, and a driver
    reads as much of it as it is told.
    """

    def __init__(self, metrics: Sequence[int], request: Any) -> None:
        self.metrics = tuple(metrics)
        self._request = request
        self._blank = b"".join(METRIC.pack(number, 0, math.nan) for number in metrics)
        first = type(request).metrics.offset
        self._entries = memoryview(request).cast("B")[first : first + len(self._blank)]
        request.version, request.numMetrics = 1, len(metrics)

    def between(self, older: Any, newer: Any) -> Any:
        """The request for what lies between two samples, with the ids in it and no values."""
        request = self._request
        request.sample1, request.sample2 = older, newer
        self._entries[:] = self._blank
        return request

    def entries(self) -> Iterator[tuple[int, int, float | None]]:
        """Each metric with its return code and its value; NaN is the driver's word for "no value"."""
        for metric, code, value in METRIC.iter_unpack(self._entries):
            yield metric, code, value if code == 0 and math.isfinite(value) else None


def samples(array: Any, count: int, value_type: int) -> Iterator[tuple[int, float | None]]:
    """Time stamp and value of each sample."""
    for place in range(count):
        stamp, union = SAMPLE.unpack_from(array, place * SAMPLE.size)
        yield stamp, union_value(union, value_type)


def processes(array: Any, count: int) -> Iterator[Process]:
    """Each line of a process list; all ones say that there is nothing to say."""
    for place in range(count):
        pid, used_bytes, gpu_instance, compute_instance = PROCESS.unpack_from(array, place * PROCESS.size)
        yield Process(
            pid,
            None if used_bytes == NOT_AVAILABLE[UNSIGNED_LONG_LONG] else used_bytes,
            None if gpu_instance == NOT_AVAILABLE[UNSIGNED_INT] else gpu_instance,
            None if compute_instance == NOT_AVAILABLE[UNSIGNED_INT] else compute_instance,
        )


def process_samples(array: Any, count: int) -> Iterator[ProcessSample]:
    """Each sample of what processes used."""
    for place in range(count):
        pid, stamp_us, sm_percent, *_ = PROCESS_SAMPLE.unpack_from(array, place * PROCESS_SAMPLE.size)
        yield ProcessSample(pid, stamp_us, sm_percent)


def union_value(union: bytes, value_type: int) -> float | None:
    """The value of a union; None for a mark, for what is not finite, and for a type of a later driver."""
    if value_type >= len(UNION):
        return None
    (value,) = UNION[value_type].unpack_from(union)
    if value_type == DOUBLE:
        return value if math.isfinite(value) else None
    return None if value == NOT_AVAILABLE.get(value_type) else float(value)


def _type_known(field: Field) -> int | None:
    """The type of a field's value where the driver does not say it, or says a wrong one."""
    if field[0] <= LAST_UNTYPED_FIELD:
        return UNSIGNED_LONG_LONG
    return UNSIGNED_INT if field == FIELD_MEMORY_TEMPERATURE else None  # r545 says double for it
