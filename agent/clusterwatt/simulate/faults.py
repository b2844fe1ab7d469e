"""Faults of a simulated driver: calls that fail, hang or lie, GPUs that vanish, XIDs.

Set in memory by tests, or read from a JSON file that is read again whenever it changes, so that a running
agent can be shown a fault. Times are wall time in Unix seconds; `gpu` is the board, which is the NVML index
as long as none has vanished; `call` is a name or a shell pattern (`nvmlDeviceGet*`, `*`). An example of the
file:

    {
      "rules": [
        {"call": "nvmlDeviceGetPowerUsage", "gpu": 2, "fail": 15},
        {"call": "*", "gpu": 3, "fail": 15, "from_s": 1700000030, "until_s": 1700000090},
        {"call": "nvmlInitWithFlags", "fail": 9, "until_s": 1700000000},
        {"call": "nvmlDeviceGetUtilizationRates", "gpu": 1, "hang_s": 120},
        {"call": "nvmlDeviceGetFieldValues", "field": 143, "change": 2},
        {"call": "nvmlDeviceGetMemoryInfo_v2", "change": {"used": 0, "free": 25413287936}},
        {"call": "nvmlDeviceGetTemperatureV", "change": {"temperature": 91}, "skip_calls": 5, "calls": 3}
      ],
      "gpus": 8,
      "vanished": [6],
      "xids": [{"gpu": 0, "xid": 79, "at_s": 1700000060}]
    }

A rule has exactly one of `fail` (an NVML return code), `hang_s` (seconds; 0: for as long as the rule stands)
and `change`. `field` narrows a rule to one id of nvmlDeviceGetFieldValues or nvmlGpmMetricsGet: the call then
goes through and only that entry fails or changes. `change` is a number or text for a call with one result, a
list for one with several, an object of members for one that fills a struct. `gpus` limits how many GPUs the
driver counts. A file that cannot be read or understood leaves the rules as they were and is logged once.
"""

from __future__ import annotations

import fnmatch
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from clusterwatt import plain_file

log = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
# How often a call that hangs looks whether its rule is gone from the file.
_LOOK_S = 0.1


