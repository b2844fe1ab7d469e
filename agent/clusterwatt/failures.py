"""How a source tells that one item could not be read while its neighbours could."""

from __future__ import annotations

import errno

from clusterwatt.readings.base import Failure


def failure(item: str, error: OSError) -> Failure:
    """The failure of one item; the reason is a label value, so from a small set."""
    if isinstance(error, PermissionError):
        reason = "permission"
    elif error.errno == errno.ETIMEDOUT:
        reason = "timeout"
    else:
        reason = "io_error"
    return Failure(item=item, reason=reason, detail=str(error))
