"""What a site may change and hardly means: told at export, and done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from clusterwatt.rules.overrides import Change, Overrides
from clusterwatt.rules.render import is_on
from clusterwatt.rules.shipped import RuleFile

DEADMAN = "deadman"


def doubts(files: Iterable[RuleFile], overrides: Overrides) -> Iterator[str]:
    """A line for each, with the key that it is about."""
    yield from _jobs("exempt", overrides.exempt.get("jobs", ()))
    for (name, _), change in overrides.rules.items():
        yield from _jobs(f"rules.{name}.exempt", change.exempt.get("jobs", ()))
    for file in files:
        for rule in file.rules:
            if rule.route != DEADMAN:
                continue
            route = overrides.rules.get((rule.name, rule.severity), Change()).route or rule.route
            if not is_on(rule, file, overrides):
                yield f"{rule.name} is switched off: nobody is told when Prometheus or Alertmanager stops"
            elif route != DEADMAN:
                yield (
                    f"rules.{rule.name}.route: {route} is told all the time, and nobody when Prometheus or "
                    f"Alertmanager stops: {rule.name} belongs to {DEADMAN}"
                )


def _jobs(path: str, patterns: Iterable[str]) -> Iterator[str]:
    for pattern in patterns:
        if pattern.isdecimal():
            yield (
                f"{path}.jobs: {pattern} is a whole name, or a whole id, and ids are as slurm/{pattern}: "
                "write that if you mean the id"
            )
