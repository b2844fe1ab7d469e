"""One GPU or MIG instance: what it is asked, what it does not offer, and what is in trouble."""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from clusterwatt.nvml.calls import Calls, decoded
from clusterwatt.nvml.constants import Field
from clusterwatt.nvml.errors import (
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    DeviceTrouble,
    GenerationOver,
    Meaning,
    Refused,
    described,
    ruling,
)
from clusterwatt.nvml.patience import Patience
from clusterwatt.nvml.values import (
    FieldBatch,
    Process,
    ProcessSample,
    process_samples,
    processes,
    samples,
)
from clusterwatt.readings.base import Failure

log = logging.getLogger("clusterwatt.nvml")

SAMPLES_AT_ONCE = 256  # the ring buffers hold about 100
MOST_SAMPLES = 1 << 16
MOST_BATCHES = 64

PROCESSES_AT_ONCE = 64
MOST_PROCESSES = 1 << 14
# r535 has written entries of 32 bytes in place of 24, without a new version: the buffer must hold those too.
PROCESS_ROOM = 2


class Samples(NamedTuple):
    """What a ring buffer of the driver holds beyond a time: values, oldest first, and the newest time."""

    values: tuple[float, ...]
    newest_us: int


class Device:
    """One GPU, and the memory of what it does not offer, which lasts as long as the session.

    A quantity is a function with its arguments, or a field with its scope. One that was never answered and is
    refused as not offered is not asked for again. One that was answered before is: a GPU that enters MIG mode
    stops to offer utilisation, and offers it again afterwards.

    Belongs to one thread at a time. `failures` gathers what is worth counting; its reader empties it.
    """

    def __init__(self, calls: Calls, uuid: str, *, simulated_label: str, driver_version: str) -> None:
        self.uuid = uuid
        self.gpu = ""
        self.handle: Any = None
        self.simulated_label = simulated_label
        self.driver_version = driver_version
        self.failures: list[Failure] = []
        self.answers = 0
        self.last_refusal = 0
        self._calls = calls
        self._offered: set[tuple[object, ...]] = set()
        self._lacking: set[tuple[object, ...]] = set()
        self._known_fields: set[int] = set()
        self._batches: dict[tuple[Field, ...], FieldBatch] = {}
        self._sample_buffers: dict[int, Any] = {}
        self._process_buffer: Any = None
        self._process_places = PROCESSES_AT_ONCE
        self._process_samples_buffer: Any = None
        self._patience = Patience(calls.clock)
        self._last_failure: Failure | None = None

    def instance(self, uuid: str, handle: Any) -> Device:
        """A MIG instance of this GPU, as a device of its own with a memory of its own."""
        device = Device(
            self._calls,
            uuid,
            simulated_label=self.simulated_label,
            driver_version=self.driver_version,
        )
        device.handle = handle
        return device

    def ask_anew(self) -> None:
        """Forget what was refused as not offered: in another mode the GPU may offer it."""
        self._lacking.clear()

    def ask(self, function: str, *arguments: int) -> Any:
        """What the driver answers; None when the card does not offer it or there is nothing to say now.

        Raises DeviceTrouble when the GPU does not answer at all, GenerationOver when nothing does.
        """
        quantity = (function, *arguments)
        return self._asked(quantity, lambda: self._calls.call(function, self.handle, *arguments))

    def ask_first(self, *forms: tuple[Any, ...]) -> Any:
        """Ask in the first form that is offered: newer functions first, then those that they replace."""
        for form in forms:
            answer = self.ask(*form)
            if answer is not None or not self.lacks(*form):
                return answer
        return None

    def lacks(self, *quantity: object) -> bool:
        """Whether a quantity was refused as not offered."""
        return quantity in self._lacking

    def text(self, function: str) -> str | None:
        """Ask for a text; bytes that are not UTF-8 become U+FFFD. None as in `ask`."""
        answer = self._asked((function,), lambda: self._calls.call(function, self.handle, undecoded=True))
        return None if answer is None else decoded(answer)

    def fill(self, function: str, *structures: str) -> Any:
        """A structure of the binding, in the newest version that is offered. None and raises as `ask`."""
        for name in structures:
            answer = self._asked((function, name), functools.partial(self._filled, function, name))
            if answer is not None or not self.lacks(function, name):
                return answer
        return None

    def fields(self, wanted: Sequence[Field]) -> dict[Field, float]:
        """Values of the fields that have one now. Raises as `ask` does.

        Ids that the driver is known to have share a call. A new one is asked alone: beside an id that a
        driver does not know, others have come back empty (NVIDIA/DCGM#265).
        """
        values: dict[Field, float] = {}
        together: list[Field] = []
        trouble = self._patience.waiting
        for field in wanted:
            if field in self._lacking or (trouble and self._patience.waits(field)):
                continue
            if field[0] in self._known_fields:
                together.append(field)
            else:
                values.update(self._batch([field]))
        if together:
            values.update(self._batch(together))
        return values

    def samples(self, kind: int, since_us: int) -> Samples | None:
        """What a ring buffer holds beyond `since_us` (the clock of the driver's samples); None when nothing.

        Raises as `ask` does.
        """
        answer: Samples | None = self._asked(
            ("nvmlDeviceGetSamples", kind), lambda: self._samples(kind, since_us)
        )
        return answer if answer and answer.values else None

    def processes(self, kind: str) -> tuple[Process, ...] | None:
        """The driver's list of processes: Compute, Graphics, MPSCompute. None and raises as `ask`.

        What it says has to be checked (`collectors.gpu_processes`): drivers have filled lists with nonsense.
        """
        for version in ("_v3", "_v2"):  # since R510, since R460
            function = f"nvmlDeviceGet{kind}RunningProcesses{version}"
            answer: tuple[Process, ...] | None = self._asked(
                (function,), functools.partial(self._processes, function)
            )
            if answer is not None or not self.lacks(function):
                return answer
        return None

    def process_samples(self, since_us: int) -> tuple[ProcessSample, ...] | None:
        """What processes used beyond `since_us` (the clock of the driver's samples); None when nothing.

        None, too, where the driver has no samples: a GPU at rest, a board in MIG mode. Raises as `ask` does.
        """
        function = "nvmlDeviceGetProcessUtilization"
        answer: tuple[ProcessSample, ...] | None = self._asked(
            (function,), lambda: self._process_samples(function, since_us)
        )
        return answer or None

    def take_failures(self) -> list[Failure]:
        """Failures since the last call; while something is left out because it keeps failing, that it is."""
        taken, self.failures = self.failures, []
        if taken:
            self._last_failure = taken[-1]
        elif self._last_failure is not None and self._patience.waiting:
            return [msgspec.structs.replace(self._last_failure, ongoing=True)]
        return taken

    def lose_no_time(self) -> None:
        """Ask at once again for what has failed: it was the whole GPU that did not answer."""
        self._patience.forget()

    def _asked(self, quantity: tuple[object, ...], call: Callable[[], Any]) -> Any:
        if quantity in self._lacking or self._patience.waits(quantity):
            return None
        began_s = self._calls.now_s()
        try:
            answer = call()
        except Refused as refused:
            self._judge(quantity, str(refused), refused.code)
            return None
        self._offered.add(quantity)
        self.answers += 1
        if self._calls.slow(began_s):
            self._take_time(str(quantity[0]), began_s, quantity)
        else:
            self._patience.well(quantity)
        return answer

    def _judge(
        self, quantity: tuple[object, ...], detail: str, code: int, *neighbours: tuple[object, ...]
    ) -> None:
        """Decide what a refusal means; `neighbours` were asked for in the same call and share its failure."""
        what = ruling(code)
        self.last_refusal = code
        if what.meaning is Meaning.GENERATION:
            raise GenerationOver(what.reason, detail)
        if what.meaning is Meaning.DEVICE:
            raise DeviceTrouble(what.reason, detail)
        if what.meaning is Meaning.FAILED:
            self._fail(what.reason, detail, quantity, *neighbours)
            return
        self._patience.well(quantity)
        if what.meaning is Meaning.NOT_OFFERED and quantity not in self._offered:
            self._lacking.add(quantity)
            log.debug("GPU %s (%s) does not offer %s: %s", self.gpu, self.uuid, quantity, detail)

    def _fail(self, reason: str, detail: str, *quantities: tuple[object, ...]) -> None:
        """Count a failure, and ask later when it goes on."""
        pause_s = max([self._patience.bad(quantity) for quantity in quantities])
        if pause_s:
            detail = f"{detail}; asked again in {pause_s:g} s"
        self.failures.append(Failure(item=self.uuid, reason=reason, detail=detail))

    def _take_time(self, call: str, began_s: float, *quantities: tuple[object, ...]) -> None:
        """Note that a call has taken long; count it, and make it later, when it does so again."""
        pause_s = max([self._patience.bad(quantity) for quantity in quantities])
        if pause_s:
            detail = f"{call} takes {self._calls.now_s() - began_s:.2f} s; asked again in {pause_s:g} s"
            self.failures.append(Failure(item=self.uuid, reason="slow", detail=detail))

    def _filled(self, function: str, structure: str) -> Any:
        kind = getattr(self._calls.binding, structure, None)
        if kind is None:
            raise Refused(function, FUNCTION_NOT_FOUND)
        filled = kind()  # sets its own version
        self._calls.call(function, self.handle, ctypes.byref(filled))
        return filled

    def _batch(self, fields: Sequence[Field]) -> dict[Field, float]:
        batch = self._batches.get(tuple(fields))
        if batch is None:
            batch = FieldBatch(fields, (self._calls.binding.c_nvmlFieldValue_t * len(fields))())
            if len(fields) > 1:
                if len(self._batches) >= MOST_BATCHES:  # fields in trouble come and go one by one
                    self._batches.clear()
                self._batches[batch.fields] = batch
        began_s = self._calls.now_s()
        try:
            self._calls.raw_call(
                "nvmlDeviceGetFieldValues",
                self.handle,
                ctypes.c_int(len(fields)),
                ctypes.byref(batch.blank()),
            )
        except Refused as refused:
            self._judge(fields[0], str(refused), refused.code, *fields[1:])
            return {}
        slow = self._calls.slow(began_s)
        if slow:
            self._take_time("nvmlDeviceGetFieldValues", began_s, *fields)
        values, codes = batch.answers()
        for field, code in codes.items():
            self._judge(field, described(f"field {field}", code), code)
        answered = [field for field in fields if field not in codes] if codes else fields
        self.answers += len(answered)
        if codes or not batch.all_known:
            self._offered.update(answered)
            self._known_fields.update(number for number, _ in answered)
            batch.all_known = not codes
        if not slow:
            self._patience.well(*answered)
        return values

    def _samples(self, kind: int, since_us: int) -> Samples:
        # The binding asks for the size first, so each reading costs two calls. The buffer is kept instead.
        buffer = self._sample_buffers.get(kind)
        size = SAMPLES_AT_ONCE if buffer is None else len(buffer)
        while True:
            if buffer is None:
                buffer = self._sample_buffers[kind] = (self._calls.binding.c_nvmlSample_t * size)()
            value_type, count = ctypes.c_uint(), ctypes.c_uint(size)
            try:
                self._calls.raw_call(
                    "nvmlDeviceGetSamples",
                    self.handle,
                    ctypes.c_uint(kind),
                    ctypes.c_ulonglong(since_us),
                    ctypes.byref(value_type),
                    ctypes.byref(count),
                    buffer,
                )
                break
            except Refused as refused:
                if refused.code != INSUFFICIENT_SIZE or size >= MOST_SAMPLES:
                    raise
                size, buffer = size * 2, None
        found = samples(buffer, min(count.value, size), value_type.value)
        new = [(stamp, value) for stamp, value in found if stamp > since_us and value is not None]
        newest_us = max((stamp for stamp, _ in new), default=since_us)
        return Samples(tuple(value for _, value in new), newest_us)

    def _processes(self, function: str) -> tuple[Process, ...]:
        # As for samples: the binding would ask for the size first.
        while True:
            if self._process_buffer is None:
                kind = self._calls.binding.c_nvmlProcessInfo_v2_t * (PROCESS_ROOM * self._process_places)
                self._process_buffer = kind()
            count = ctypes.c_uint(self._process_places)
            try:
                self._calls.raw_call(function, self.handle, ctypes.byref(count), self._process_buffer)
                break
            except Refused as refused:
                if refused.code != INSUFFICIENT_SIZE or self._process_places >= MOST_PROCESSES:
                    raise
                self._process_places, self._process_buffer = self._process_places * 2, None
        return tuple(processes(self._process_buffer, min(count.value, self._process_places)))

    def _process_samples(self, function: str, since_us: int) -> tuple[ProcessSample, ...]:
        buffer = self._process_samples_buffer
        size = SAMPLES_AT_ONCE if buffer is None else len(buffer)
        while True:
            if buffer is None:
                kind = self._calls.binding.c_nvmlProcessUtilizationSample_t * size
                buffer = self._process_samples_buffer = kind()
            count = ctypes.c_uint(size)
            try:
                self._calls.raw_call(
                    function, self.handle, buffer, ctypes.byref(count), ctypes.c_ulonglong(since_us)
                )
                break
            except Refused as refused:
                if refused.code != INSUFFICIENT_SIZE or size >= MOST_SAMPLES:
                    raise
                size, buffer = size * 2, None
        found = process_samples(buffer, min(count.value, size))
        return tuple(sample for sample in found if sample.stamp_us > since_us)


def member_bytes(structure: Any, name: str) -> bytes:
    """A text or byte member of a structure as it is; the binding decodes it at every look, or fails to."""
    place = getattr(type(structure), name)
    return bytes(structure)[place.offset : place.offset + place.size]
