"""Training runs: TensorBoard files and reports of the training processes themselves.

A training process imports `Reporter` from here. So nothing is imported before it is asked for: the rest needs
what the agent needs, and a training image need not have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clusterwatt.training.reporter import Reporter

__all__ = ["Reporter"]


def __getattr__(name: str) -> object:
    if name == "Reporter":
        from clusterwatt.training.reporter import Reporter

        return Reporter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
