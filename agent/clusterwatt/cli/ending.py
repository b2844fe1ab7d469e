"""How a command ends: the parser that speaks in one line, the error that says why, the exit status."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn, TypeAlias

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130


class EndError(Exception):
    """The command ends here: what to say on standard error, and the exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, and leaves the end of the process to `main`."""

    def error(self, message: str) -> NoReturn:
        """Raise EndError."""
        raise EndError(f"{self.prog}: {message}; see {self.prog} --help", WRONG_INPUT)


class Once(argparse.Action):
    """An option that two values make no sense for: the second is refused, not silently preferred."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Take the value."""
        if getattr(namespace, self.dest) is not None:
            raise argparse.ArgumentError(self, "given twice")
        setattr(namespace, self.dest, values)


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - it has no other name


def seconds(text: str) -> float:
    """An option's value: a number of seconds, at most an hour."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 3_600:
        raise argparse.ArgumentTypeError("expected more than 0 and at most 3600 seconds")
    return number
