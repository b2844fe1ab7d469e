"""The text of a PromQL expression: the numbers that are named in it, and matchers that are added to it.

A comment at the end of a line names what stands in it: `... [1h]) >= 50  # window: 1h, guard: 50`. Each value
has to stand there exactly once, so that a number cannot be changed in the comment alone, or twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

MARK = re.compile(r"^(?P<code>.*?)  # (?P<names>[a-z_]+: [^\s,]+(?:, [a-z_]+: [^\s,]+)*)$")
DURATION = re.compile(r"(?:[1-9][0-9]*[smhdw])+")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}

# Samples that a window has to hold, so that a gap is not taken for silence. They scale with the window.
GUARD = "guard"  # of a recorded series: one an evaluation
MINUTES = "minutes"  # of a subquery with a step of one minute
GAP = "gap"  # between such a window and now: it holds none of the samples
EVALUATED_EVERY_S = 60  # what the guards of the shipped rules belong to


class MarkError(Exception):
    """A comment names a value that does not stand in its line exactly once, or has two values in a rule."""


def numbers(expression: str) -> dict[str, str]:
    """The named values of an expression, in their order. Raises MarkError."""
    named: dict[str, str] = {}
    for line in expression.splitlines():
        code, marks = split(line)
        for name, value in marks.items():
            _place(code, value)
            if named.setdefault(name, value) != value:
                raise MarkError(f"{name} is {named[name]} and {value}")
    return named


def changed(expression: str, values: Mapping[str, str]) -> str:
    """The expression with other values; the comment of a line keeps what was there as the default."""
    return "\n".join(_line(line, values) for line in expression.splitlines())


def with_guards(expression: str, values: Mapping[str, str], every_s: int) -> dict[str, str]:
    """The values, and the sample guards that follow from their windows and the interval of evaluation."""
    scaled = dict(values)
    for line in expression.splitlines():
        marks = split(line)[1]
        for guard in {GUARD, MINUTES} & marks.keys() - values.keys():
            factor = Fraction(EVALUATED_EVERY_S, every_s) if guard == GUARD else Fraction(1)
            for name, value in marks.items():
                if is_duration(value) and name != GAP:
                    factor *= Fraction(seconds(values.get(name, value)), seconds(value))
            scaled[guard] = str(max(1, round(int(marks[guard]) * factor)))
    return scaled


def with_matcher(expression: str, series: re.Pattern[str], label: str, pattern: str) -> str:
    """The expression with `label!~pattern` on every series whose name matches."""
    matcher = f"{label}!~{quoted(pattern)}"

    def add(found: re.Match[str]) -> str:
        inside = found["inside"]
        return f"{found['name']}{{{inside + ', ' if inside else ''}{matcher}}}"

    selector = re.compile(
        rf"(?<![\w:])(?P<name>{series.pattern})(?![\w:])(?!\s*\()(?:\{{(?P<inside>[^}}]*)\}})?"
    )
    return "\n".join(
        selector.sub(add, code) + line[len(code) :]
        for line in expression.splitlines()
        for code in [split(line)[0]]
    )


def quoted(text: str) -> str:
    """A string of PromQL."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def recorded(expression: str) -> set[str]:
    """The recorded series that an expression asks for."""
    return set(re.findall(r"(?<![\w:])\w+:clusterwatt_\w+:\w+", expression))


def plain(expression: str) -> str:
    """The expression without its comments."""
    return "\n".join(re.sub(r"  # .*$", "", line) for line in expression.splitlines())


def is_duration(text: str) -> bool:
    """Whether it is a duration as PromQL writes it."""
    return bool(DURATION.fullmatch(text))


def seconds(duration: str) -> int:
    """The seconds of a duration as PromQL writes it."""
    return sum(int(number) * SECONDS[unit] for number, unit in re.findall(r"(\d+)([smhdw])", duration))


def split(line: str) -> tuple[str, dict[str, str]]:
    """The code of a line, and the values that are named behind it."""
    mark = MARK.match(line)
    if mark is None:
        return line, {}
    return mark["code"], dict(part.split(": ") for part in mark["names"].split(", "))


def _place(code: str, value: str) -> tuple[int, int]:
    """Where the value stands in the code. Raises MarkError."""
    # A window may also be the end of a recorded series' name, as in `ratio_rate6h` and `delta1h`.
    places = [
        found.span()
        for found in re.finditer(rf"(?:(?<![\w.])|(?<=_rate|delta)){re.escape(value)}(?![\w.])", code)
    ]
    if len(places) != 1:
        raise MarkError(f"{value} stands {len(places)} times in `{code.strip()}`, expected once")
    return places[0]


def _line(line: str, values: Mapping[str, str]) -> str:
    code, marks = split(line)
    new = {name: values[name] for name, old in marks.items() if values.get(name, old) != old}
    if not new:
        return line
    for (start, end), value in sorted(((_place(code, marks[name]), new[name]) for name in new), reverse=True):
        code = code[:start] + value + code[end:]
    return f"{code}  # {', '.join(_notes(marks, new))}"


def _notes(marks: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name, old in marks.items():
        yield f"{name}: {new[name]} (default {old})" if name in new else f"{name}: {old}"
