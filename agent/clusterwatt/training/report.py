"""A report of a training process: the JSON of `POST /api/v1/training`, checked to the last key.

docs/TRAINING.md describes it. What comes from a process of a user may be anything: every name has a length,
every number a range, and whatever is wrong is named, each fault on a line of its own. JSON has no NaN
(RFC 8259, 6), but Python's writes one, and others write it as text; both are taken for what they mean.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Literal, NoReturn

import msgspec

MAX_BODY_BYTES = 65_536
MAX_SCALARS = 256
MAX_NAME = 200  # characters of a run or a tag
MAX_FRAMEWORK = 64
MAX_FAULTS = 20
MAX_SHOWN = 60
MAX_NONFINITE = 1_000  # of one tag in one report: each is counted by itself
MOST = float(2**53)  # the largest range of whole numbers that a double holds
LATEST_S = 32_503_680_000.0  # the year 3000
MOST_FLOPS = 1e18

PHASES = ("warmup", "train", "eval", "checkpoint")
PRECISIONS = ("bf16", "fp16", "tf32", "fp8", "fp4", "fp32", "fp64_tensor")
JOB = re.compile(r"(?:slurm|k8s|container|unit|user)/[A-Za-z0-9][A-Za-z0-9._:@/-]{0,190}")
NOT_FINITE = frozenset({"nan", "inf", "infinity"})

Phase = Literal["warmup", "train", "eval", "checkpoint"]


class Report(msgspec.Struct, frozen=True):
    """What a process says of its run; None and empty where it says nothing.

    `job`: to which job it claims to belong. `time_s`: Unix time of all that is in it but the phase, which
    began at `phase_time_s`. `tokens`: of the whole run, all ranks. `scalars`: finite values by tag.
    `nonfinite`: how many values of a tag were not; a tag that is not among the scalars too has none now.
    `flops_per_token`, `precision`, `gpus`: of the whole run, for model FLOP utilisation.
    """

    run: str
    job: str = ""
    framework: str = ""
    time_s: float | None = None
    step: float | None = None
    tokens: float | None = None
    phase: Phase | None = None
    phase_time_s: float | None = None
    scalars: Mapping[str, float] = {}
    nonfinite: Mapping[str, int] = {}
    flops_per_token: float | None = None
    precision: str = ""
    gpus: float | None = None


class FaultyReportError(ValueError):
    """A report that is not taken; `faults` says why, each in a line."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class _Wrong(Exception):
    """What was expected in place of a value."""


def parse(body: bytes) -> Report:
    """The report that a body holds. Raises FaultyReportError."""
    if len(body) > MAX_BODY_BYTES:
        raise FaultyReportError([f"the body has more than {MAX_BODY_BYTES} bytes"])
    try:
        # All numbers become floats: whole ones of any length are read at once, and a double is what goes out.
        document = json.loads(body.decode(), parse_int=float, object_pairs_hook=_each_once)
    except _TwiceError as twice:
        raise FaultyReportError([f"{_shown(twice.args[0])}: given twice"]) from None
    except RecursionError:
        raise FaultyReportError(["the body is nested too deeply"]) from None
    except ValueError as error:
        raise FaultyReportError([f"the body is not JSON in UTF-8: {error}"]) from None
    if not isinstance(document, dict):
        raise FaultyReportError([f"expected an object, got {_shown(document)}"])
    faults: list[str] = []
    taken: dict[str, object] = {}
    for key, value in document.items():
        take = KEYS.get(key)
        if take is None:
            faults.append(f"{_shown(key)}: unknown key; known are {', '.join(KEYS)}")
            continue
        try:
            taken[key] = take(value)
        except _Wrong as wrong:
            faults.append(f"{key}: expected {wrong}")
    if "run" not in document:
        faults.append("run: missing; it names the run")
    if faults:
        more = len(faults) - MAX_FAULTS
        raise FaultyReportError(faults[:MAX_FAULTS] + ([f"and {more} more"] if more > 0 else []))
    return _report(taken)