class Xid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An XID event: `instance` is the GPU instance it happened in, None for the whole GPU."""

    gpu: int
    xid: int
    at_s: float = 0.0
    instance: int | None = None


class _RuleInFile(msgspec.Struct, forbid_unknown_fields=True):
    call: str
    gpu: int | None = None
    field: int | None = None
    fail: int | None = None
    hang_s: float | None = None
    change: Any = None
    from_s: float | None = None
    until_s: float | None = None
    skip_calls: int = 0
    calls: int | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    rules: list[_RuleInFile] = []
    gpus: int | None = None
    vanished: list[int] = []
    xids: list[Xid] = []


class Rule:
    """One fault. A test may wait for `hanging` and end a hang with `release`; `hits` counts calls."""

    def __init__(
        self,
        call: str,
        *,
        gpu: int | None = None,
        field: int | None = None,
        fail: int | None = None,
        hang_s: float | None = None,
        change: object = None,
        from_s: float | None = None,
        until_s: float | None = None,
        skip_calls: int = 0,
        calls: int | None = None,
    ) -> None:
        if sum(part is not None for part in (fail, hang_s, change)) != 1:
            raise ValueError(f"rule for {call!r}: exactly one of fail, hang_s, change")
        self.call, self.gpu, self.field = call, gpu, field
        self.code, self.hang_s, self.value = fail, hang_s, change
        self.from_s, self.until_s = from_s, until_s
        self._skip_calls, self._calls = skip_calls, calls
        self.hits = 0
        self.hanging = threading.Event()
        self._released = threading.Event()

    def release(self) -> None:
        """Let every call go that hangs on this rule, now and later."""
        self._released.set()

    def hang(self, still_stands: Callable[[], bool]) -> None:
        """Block the caller until the rule is released, its time is over, or it no longer stands."""
        self.hanging.set()
        if self.hang_s:
            self._released.wait(self.hang_s)
            return
        while not self._released.wait(_LOOK_S) and still_stands():
            pass

    def meets(self, gpu: int | None, now_s: float) -> bool:
        """Whether the rule holds for this call now; counts the call when it would."""
        if self.gpu is not None and self.gpu != gpu:
            return False
        if self.from_s is not None and now_s < self.from_s:
            return False
        if self.until_s is not None and now_s >= self.until_s:
            return False
        self.hits += 1
        met = self.hits - self._skip_calls
        return met > 0 and (self._calls is None or met <= self._calls)


class Faults:
    """All faults of one simulated driver; every method may be called from any thread."""

    def __init__(self) -> None:
        self.gpus: int | None = None
        self.vanished: set[int] = set()
        self._rules: tuple[Rule, ...] = ()
        self._by_call: dict[str, tuple[Rule, ...]] = {}
        self._xids: list[Xid] = []
        self._handed_out: set[Xid] = set()
        self._since_s: float | None = None
        self._path: Path | None = None
        self._seen: tuple[int, int, int] | None = None
        self._lock = threading.Lock()

    @classmethod
    def from_file(cls, path: str | Path) -> Faults:
        """Faults that follow a file; a file that does not exist (yet) means none."""
        faults = cls()
        faults._path = Path(path)
        faults.refresh()
        return faults

    def fail(self, call: str, code: int, **when: Any) -> Rule:
        """Make a call return a code. `when`: gpu, field, from_s, until_s, skip_calls, calls."""
        return self._add(Rule(call, fail=code, **when))

    def hang(self, call: str, *, seconds: float = 0.0, **when: Any) -> Rule:
        """Make a call block for so many seconds, or until `release` of the rule returned."""
        return self._add(Rule(call, hang_s=seconds, **when))

    def change(self, call: str, value: object, **when: Any) -> Rule:
        """Make a call that succeeds yield another value."""
        return self._add(Rule(call, change=value, **when))

    def lose(self, gpu: int, **when: Any) -> Rule:
        """Every call on this GPU says NVML_ERROR_GPU_IS_LOST."""
        return self.fail("*", 15, gpu=gpu, **when)

    def unload_driver(self, **when: Any) -> Rule:
        """Initialisation says NVML_ERROR_DRIVER_NOT_LOADED."""
        return self.fail("nvmlInit*", 9, **when)

    def xid(self, gpu: int, xid: int, *, at_s: float = 0.0, instance: int | None = None) -> None:
        """Raise an XID: at once, or when `at_s` has come."""
        with self._lock:
            self._xids.append(Xid(gpu, xid, at_s, instance))

    def clear(self, *rules: Rule) -> None:
        """Take back these rules, or everything; calls that hang on them go on."""
        gone = set(rules) if rules else set(self._rules)
        self._replace(rule for rule in self._rules if rule not in gone)
        if not rules:
            self.gpus = None
            self.vanished = set()
        for rule in gone:
            rule.release()

    def meeting(self, call: str, gpu: int | None, now_s: float, *, narrowed: bool = False) -> Sequence[Rule]:
        """The rules that hold for this call now, in the order in which they were set.

        narrowed: the call was met before, without a GPU; only rules for this GPU are left to meet.
        """
        rules = self._by_call.get(call)
        if rules is None:
            rules = tuple(rule for rule in self._rules if fnmatch.fnmatchcase(call, rule.call))
            self._by_call[call] = rules
        if not rules:
            return ()
        return [r for r in rules if not (narrowed and r.gpu is None) and r.meets(gpu, now_s)]

    def stands(self, rule: Rule) -> bool:
        """Whether a rule is still set, after a look at the file."""
        self.refresh()
        return rule in self._rules

    def due_xids(self, now_s: float) -> list[Xid]:
        """XIDs whose time has come; each is handed out once, those of before the first look never."""
        with self._lock:
            if self._since_s is None:
                self._since_s = now_s
            due = [xid for xid in self._xids if xid.at_s <= now_s]
            self._xids = [xid for xid in self._xids if xid.at_s > now_s]
            if self._path is not None:
                self._handed_out.update(due)
        return [xid for xid in due if xid.at_s == 0 or xid.at_s >= self._since_s]

    def refresh(self) -> None:
        """Read the file again when it was replaced or written since the last look."""
        if self._path is None:
            return
        try:
            status = self._path.stat()
            identity = (status.st_ino, status.st_mtime_ns, status.st_size)
        except OSError:
            identity = (0, 0, 0)
        if identity == self._seen:
            return
        with self._lock:
            if identity == self._seen:
                return
            self._seen = identity
            self._load(self._path, exists=identity != (0, 0, 0))

    def _load(self, path: Path, *, exists: bool) -> None:
        try:
            found = (
                msgspec.json.decode(plain_file.content(path, MAX_BYTES), type=_File) if exists else _File()
            )
            rules = [Rule(**msgspec.structs.asdict(rule)) for rule in found.rules]
        except (OSError, ValueError, TypeError) as error:  # msgspec's errors are ValueErrors
            log.warning("faults file %s ignored: %s", path, error)
            return
        old = self._rules
        self.gpus, self.vanished = found.gpus, set(found.vanished)
        self._xids = [xid for xid in found.xids if xid not in self._handed_out]
        self._replace(rules)
        for rule in old:
            rule.release()

    def _add(self, rule: Rule) -> Rule:
        self._replace((*self._rules, rule))
        return rule

    def _replace(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)
        self._by_call = {}
