"""The ground of all readings, and the one for an item that could not be read."""

from __future__ import annotations

from typing import TypeVar

import msgspec


class Reading(msgspec.Struct, frozen=True, array_like=True, tag=True, tag_field="reading"):
    """A fact. Encoded as a tagged array, because GPU readings cross a pipe once a second."""


R = TypeVar("R", bound=Reading)


class Failure(Reading, frozen=True):
    """One item (a port, a disk, a GPU) that could not be read, while its neighbours could.

    `reason` is a short word from a closed set: it becomes a label value. `detail` is for the log only.
    `ongoing`: nothing was tried this time, because it has failed so often; it does not count as one more.
    """

    item: str
    reason: str
    detail: str = ""
    ongoing: bool = False
