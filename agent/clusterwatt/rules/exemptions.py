"""Whom a rule can leave out: which series of its expression get a matcher, and on which label."""

from __future__ import annotations

import re
from collections.abc import Mapping

MATCHED: Mapping[str, tuple[str, re.Pattern[str]]] = {
    "nodes": (
        "instance",
        # Not what says whom a job belongs to: it is the same on all its nodes.
        re.compile(
            r"(?:up|clusterwatt_(?!job_)\w+|(?:gpu_job|gpu|instance|port|filesystem):clusterwatt_\w+:\w+)"
        ),
    ),
    "mountpoints": (
        "mountpoint",
        re.compile(r"(?:clusterwatt_filesystem_\w+|filesystem:clusterwatt_\w+:\w+)"),
    ),
    "ports": ("device", re.compile(r"(?:clusterwatt_rdma_\w+|port:clusterwatt_\w+:\w+)")),
    "accounts": ("account", re.compile(r"(?:clusterwatt_account_\w+|account:clusterwatt_\w+:\w+)")),
}
# Rules that know a job leave out its exempt ones in this line; further ones are put behind it.
EXEMPT_JOBS = re.compile(r"^(?P<indent> *)unless on \(job_id\) clusterwatt_job_exempt == 1$", re.MULTILINE)
OWNED: Mapping[str, tuple[str, ...]] = {
    "jobs": ("job_id", "name"),
    "users": ("user",),
    "accounts": ("account",),
}
KINDS = tuple(dict.fromkeys((*MATCHED, *OWNED)))
KIND_SET = frozenset(KINDS)


def kinds_of(expression: str) -> tuple[str, ...]:
    """What a rule of this expression can leave out."""
    owned = OWNED if EXEMPT_JOBS.search(expression) else ()
    return tuple(
        kind for kind in KINDS if kind in owned or (kind in MATCHED and MATCHED[kind][1].search(expression))
    )
