"""`clusterwatt rules test`: the shipped scenarios against the rules of a site."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from clusterwatt.cli.ending import FAILED, WRONG_INPUT, Commands, EndError

if TYPE_CHECKING:
    from clusterwatt.rules.scenarios import Verdict


def add(commands: Commands) -> None:
    """Add the command."""
    rules = commands.add_parser("rules", help="test the alert rules", allow_abbrev=False)
    actions = rules.add_subparsers(dest="action", metavar="ACTION", required=True)
    test = actions.add_parser(
        "test",
        help="play the shipped scenarios with promtool",
        description="Plays every shipped scenario against the rules in DIR, as `clusterwatt export rules` "
        "wrote them. Scenarios stand for the shipped numbers: those of rules whose numbers the site changed "
        "are listed when they come out otherwise, and alerts that fire in none any more as SILENT; both are "
        "no failure unless --strict is given.",
        allow_abbrev=False,
    )
    test.add_argument("folder", metavar="DIR", nargs="?", help="exported rules (default: the shipped ones)")
    test.add_argument("--strict", action="store_true", help="any difference is a failure")
    test.add_argument("--promtool", metavar="PROGRAM", help="promtool, where it is not on PATH")
    test.set_defaults(act=_test)


def _test(arguments: argparse.Namespace) -> int:
    from clusterwatt.rules import promtool, scenarios, shipped

    reference = scenarios.shipped(shipped.files())
    try:
        program = promtool.find(arguments.promtool)
        if program is None:
            raise EndError(
                "clusterwatt: promtool is not on PATH; it comes with Prometheus, or name it with --promtool",
                FAILED,
            )
        rules = scenarios.load(Path(arguments.folder)) if arguments.folder else reference
        verdict = scenarios.run(rules, reference, program, scenarios.scenarios())
    except scenarios.ScenarioError as error:
        raise EndError(f"clusterwatt: {error}", WRONG_INPUT) from None
    except promtool.PromtoolError as error:
        raise EndError(f"clusterwatt: {error}", FAILED) from None
    sys.stdout.write("\n".join(_lines(verdict)) + "\n")
    return FAILED if verdict.failures or (arguments.strict and verdict.different) else 0


def _lines(verdict: Verdict) -> Iterator[str]:
    failures = verdict.failures
    for outcome in failures:
        yield f"FAILED  {outcome.scenario}: {outcome.text}"
    for outcome in verdict.different:
        if outcome not in failures:
            yield f"differs {outcome.scenario}: {outcome.alert}, whose numbers are changed: {outcome.text}"
    for silent in verdict.silent:
        changes = ", ".join(silent.changes) or "a changed expression"
        yield (
            f"SILENT  {silent.alert} ({silent.severity}): fires in none of its scenarios "
            f"({silent.scenarios}) with {changes}"
        )
    if verdict.absent:
        yield f"not loaded, not tested: {', '.join(sorted(verdict.absent))}"
    yield (
        f"{verdict.scenarios} scenarios, {verdict.checks} checks: {len(failures)} failed, "
        f"{len(verdict.different) - len(failures)} differ where numbers are changed"
        + (f", {len(verdict.silent)} silent" if verdict.silent else "")
    )
