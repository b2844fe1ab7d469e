"""Reads of a device with many files, where one that fails must not cost the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure

T = TypeVar("T")


class Attempts:
    """Reads during one pass; what went wrong is gathered until `take`.

    An item that let a read time out is not asked again before that: firmware that is silent makes each read
    wait for up to a minute.
    """

    def __init__(self) -> None:
        self._failures: list[Failure] = []
        self._silent: set[str] = set()

    def get(self, read: Callable[[str], T | None], path: str, item: str) -> T | None:
        """What `read` says of a path; None when it fails, which is noted as a failure of `item`."""
        if item in self._silent:
            return None
        try:
            return read(path)
        except OSError as error:
            if isinstance(error, TimeoutError):
                self._silent.add(item)
            self._failures.append(failure(item, error))
            return None

    def take(self) -> list[Failure]:
        """The failures since the last call."""
        failures, self._failures = self._failures, []
        self._silent.clear()
        return failures
