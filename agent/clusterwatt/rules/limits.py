"""Numbers with which a rule can never fire: more than a window holds, or over before anybody looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterwatt.rules import expression
from clusterwatt.rules.shipped import Rule

SEEN_AFTER = 2  # evaluations, within which a rule that looks for what is new has surely looked

# Of rule and number: the number that it has to stay above.
ABOVE: Mapping[tuple[str, str], str] = {("JobLowGpuUtilization", "activity_ratio"): "floor_ratio"}


def broken(rule: Rule, changed: Mapping[str, str], every_s: int) -> Iterator[tuple[str, str]]:
    """The numbers of a site with which the rule cannot fire, with what would be possible.

    `changed`: those that the site gives. `every_s`: the interval of evaluation.
    """
    values = {**rule.numbers, **changed}
    for line in rule.expression.splitlines():
        code, marks = expression.split(line)
        for name in marks.keys() & changed.keys():
            if name in (expression.GUARD, expression.MINUTES):
                window = next(
                    each for each in marks if each != expression.GAP and expression.is_duration(marks[each])
                )
                step_s = every_s if name == expression.GUARD else 60
                most = expression.seconds(values[window]) // step_s
                if int(values[name]) > most:
                    yield name, f"expected at most {most}, the samples in a {window} of {values[window]}"
            elif name.endswith("_seconds") and f"< {marks[name]}" in code:
                least = SEEN_AFTER * every_s
                if float(values[name]) < least:
                    yield name, f"expected at least {least}, {SEEN_AFTER} intervals of evaluation"
    for (alert, name), floor in ABOVE.items():
        if (
            alert == rule.name
            and {name, floor} & changed.keys()
            and float(values[name]) <= float(values[floor])
        ):
            given = name if name in changed else floor
            yield given, f"expected {name} above {floor}, which are {values[name]} and {values[floor]}"
