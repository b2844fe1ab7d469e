"""The NVIDIA driver through its binding (package nvidia-ml-py): a session and the GPUs in it.

The only importer of `pynvml` but for the simulation, which replaces the library below it. Every driver call
goes through `Session.call`. What the driver answers is judged by `nvml.errors`.

A session is one generation of NVML: the library stays mapped once it is loaded (`nvmlShutdown` does not unmap
it), so after a driver upgrade only a fresh process loads the new one.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
import pynvml

from clusterwatt.clock import Clock
from clusterwatt.nvml.constants import Field
from clusterwatt.nvml.errors import (
    FUNCTION_NOT_FOUND,
    GPU_NOT_FOUND,
    INSUFFICIENT_SIZE,
    UNDECODABLE,
    DeviceTrouble,
    DriverUnavailable,
    GenerationOver,
    Meaning,
    Refused,
    described,
    device_reason,
    open_reason,
    ruling,
)
from clusterwatt.nvml.library import load_below
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

EVENT_WAIT = "nvmlEventSetWait_v2"  # lasts as long as nothing happens: its time says nothing of the driver


class Versions(msgspec.Struct, frozen=True):
    """Versions as people know them; empty where the driver does not tell."""

    driver: str
    nvml: str
    cuda: str


class Enumeration(msgspec.Struct, frozen=True):
    """GPUs in the order of their index, and by index text why others could not be opened."""

    count: int
    devices: tuple[Device, ...]
    reasons: Mapping[str, str]


class Samples(NamedTuple):
    """What a ring buffer of the driver holds beyond a time: values, oldest first, and the newest time."""

    values: tuple[float, ...]
    newest_us: int


class Session:
    """One NVML generation. `took` is told the name and the seconds of every driver call, on its thread.

    `binding`: the module `pynvml`, or a copy of it: a module holds one library.
    `library_roots`: where that is looked for first.

    `open`, `count`, `enumerate` and `close` belong to one thread; each device may have another.
    """

    def __init__(
        self,
        *,
        simulated: bool = False,
        replayed: bool = False,
        clock: Clock | None = None,
        took: Callable[[str, float], None] | None = None,
        slow_s: float | None = None,
        binding: ModuleType | None = None,
        library_roots: Sequence[str] = (),
    ) -> None:
        self._binding: Any = pynvml if binding is None else binding
        self._library_roots = library_roots
        self.simulated = simulated
        self.simulated_label = "replay" if replayed else "true" if simulated else "false"
        self._clock = clock
        self._took = took
        self._slow_s = slow_s
        self._devices: dict[str, Device] = {}
        self._versions = Versions("", "", "")
        self._initialized = False

    def open(self) -> None:
        """Load the library and start NVML. Raises DriverUnavailable; may be tried again."""
        if not hasattr(self._binding, "_nvmlGetFunctionPointer"):
            raise DriverUnavailable(
                "wrong_binding",
                f"the module pynvml at {self._binding.__file__} is not NVIDIA's: another package has taken "
                "its name. Uninstall that package (often pynvml) and install nvidia-ml-py again",
            )
        if self._library_roots and self._binding.nvmlLib is None:
            self._binding.nvmlLib = load_below(self._library_roots)
        try:
            if not self._initialized:  # the driver counts its users: one of us is enough
                self.call("nvmlInit")
                self._initialized = True
            self._versions = Versions(
                driver=self._text("nvmlSystemGetDriverVersion"),
                nvml=self._text("nvmlSystemGetNVMLVersion"),
                cuda=self._cuda_version(),
            )
        except Refused as refused:
            raise DriverUnavailable(open_reason(refused.code), str(refused)) from refused

    def versions(self) -> Versions:
        """Versions that the driver stated when it was opened; makes no call."""
        return self._versions

    def count(self) -> int:
        """How many GPUs the driver has, also such as may not be opened.

        Raises GenerationOver or DriverUnavailable.
        """
        try:
            return int(self.call("nvmlDeviceGetCount"))
        except Refused as refused:
            self._raise_if_over(refused)
            if refused.code == GPU_NOT_FOUND:
                return 0
            raise DriverUnavailable(open_reason(refused.code), str(refused)) from refused

    def enumerate(self) -> Enumeration:
        """Open every GPU, each on its own: by index, because a search by UUID fails when any GPU is lost.

        A GPU met before keeps its `Device`, with a new handle and perhaps a new index.
        Raises as `count` does.
        """
        count = self.count()
        devices: list[Device] = []
        reasons: dict[str, str] = {}
        for index in range(count):
            try:
                handle = self.call("nvmlDeviceGetHandleByIndex", index)
                uuid = _decoded(self.call("nvmlDeviceGetUUID", handle, undecoded=True))
            except Refused as refused:
                self._raise_if_over(refused)
                reasons[str(index)] = device_reason(refused.code)
                continue
            device = self._devices.setdefault(uuid, Device(self, uuid))
            device.handle, device.gpu = handle, str(index)
            devices.append(device)
        return Enumeration(count, tuple(devices), reasons)

    def close(self) -> None:
        """End NVML; the driver may be unloaded once no process has it open."""
        self._initialized = False
        try:
            self.call("nvmlShutdown")
        except Refused as refused:
            log.debug("%s", refused)

    def call(self, name: str, *arguments: Any, undecoded: bool = False) -> Any:
        """Make one driver call. Raises Refused, and nothing else that driver or binding raise.

        `undecoded`: leave text as the bytes that the driver gave, where the binding would decode them.
        """
        function = getattr(self._binding, name, None)
        if function is None:
            raise Refused(name, FUNCTION_NOT_FOUND)  # the binding is older than the function
        return self._timed(name, inspect.unwrap(function) if undecoded else function, arguments)

    def raw_call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library itself, where the binding's wrapper is slow or calls it twice."""
        find = self._binding._nvmlGetFunctionPointer  # noqa: SLF001 - the binding's own way to a function
        code = self._timed(name, lambda: find(name)(*arguments), ())
        if code != 0:
            raise Refused(name, code)

    def patience(self) -> Patience:
        """A new memory of what is in trouble, for one device."""
        return Patience(self._clock)

    def now_s(self) -> float:
        """Monotonic time; 0 without a clock."""
        return self._clock.monotonic_s() if self._clock else 0.0

    def slow(self, since_s: float) -> bool:
        """Whether a call that was made at that time has taken long."""
        return self._slow_s is not None and self.now_s() - since_s > self._slow_s

    def _timed(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        started_s = self._clock.monotonic_s() if self._clock else 0.0
        try:
            return function(*arguments)
        except self._binding.NVMLError as error:
            raise Refused(name, int(error.value)) from None
        except self._binding.NVMLLibraryMismatchError:  # no NVMLError: an unversioned function is missing
            raise Refused(name, FUNCTION_NOT_FOUND) from None
        except UnicodeDecodeError:
            raise Refused(name, UNDECODABLE) from None
        finally:
            if self._took and self._clock and name != EVENT_WAIT:
                self._took(name, self._clock.monotonic_s() - started_s)

    def _text(self, name: str) -> str:
        try:
            return _decoded(self.call(name, undecoded=True))
        except Refused as refused:
            self._raise_if_over(refused)
            return ""

    def _cuda_version(self) -> str:
        # _v2 asks libcuda, which is missing where only the utility capability is mounted.
        for name in ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"):
            try:
                version = int(self.call(name))
            except Refused as refused:
                self._raise_if_over(refused)
            else:
                return f"{version // 1000}.{version % 1000 // 10}"
        return ""

    def _raise_if_over(self, refused: Refused) -> None:
        what = ruling(refused.code)
        if what.meaning is Meaning.GENERATION:
            raise GenerationOver(what.reason, str(refused)) from refused


class Device:
    """One GPU, and the memory of what it does not offer, which lasts as long as the session.

    A quantity is a function with its arguments, or a field with its scope. One that was never answered and is
    refused as not offered is not asked for again. One that was answered before is: a GPU that enters MIG mode
    stops to offer utilisation, and offers it again afterwards.

    Belongs to one thread at a time. `failures` gathers what is worth counting; its reader empties it.
    """

    def __init__(self, session: Session, uuid: str) -> None:
        self.uuid = uuid
        self.gpu = ""
        self.handle: Any = None
        self.simulated = session.simulated
        self.simulated_label = session.simulated_label
        self.driver_version = session.versions().driver
        self.failures: list[Failure] = []
        self.answers = 0
        self.last_refusal = 0
        self._session = session
        self._offered: set[tuple[object, ...]] = set()
        self._lacking: set[tuple[object, ...]] = set()
        self._known_fields: set[int] = set()
        self._batches: dict[tuple[Field, ...], FieldBatch] = {}
        self._sample_buffers: dict[int, Any] = {}
        self._process_buffer: Any = None
        self._process_places = PROCESSES_AT_ONCE
        self._process_samples_buffer: Any = None
        self._patience = session.patience()
        self._last_failure: Failure | None = None

    def instance(self, uuid: str, handle: Any) -> Device:
        """A MIG instance of this GPU, as a device of its own with a memory of its own."""
        device = Device(self._session, uuid)
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
        return self._asked(quantity, lambda: self._session.call(function, self.handle, *arguments))

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
        answer = self._asked((function,), lambda: self._session.call(function, self.handle, undecoded=True))
        return None if answer is None else _decoded(answer)

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
        for field in wanted:
            if field in self._lacking or self._patience.waits(field):
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
        began_s = self._session.now_s()
        try:
            answer = call()
        except Refused as refused:
            self._judge(quantity, str(refused), refused.code)
            return None
        self._offered.add(quantity)
        self.answers += 1
        if self._session.slow(began_s):
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
            detail = f"{call} takes {self._session.now_s() - began_s:.2f} s; asked again in {pause_s:g} s"
            self.failures.append(Failure(item=self.uuid, reason="slow", detail=detail))

    def _filled(self, function: str, structure: str) -> Any:
        kind = getattr(pynvml, structure, None)
        if kind is None:
            raise Refused(function, FUNCTION_NOT_FOUND)
        filled = kind()  # sets its own version
        self._session.call(function, self.handle, ctypes.byref(filled))
        return filled

    def _batch(self, fields: Sequence[Field]) -> dict[Field, float]:
        batch = self._batches.get(tuple(fields))
        if batch is None:
            batch = FieldBatch(fields, (pynvml.c_nvmlFieldValue_t * len(fields))())
            if len(fields) > 1:
                if len(self._batches) >= MOST_BATCHES:  # fields in trouble come and go one by one
                    self._batches.clear()
                self._batches[batch.fields] = batch
        values: dict[Field, float] = {}
        began_s = self._session.now_s()
        try:
            self._session.raw_call(
                "nvmlDeviceGetFieldValues",
                self.handle,
                ctypes.c_int(len(fields)),
                ctypes.byref(batch.blank()),
            )
        except Refused as refused:
            self._judge(fields[0], str(refused), refused.code, *fields[1:])
            return values
        slow = self._session.slow(began_s)
        if slow:
            self._take_time("nvmlDeviceGetFieldValues", began_s, *fields)
        for field, code, value in batch.entries():
            if code != 0:
                self._judge(field, described(f"field {field}", code), code)
                continue
            self._offered.add(field)
            self._known_fields.add(field[0])
            self.answers += 1
            if not slow:
                self._patience.well(field)
            if value is not None:
                values[field] = value
        return values

    def _samples(self, kind: int, since_us: int) -> Samples:
        # The binding asks for the size first, so each reading costs two calls. The buffer is kept instead.
        buffer = self._sample_buffers.get(kind)
        size = SAMPLES_AT_ONCE if buffer is None else len(buffer)
        while True:
            if buffer is None:
                buffer = self._sample_buffers[kind] = (pynvml.c_nvmlSample_t * size)()
            value_type, count = ctypes.c_uint(), ctypes.c_uint(size)
            try:
                self._session.raw_call(
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
                kind = pynvml.c_nvmlProcessInfo_v2_t * (PROCESS_ROOM * self._process_places)
                self._process_buffer = kind()
            count = ctypes.c_uint(self._process_places)
            try:
                self._session.raw_call(function, self.handle, ctypes.byref(count), self._process_buffer)
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
                kind = pynvml.c_nvmlProcessUtilizationSample_t * size
                buffer = self._process_samples_buffer = kind()
            count = ctypes.c_uint(size)
            try:
                self._session.raw_call(
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


def _decoded(text: bytes | str) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text
