"""The driver in trouble, against the real agent: GPUs go and come back, everything else never notices."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.page import Page
from tests.e2e.servers import Server, agent, until

pytestmark = pytest.mark.e2e

GPUS = 8
ANSWER_S = 2.0  # a scrape must be quicker, whatever the driver does
NOTICE_S = 15.0
RECOVER_S = 30.0
HOST_FAMILIES = ("network", "disk", "filesystem", "memory", "cpu", "cpus", "load1", "boot", "pressure")
QUICK = (
    "driver.deadline_seconds=0.3",
    "driver.silent_seconds=3",
    "driver.grace_seconds=1",
    "driver.retry_seconds=1",
)


class Faults:
    """The file that the simulated driver reads its faults from."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def set(self, *rules: dict[str, Any]) -> None:
        """These faults and no others from now on; the file is replaced whole."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps({"rules": list(rules)}))
        fresh.replace(self.file)


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    made = Faults(tmp_path / "faults.json")
    made.set()
    return made


@contextlib.contextmanager
def simulated(folder: Path, faults: Faults) -> Iterator[Server]:
    """The agent with a simulated driver in which the faults happen."""
    settings = [word for setting in QUICK for word in ("--set", setting)]
    with agent(
        folder, "--simulate", "h100", "--set", f"simulate.faults_file={faults.file}", *settings
    ) as ours:
        yield ours


def host_series(page: Page) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """Name and labels of all series about network, disks and host."""
    prefixes = tuple(f"clusterwatt_{family}" for family in HOST_FAMILIES)
    return {
        (name, frozenset(labels.items()))
        for name in page.names()
        if name.startswith(prefixes)
        for labels, _ in page.series(name)
    }


class Watch:
    """What regular scrapes see: the slowest one, host series that were missing, CPU time that stood still."""

    def __init__(self, ours: Server) -> None:
        self._ours = ours
        self._expected = host_series(ours.page())
        self._done = threading.Event()
        self.scrapes = 0
        self.slowest_s = 0.0
        self.missing: set[tuple[str, frozenset[tuple[str, str]]]] = set()
        self.broken: list[str] = []
        self.cpu_seconds: set[float] = set()

    def _run(self) -> None:
        while not self._done.wait(0.1):
            started_s = time.monotonic()
            try:
                page = self._ours.page(timeout_s=ANSWER_S)
            except OSError as error:
                self.broken.append(repr(error))
                continue
            self.slowest_s = max(self.slowest_s, time.monotonic() - started_s)
            self.scrapes += 1
            self.missing |= self._expected - host_series(page)
            self.cpu_seconds.add(page.cpu_seconds())

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Scrape all through the block, then say whether anybody would have noticed."""
        thread = threading.Thread(target=self._run, name="watch")
        started_s = time.monotonic()
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()
        lasted_s = time.monotonic() - started_s
        assert not self.broken
        assert self.slowest_s < ANSWER_S
        assert len(self._expected) > 20, "a page without the host proves nothing"
        assert not self.missing
        assert len(self.cpu_seconds) > 0.5 * lasted_s, "host values stood still"


def gpus_with_power(ours: Server) -> set[str]:
    return set(ours.page().by("gpu", "clusterwatt_gpu_power_watts"))


def all_gpus_measured(ours: Server) -> bool:
    return len(gpus_with_power(ours)) == GPUS


def gpu_part_is(ours: Server, up: float) -> bool:
    return ours.page().value("clusterwatt_collector_up", collector="gpu") == up


def driver_hosts(ours: Server) -> list[psutil.Process]:
    return psutil.Process(ours.process.pid).children()


