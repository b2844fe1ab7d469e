"""Section `simulate`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from clusterwatt.config.model.section import Section


class Simulate(Section, frozen=True):
    """Another driver in place of the real one, for demonstrations and tests: simulated, or recorded.

    `profile`: a100, h100, h200, b200, gb200, l40s, t4, rtx4080; empty: the real driver.
    `gpus`: how many of them. `seed`: the same number makes the same devices and the same work.
    `faults_file`: a JSON file of faults to play, read again when it changes.
    `replay_file`: a bundle of `clusterwatt capture`, whose answers are given again.
    `jobs`: whether simulated jobs hold the simulated GPUs, in place of those that run on this machine.
    """

    profile: Literal["", "a100", "h100", "h200", "b200", "gb200", "l40s", "t4", "rtx4080"] = ""
    gpus: Annotated[int, Meta(ge=0, le=64)] = 8
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)] = 1
    faults_file: str = ""
    replay_file: str = ""
    jobs: bool = True

    @property
    def label(self) -> Literal["true", "false", "replay"]:
        """Value of the label `simulated`: whether the driver is simulated, or what it answers is recorded."""
        if self.replay_file:
            return "replay"
        return "true" if self.profile else "false"
