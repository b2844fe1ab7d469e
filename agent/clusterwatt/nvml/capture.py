"""A library that notes what the driver answers, and one that answers as was noted; both below the binding.

`Recorder` stands where the binding keeps the loaded library and passes every call on. `Replay` stands in its
place and knows no driver: each question (a function with its handles, numbers and selecting members) gets its
recorded answers one after another, and when they are used up the last one stands. Fields are told apart, so
that an agent which asks for other fields in one call still gets those that were recorded.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pynvml

from clusterwatt.clock import Clock
from clusterwatt.nvml import arguments as plainly
from clusterwatt.nvml.arguments import Handles
from clusterwatt.nvml.bundle import Bundle, Call
from clusterwatt.nvml.errors import Refused
from clusterwatt.nvml.library import load_below
from clusterwatt.nvml.pseudonyms import Pseudonyms

log = logging.getLogger("clusterwatt.nvml.capture")

SUCCESS, NOT_SUPPORTED, TIMEOUT = 0, 3, 10
MOST_BYTES = 64 << 20  # of calls as JSON; a minute of eight GPUs is about 10 MB
FIELD_VALUES = "nvmlDeviceGetFieldValues"
WAITS_FOR_EVENTS = "nvmlEventSetWait"
WORTH_WAITING_S = 0.01  # what took so long in the driver takes as long again
SILENT_WAIT_S = 0.5
UNASKED = frozenset({"nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown"})  # succeed also where not recorded

Library = Any
Question = tuple[str, str]


def load_library(roots: Sequence[str] = ()) -> Library:
    """The library that the binding uses, loaded if it is not yet. Raises Refused when there is none."""
    if pynvml.nvmlLib is None:
        pynvml.nvmlLib = load_below(roots)
    try:
        pynvml._LoadNvmlLibrary()  # noqa: SLF001 - the binding loads it in nvmlInit only
    except pynvml.NVMLError as error:
        raise Refused("loading the library", int(error.value)) from None
    return pynvml.nvmlLib


def put_below(library: Library) -> None:
    """Make the binding use this library from now on."""
    pynvml.nvmlLib = library
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - the binding offers no other way


def binding_version() -> str:
    """The version of the binding; empty when it was not installed as a package."""
    try:
        return importlib.metadata.version("nvidia-ml-py")
    except importlib.metadata.PackageNotFoundError:
        return ""


class Recorder:
    """Notes every call that goes through it, until it has `most_bytes` of them; then it only passes on."""

    def __init__(
        self, library: Library, clock: Clock, pseudonyms: Pseudonyms | None, *, most_bytes: int = MOST_BYTES
    ) -> None:
        self._library = library
        self._clock = clock
        self._pseudonyms = pseudonyms
        self._most_bytes = most_bytes
        self._started_s = clock.monotonic_s()
        self._handles = Handles()
        self._lock = threading.Lock()
        self._lines: list[bytes] = []
        self._size = 0
        self._outstanding: dict[int, Call] = {}
        self._missing: set[str] = set()
        self.complete = True

    @property
    def missing(self) -> list[str]:
        """Functions that were looked for and that the library does not have."""
        return sorted(self._missing)

    def lines(self) -> list[bytes]:
        """All calls as JSON; last those that have not come back, but for one that waits for events."""
        with self._lock:
            hanging = [c for c in self._outstanding.values() if not c.call.startswith(WAITS_FOR_EVENTS)]
            return self._lines + [msgspec.json.encode(call) for call in hanging]

    def text(self, text: str) -> str:
        """A text as it goes into the bundle."""
        return text if self._pseudonyms is None else self._pseudonyms.text(text)

    def __getattr__(self, name: str) -> _Recorded:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            self._missing.add(name)
            raise
        return _Recorded(function, lambda arguments: self._call(name, function, arguments))

    def _call(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        at_s = self._clock.monotonic_s()
        asked = plainly.asked(arguments, self._handles)
        if self._pseudonyms is not None:
            with self._lock:
                asked = self._pseudonyms.asked(name, asked)
        begun = Call(name, at_s - self._started_s, 0.0, asked, None)
        with self._lock:
            self._outstanding[id(begun)] = begun
        code: Any = None
        try:
            code = function(*arguments)
        finally:
            took_s = self._clock.monotonic_s() - at_s
            self._note(begun, took_s, code, arguments)
        return code

    def _note(self, begun: Call, took_s: float, code: Any, arguments: tuple[Any, ...]) -> None:
        answered = plainly.answered(arguments, self._handles, success=code == SUCCESS)
        with self._lock:
            del self._outstanding[id(begun)]
            if self._pseudonyms is not None:
                answered = self._pseudonyms.answered(begun.call, answered)
            line = msgspec.json.encode(
                msgspec.structs.replace(
                    begun,
                    took_s=took_s,
                    code=code.decode("latin-1") if isinstance(code, bytes) else code,
                    answered=answered if any(value is not None for value in answered) else [],
                )
            )
            self._size += len(line) + 1
            if self._size > self._most_bytes:
                self.complete = False
            else:
                self._lines.append(line)


class _Recorded:
    """A function of the library: the binding calls it and, for one of them, sets what it returns."""

    _function: Any
    _call: Callable[[tuple[Any, ...]], Any]

    def __init__(self, function: Any, call: Callable[[tuple[Any, ...]], Any]) -> None:
        self.__dict__["_function"] = function
        self.__dict__["_call"] = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        with contextlib.suppress(AttributeError):  # a simulated function is a Python method
            setattr(self._function, name, value)


class Answers:
    """The recorded answers to one question; the last one stands."""

    def __init__(self) -> None:
        self._answers: list[Call] = []
        self._next = 0

    def add(self, call: Call) -> None:
        """Take one more."""
        self._answers.append(call)

    def next(self) -> tuple[Call, bool]:
        """The answer whose turn it is, and whether it has been given before."""
        place = min(self._next, len(self._answers) - 1)
        again, self._next = place < self._next, self._next + 1
        return self._answers[place], again


class Replay:
    """Answers as a bundle says. `unanswered` lists what was asked and is not in it: NOT_SUPPORTED."""

    def __init__(self, bundle: Bundle) -> None:
        self._missing = frozenset(bundle.manifest.missing)
        self._handles = Handles()
        self._lock = threading.Lock()
        self._answers: dict[Question, Answers] = {}
        self.unanswered: set[Question] = set()
        for call in bundle.calls:
            for question, part in _parts(call):
                self._answers.setdefault(question, Answers()).add(part)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in self._missing or not name.startswith("nvml"):
            raise AttributeError(f"undefined symbol: {name}")

        def call(*arguments: Any) -> Any:
            return self._call(name, arguments)

        return call

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        asked = plainly.asked(arguments, self._handles)
        if name == FIELD_VALUES:
            return self._fields(arguments, asked)
        found = self._next(_question(name, asked))
        if found is None:
            return SUCCESS if name in UNASKED else NOT_SUPPORTED
        call, again = found
        if name.startswith(WAITS_FOR_EVENTS) and again:
            longest_s = int(getattr(arguments[-1], "value", arguments[-1])) / 1000
            threading.Event().wait(min(longest_s, max(call.took_s, SILENT_WAIT_S)))
            return TIMEOUT  # an event has happened once
        _wait(call)
        if isinstance(call.code, str):
            return call.code.encode("latin-1")
        plainly.answer(arguments, call.answered, self._handles)
        return call.code

    def _fields(self, arguments: tuple[Any, ...], asked: list[Any]) -> Any:
        code: int | str | None = SUCCESS
        array = plainly.memory_of(arguments[-1])
        for place, field in enumerate(asked[-1]["memory"]):
            found = self._next(_question(FIELD_VALUES, [asked[0], field]))
            call = found[0] if found else None
            if call is not None and place == 0:
                _wait(call)
            if call is None:
                array[place].nvmlReturn = NOT_SUPPORTED
            elif call.code != SUCCESS:
                code = call.code
            else:
                kind = type(array[place])
                plainly.fill(kind, ctypes.addressof(array[place]), call.answered[0], self._handles)
        return code

    def _next(self, question: Question) -> tuple[Call, bool] | None:
        with self._lock:
            answers = self._answers.get(question)
            if answers is not None:
                return answers.next()
            if question not in self.unanswered and question[0] not in UNASKED:
                self.unanswered.add(question)
                log.info("not in the bundle, so not supported: %s%s", *question)
        return None


def _wait(call: Call) -> None:
    """Let a long call last as long as it did; one that never came back does not come back."""
    if call.code is None:
        threading.Event().wait()
    if call.took_s >= WORTH_WAITING_S:
        threading.Event().wait(call.took_s)


def _parts(call: Call) -> Iterator[tuple[Question, Call]]:
    """The questions that a call answers: one, or one for each field."""
    if call.call != FIELD_VALUES:
        yield _question(call.call, call.asked), call
        return
    entries = call.answered[-1] if call.answered else []
    for place, field in enumerate(call.asked[-1]["memory"]):
        entry = entries[place] if place < len(entries) else {}
        yield _question(FIELD_VALUES, [call.asked[0], field]), msgspec.structs.replace(call, answered=[entry])


def _question(name: str, asked: list[Any]) -> Question:
    kept = [argument for argument in asked if not (isinstance(argument, dict) and "wide" in argument)]
    return name, msgspec.json.encode(kept, order="deterministic").decode()