def test_g06_a_call_that_never_returns_costs_one_gpu(tmp_path: Path, faults: Faults) -> None:
    with simulated(tmp_path, faults) as ours:
        until(lambda: all_gpus_measured(ours), RECOVER_S, "eight GPUs")
        with Watch(ours).running():
            faults.set({"call": "nvmlDeviceGet*", "gpu": 2, "hang_s": 0})
            until(
                lambda: ours.page().value("clusterwatt_gpu_up", gpu="2") == 0, NOTICE_S, "GPU 2 is given up"
            )
            page = ours.page()
            assert page.by("gpu", "clusterwatt_gpu_down_info") == {"2": 1.0}
            assert dict(next(page.series("clusterwatt_gpu_down_info"))[0])["reason"] == "timeout"
            assert gpus_with_power(ours) == {str(gpu) for gpu in range(GPUS)} - {"2"}
            assert page.value("clusterwatt_gpus_visible") == GPUS - 1
            stuck = page.value("clusterwatt_collector_stuck_seconds", collector="gpu")
            assert stuck
            until(
                lambda: (
                    (ours.page().value("clusterwatt_collector_stuck_seconds", collector="gpu") or 0) > stuck
                ),
                NOTICE_S,
                "the time it is stuck grows",
            )
            faults.set()
            until(lambda: all_gpus_measured(ours), RECOVER_S, "GPU 2 is back")
        assert ours.page().value("clusterwatt_driver_host_restarts_total") == 0, "the same host went on"


def test_a_driver_that_hangs_as_a_whole_is_told_and_comes_back(tmp_path: Path, faults: Faults) -> None:
    with simulated(tmp_path, faults) as ours:
        until(lambda: all_gpus_measured(ours), RECOVER_S, "eight GPUs")
        with Watch(ours).running():
            faults.set({"call": "*", "hang_s": 0})
            until(lambda: gpu_part_is(ours, 0), NOTICE_S, "the GPU part is down")
            page = ours.page()
            assert page.value("clusterwatt_driver_up") == 0
            assert page.value("clusterwatt_gpus_visible") == 0
            until(lambda: not gpus_with_power(ours), NOTICE_S, "the last readings are stale and gone")
            faults.set()
            until(lambda: all_gpus_measured(ours), RECOVER_S, "eight GPUs again")
            until(lambda: gpu_part_is(ours, 1), NOTICE_S, "the GPU part is up")


def test_g17_a_driver_that_comes_late_is_found(tmp_path: Path, faults: Faults) -> None:
    faults.set({"call": "nvmlInit*", "fail": 9})  # NVML_ERROR_DRIVER_NOT_LOADED
    with simulated(tmp_path, faults) as ours:
        until(
            lambda: ours.page().value("clusterwatt_driver_down_info", reason="not_loaded") == 1,
            NOTICE_S,
            "the driver is not loaded",
        )
        with Watch(ours).running():
            page = ours.page()
            assert gpu_part_is(ours, 0)
            assert page.value("clusterwatt_driver_up") == 0
            assert page.value("clusterwatt_gpus_visible") == 0
            assert gpus_with_power(ours) == set()
            faults.set()
            until(lambda: all_gpus_measured(ours), RECOVER_S, "eight GPUs")
            assert gpu_part_is(ours, 1)


def test_killed_driver_hosts_are_replaced(tmp_path: Path, faults: Faults) -> None:
    with simulated(tmp_path, faults) as ours:
        until(lambda: all_gpus_measured(ours), RECOVER_S, "eight GPUs")
        energy = ours.page().by("gpu", "clusterwatt_gpu_energy_joules_total")
        killed: set[int] = set()

        def kill_until_noticed() -> bool:
            for host in driver_hosts(ours):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(host.pid, signal.SIGKILL)
                    killed.add(host.pid)
            return gpu_part_is(ours, 0)

        with Watch(ours).running():
            until(kill_until_noticed, NOTICE_S, "the GPU part is down")
            until(lambda: all_gpus_measured(ours), RECOVER_S, "eight GPUs again")
            assert gpu_part_is(ours, 1)
        page = ours.page()
        assert page.value("clusterwatt_driver_host_restarts_total") == len(killed)
        after = page.by("gpu", "clusterwatt_gpu_energy_joules_total")
        assert all(after[gpu] >= joules for gpu, joules in energy.items()), "energy fell"
