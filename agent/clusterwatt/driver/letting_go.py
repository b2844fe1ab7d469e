"""The agent's side of letting go of the driver: looks at the flag, sees the driver host off, answers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Protocol

from clusterwatt.clock import Clock
from clusterwatt.config.model import Driver
from clusterwatt.driver.frames import Frame
from clusterwatt.driver.holding import HOLD, Answer, ReleaseFlag, answer, may_hold_driver

log = logging.getLogger("clusterwatt.driver")

SIGNAL = "SIGUSR1"


class Process(Protocol):
    """A driver host, as far as it has to leave."""

    pid: int

    def ask_to_leave(self) -> None:
        """Ask it to make no further call and to end."""

    def kill(self) -> None:
        """Send SIGKILL."""


class LetGo:
    """Whether the operator wants the driver to be let go of, and what has come of it.

    `since_s` is when the agent began to let go, None while it may hold the driver. `for_good`: also without
    the flag. `labels`: those of the Kubernetes node, by which NVIDIA's operator announces that it will
    replace the driver or cut GPUs anew. `answers`: False for a process that runs beside the agent.
    """

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        labels: Callable[[], Mapping[str, str]] = dict,
        *,
        answers: bool = True,
    ) -> None:
        self._driver = driver
        self._labels = labels
        self._clock = clock
        self._answers = answers
        self._flag = ReleaseFlag(driver.release_file)
        self._release = HOLD
        self._asked: Process | None = None
        self._killed = False
        self._said: Answer | None = None
        self.since_s: float | None = None
        self.for_good = False

    def use(self, driver: Driver) -> None:
        """Go on under other settings."""
        if driver.release_file != self._driver.release_file:
            self._flag, self._said = ReleaseFlag(driver.release_file), None
        self._driver = driver

    def wanted(self) -> bool:
        """Look at the flag and the labels."""
        self._release = self._flag.look()
        announced = may_hold_driver(self._labels())
        wanted = self._release.everything or self.for_good or announced is not None
        if not wanted:
            if self.since_s is not None:
                log.info("the driver is taken up again")
            self.since_s = self._asked = None
        elif self.since_s is None:
            asks = SIGNAL if self.for_good else self._flag.path if self._release.everything else announced
            log.warning("the driver is let go of, as %s asks", asks)
            self.since_s = self._clock.monotonic_s()
        return wanted

    def see_off(self, process: Process | None, now_s: float) -> None:
        """Ask a host to leave, once; kill it after the grace where that is allowed."""
        if process is None or self.since_s is None:
            return
        if process is not self._asked:
            self._asked, self._killed = process, False
            process.ask_to_leave()
        elif (
            self._driver.kill_hung and not self._killed and now_s - self.since_s >= self._driver.grace_seconds
        ):
            log.error("driver host %d did not leave: killed, as driver.kill_hung allows", process.pid)
            self._killed = True
            process.kill()

    def answer(self, host_pids: list[int], frame: Frame | None) -> None:
        """Say beside the flag how things stand, when that has changed; nothing if nobody has ever asked."""
        if not self._answers or (self._release == HOLD and self._said is None):
            return
        state = "held" if self.since_s is None else "leaving" if host_pids else "released"
        devices = () if frame is None else frame.devices
        known = [device.uuid for device in devices if not device.parent_uuid]
        gpus = [device.uuid for device in devices if device.reason == "released"]
        said = Answer(os.getpid(), state, self._release.stamp, host_pids, gpus, known)
        if said == self._said or self._flag.path is None:
            return
        self._said = said
        try:
            answer(self._flag.path, said)
        except OSError as error:
            log.warning("nobody can be told that the driver is %s: %s", state, error)
