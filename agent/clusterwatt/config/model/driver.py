"""Section `driver`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from clusterwatt.config.model.places import default_release_file
from clusterwatt.config.model.section import NotEmpty, Seconds, Section


class Driver(Section, frozen=True):
    """How the process that talks to the NVIDIA driver is looked after.

    `deadline_seconds`: a call that takes longer is taken to hang; its GPU is left alone until it returns.
    `silent_seconds`: a driver host that sends nothing for so long is replaced: no further calls, SIGTERM,
    then `grace_seconds` to end. SIGKILL follows only with `kill_hung: true`, because killing a process inside
    a driver call has frozen GPUs.
    `max_replacements_per_hour`: after so many the GPU part stays off until the hour is over.
    `retry_seconds`: the longest pause between two attempts to reach a driver that is not there.
    `release_file`: while this file exists the agent lets go of the driver, so that it can be unloaded;
    `clusterwatt driver release` and `resume` make and remove it. A second agent that names the same file
    does not start. Empty: there is no such file.
    `library_roots`: file systems in which libnvidia-ml.so.1 is looked for before it is taken from where the
    system has its libraries; for containers, where it is the host's or that of NVIDIA's GPU operator.
    """

    deadline_seconds: Seconds = 0.8
    silent_seconds: Seconds = 15.0
    grace_seconds: Seconds = 10.0
    kill_hung: bool = False
    max_replacements_per_hour: Annotated[int, Meta(ge=0, le=60)] = 3
    retry_seconds: Annotated[float, Meta(gt=0, le=60)] = 5.0
    release_file: str = msgspec.field(default_factory=default_release_file)
    library_roots: tuple[NotEmpty, ...] = ()
