"""Section `log`."""

from __future__ import annotations

from typing import Literal

from clusterwatt.config.model.section import Section


class Log(Section, frozen=True):
    """What the agent says on standard error: from which `level` on, in which `format`."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["logfmt", "json"] = "logfmt"
