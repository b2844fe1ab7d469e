"""Section `ledger`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from clusterwatt.config.model.places import state_folder
from clusterwatt.config.model.section import NotEmpty, Section


class Ledger(Section, frozen=True):
    """Where energy and cost of jobs are kept.

    `path`: the file; under the user's own state folder when the agent does not run as root.
    `commit_seconds`: how often what has gathered is written; a crash loses no more than that.
    `retention_days`: hours and finished jobs older than this are removed; totals of accounts stay.
    `max_bytes`: the oldest are removed earlier when the ledger holds more.
    `linger_seconds`: how long a job stays on the page after its end.
    `receipts`: leave a text file for each job that has ended, with what it used on this node, in
    `receipts_directory` (empty: the folder `receipts` beside the ledger); the newest 10 000 are kept.
    """

    path: NotEmpty = msgspec.field(default_factory=lambda: str(state_folder() / "ledger.db"))
    commit_seconds: Annotated[float, Meta(ge=0.1, le=600)] = 10.0
    retention_days: Annotated[int, Meta(ge=1, le=36_500)] = 400
    max_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 40)] = 1 << 30
    linger_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 300.0
    receipts: bool = True
    receipts_directory: str = ""
