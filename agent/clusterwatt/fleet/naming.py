"""Log lines of a fleet say of which node they are: all nodes log in one process, through the same loggers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar

_node: ContextVar[str] = ContextVar("node", default="")


@contextlib.contextmanager
def lines_of(node: str) -> Iterator[None]:
    """What is logged in here is of this node."""
    token = _node.set(node)
    try:
        yield
    finally:
        _node.reset(token)


def name_nodes() -> None:
    """Have the lines that go out now name their node, in the field `node`."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_name)


def _name(record: logging.LogRecord) -> bool:
    if node := _node.get():
        record.node = node
    return True