class _TwiceError(ValueError):
    """A key that an object has twice."""


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    once: dict[str, object] = {}
    for key, value in pairs:
        if key in once:
            raise _TwiceError(key)
        once[key] = value
    return once


def _report(taken: dict[str, object]) -> Report:
    """The report of checked values; a scalar that is not finite becomes a count."""
    values = taken.pop("scalars", {})
    counts = taken.pop("nonfinite", {})
    assert isinstance(values, dict)
    assert isinstance(counts, dict)
    finite = {tag: value for tag, value in values.items() if math.isfinite(value)}
    for tag in values.keys() - finite.keys():
        counts[tag] = counts.get(tag, 0) + 1
    for name in ("time", "phase_time"):
        if name in taken:
            taken[name + "_s"] = taken.pop(name)
    return msgspec.convert({**taken, "scalars": finite, "nonfinite": counts}, Report)


def _wrong(expected: str, value: object) -> NoReturn:
    raise _Wrong(f"{expected}, got {_shown(value)}")


def _name(longest: int, *, empty: bool = False) -> Callable[[object], object]:
    """Text that people can read: no control characters, nothing that turns the direction of writing."""

    def take(value: object) -> object:
        fits = isinstance(value, str) and value.isprintable() and value == value.strip()
        if not fits or not (empty or value) or len(str(value)) > longest:
            _wrong(f"up to {longest} printable characters, no space at either end", value)
        return value

    return take


def _job(value: object) -> object:
    if not isinstance(value, str) or (value and not JOB.fullmatch(value)):
        _wrong("a job such as slurm/4711", value)
    return value


def _choice(*choices: str) -> Callable[[object], object]:
    def take(value: object) -> object:
        if value not in choices:
            _wrong(f"one of {', '.join(choices)}", value)
        return value

    return take


def _number(least: float, most: float, *, whole: bool = False) -> Callable[[object], object]:
    def take(value: object) -> object:
        if not isinstance(value, float) or not least <= value <= most or (whole and not value.is_integer()):
            _wrong(f"a {'whole ' if whole else ''}number from {least:g} to {most:g}", value)
        return value

    return take


def _scalars(value: object) -> object:
    return {tag: _scalar(tag, scalar) for tag, scalar in _by_tag(value).items()}


def _scalar(tag: str, value: object) -> float:
    if isinstance(value, str) and value.lstrip("+-").lower() in NOT_FINITE:
        return math.nan
    if not isinstance(value, float):
        _wrong(f"a number for {_shown(tag)}", value)
    return value


def _nonfinite(value: object) -> object:
    count = _number(1, MAX_NONFINITE, whole=True)
    return {tag: int(count(times)) for tag, times in _by_tag(value).items()}  # type: ignore[call-overload]  # it is a float


def _by_tag(value: object) -> dict[str, object]:
    if not isinstance(value, dict) or len(value) > MAX_SCALARS:
        _wrong(f"an object with up to {MAX_SCALARS} tags", value)
    for tag in value:
        TAG(tag)
    return value


def _shown(value: object) -> str:
    """A value as it may stand in a line for people."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


TAG = _name(MAX_NAME)
KEYS: Mapping[str, Callable[[object], object]] = {
    "run": _name(MAX_NAME),
    "job": _job,
    "framework": _name(MAX_FRAMEWORK, empty=True),
    "time": _number(0, LATEST_S),
    "step": _number(0, MOST),
    "tokens": _number(0, MOST),
    "phase": _choice(*PHASES),
    "phase_time": _number(0, LATEST_S),
    "scalars": _scalars,
    "nonfinite": _nonfinite,
    "flops_per_token": _number(1, MOST_FLOPS),
    "precision": _choice(*PRECISIONS),
    "gpus": _number(1, 1e6, whole=True),
}
