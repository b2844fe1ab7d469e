"""A training process tells the node's agent how it goes. Copy this file, or import it; it needs nothing else.

    reporter = Reporter("llama-7b", framework="PyTorch", precision="bf16", flops_per_token=4.84e10)
    reporter.log(step=10, tokens=5_242_880, loss=2.31)
    with reporter.phase("checkpoint"):
        save()

It never waits for the agent and never raises into the training: a thread of its own sends what has gathered,
once a second. While the agent is away the newest values are kept, and what no longer has room is counted.
Only rank 0 reports. It runs on Python 3.8 and later. docs/TRAINING.md describes what is sent.
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import json
import logging
import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

log = logging.getLogger("clusterwatt.training")

DEFAULT_ADDRESS = "unix:/run/clusterwatt/training/agent.sock"
PATH = "/api/v1/training"
ADDRESS_VARIABLE = "CLUSTERWATT_REPORT_TO"
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
PHASES = ("warmup", "train", "eval", "checkpoint")

MAX_WAITING = 64  # reports: each change of phase begins one, what is logged within a phase goes into one
MAX_SCALARS = 256  # of one report, as the agent takes them
MAX_NONFINITE = 1_000  # of one tag, likewise
TIMEOUT_S = 2.0
LONGEST_PAUSE_S = 30.0
CLOSE_WITHIN_S = 2.0
TOO_MANY_REQUESTS = 429


class Reporter:
    """Reports one run.

    `address`: `unix:/path` or `http://host:port`; by default the variable CLUSTERWATT_REPORT_TO, else the
    agent's usual socket. `precision`: bf16, fp16, tf32, fp8, fp4, fp32, fp64_tensor. `gpus`: of the whole
    run; by default the world size that torchrun states. With these two and `flops_per_token` the agent can
    tell the model FLOP utilisation. `job`: where the agent cannot see it, as `slurm/4711`; over the socket it
    sees it itself. `enabled`: None for rank 0 only.
    """

    def __init__(
        self,
        run: str,
        address: str | None = None,
        *,
        framework: str = "",
        flops_per_token: float | None = None,
        precision: str = "",
        gpus: int | None = None,
        job: str = "",
        every_seconds: float = 1.0,
        enabled: bool | None = None,
    ) -> None:
        self.dropped = 0  # reports that had no room, or that the agent refused
        self.sent = 0
        self._enabled = _is_first_rank() if enabled is None else enabled
        self._address = address or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
        if not job and not self._address.startswith("unix:"):
            job = _slurm_job()
        said: dict[str, Any] = {
            "run": str(run),
            "job": job,
            "framework": framework,
            "flops_per_token": _number(flops_per_token),
            "precision": precision,
            "gpus": _world_size() if gpus is None else _number(gpus),
        }
        self._same = {key: value for key, value in said.items() if value not in ("", None)}
        self._every_s = every_seconds
        self._waiting: deque[dict[str, Any]] = deque()
        self._phase: dict[str, Any] = {}
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._closing = False
        self._told = False
        self._thread: threading.Thread | None = None
        if self._enabled:
            self._start()

    def log(
        self,
        scalars: Mapping[str, Any] | None = None,
        *,
        step: float | None = None,
        tokens: float | None = None,
        **more: Any,
    ) -> None:
        """Note the newest values; returns at once.

        `tokens`: of the whole run, all ranks, since its very beginning. A scalar is a number or what `float`
        takes. One on a GPU makes the training wait for it, as it does with every other logger.
        """
        if not self._reports():
            return
        try:
            values, nonfinite = _parted({**(scalars or {}), **more})
            report: dict[str, Any] = {"time": time.time(), "scalars": values, "nonfinite": nonfinite}
            for key, value in (("step", step), ("tokens", tokens)):
                number = None if value is None else _number(value)
                if number is not None and math.isfinite(number):
                    report[key] = number
            with self._changed:
                report.update(self._phase)
                self._add(report)
        except Exception as error:  # a training that runs for weeks does not end for a number
            self._tell(f"a value cannot be reported: {error!r}")

    def set_phase(self, phase: str) -> None:
        """Note that warmup, train, eval or checkpoint begins now."""
        if not self._reports():
            return
        if phase not in PHASES:
            self._tell(f"no phase {phase!r}; there are {', '.join(PHASES)}")
            return
        with self._changed:
            if phase != self._phase.get("phase"):
                now_s = time.time()
                self._phase = {"phase": phase, "phase_time": now_s}
                self._add({"time": now_s, "scalars": {}, "nonfinite": {}, **self._phase}, apart=True)

    @contextlib.contextmanager
    def phase(self, phase: str) -> Iterator[None]:
        """A phase for the length of a block; then the one before it goes on, `train` if there was none."""
        before = self._phase.get("phase", "train")
        self.set_phase(phase)
        try:
            yield
        finally:
            self.set_phase(before)

    def close(self, within_seconds: float = CLOSE_WITHIN_S) -> None:
        """Send what is left, for so long at most, and end; also called when the interpreter ends."""
        if not self._reports():
            return
        with self._changed:
            self._closing = True
            self._changed.notify()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(within_seconds)
        atexit.unregister(self.close)

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="clusterwatt-reporter", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # the process may have no more threads
            self._enabled = False
            self._tell(f"nothing is reported: {error}")
        else:
            atexit.register(self.close)

    def _reports(self) -> bool:
        """Whether anybody sends: not after a fork, where the thread is missing and the lock may be held."""
        return self._enabled and not self._closing and os.getpid() == self._pid

    def _add(self, report: dict[str, Any], *, apart: bool = False) -> None:
        """Gather a report into the one that waits last, unless it has to stand by itself."""
        last = self._waiting[-1] if self._waiting else None
        if apart or last is None:
            self._waiting.append(report)
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popleft()
                self.dropped += 1
            self._changed.notify()
            return
        scalars = {**last["scalars"], **report["scalars"]}
        nonfinite = dict(last["nonfinite"])
        for tag, times in report["nonfinite"].items():
            nonfinite[tag] = min(nonfinite.get(tag, 0) + times, MAX_NONFINITE)
            scalars.pop(tag, None)  # the newest value is none
        last.update(report, scalars=_first(scalars), nonfinite=_first(nonfinite))

    def _run(self) -> None:
        """Send what waits, then rest; longer and longer while the agent does not answer."""
        pause_s = self._every_s
        while self._wait_for_work():
            taken = self._drain()
            pause_s = self._every_s if taken else min(2 * pause_s, LONGEST_PAUSE_S)
            with self._changed:
                if not self._closing:
                    self._changed.wait_for(lambda: self._closing, pause_s)
                elif not taken:
                    self.dropped += len(self._waiting)
                    return

    def _wait_for_work(self) -> bool:
        """Whether there is something to send; False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return bool(self._waiting)

    def _drain(self) -> bool:
        """Send all that waits; False when the agent did not take it, so that it has to be tried again."""
        while True:
            with self._changed:
                if not self._waiting:
                    return True
                report = self._waiting.popleft()
            taken = False
            try:
                taken = self._send(report)
            except Exception as error:  # also what no library documents: this thread is not to end
                self._tell(f"the agent does not answer at {self._address}: {error}; it is tried again")
            if not taken:
                with self._changed:
                    if len(self._waiting) < MAX_WAITING:
                        self._waiting.appendleft(report)
                    else:
                        self.dropped += 1
                return False

    def _send(self, report: Mapping[str, Any]) -> bool:
        said = {key: value for key, value in {**self._same, **report}.items() if value != {}}
        connection = _connection(self._address)
        try:
            body = json.dumps(said, allow_nan=False).encode()
            connection.request("POST", PATH, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            reply = answer.read(4096).decode("utf-8", "replace").strip()
        finally:
            connection.close()
        if answer.status == TOO_MANY_REQUESTS or answer.status >= 500:
            return False
        if answer.status < 300:
            self.sent += 1
        else:
            self.dropped += 1
            self._tell(f"the agent refuses a report ({answer.status}): {reply}")
        return True

    def _tell(self, message: str) -> None:
        """Say it once: what is wrong with one report is wrong with the next ten thousand."""
        if not self._told:
            self._told = True
            log.warning("%s", message)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connection(address: str) -> http.client.HTTPConnection:
    if address.startswith("unix:"):
        return _UnixConnection(address[len("unix:") :], TIMEOUT_S)
    parts = urlsplit(address)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("an address is unix:/path or http://host:port")
    return http.client.HTTPConnection(parts.hostname, parts.port or 10777, timeout=TIMEOUT_S)


def _parted(scalars: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, int]]:
    """Finite values, and how many of each tag were not."""
    values: dict[str, float] = {}
    nonfinite: dict[str, int] = {}
    for tag, value in scalars.items():
        number = _number(value)
        if number is None:
            continue
        if math.isfinite(number):
            values[str(tag)] = number
        else:
            nonfinite[str(tag)] = 1
    return values, nonfinite


def _number(value: Any) -> float | None:
    """The number; None for what is none: a logger is given texts too."""
    if value is None or isinstance(value, (str, bytes)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def _is_first_rank() -> bool:
    return next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0") == "0"


def _world_size() -> float | None:
    """GPUs of the run as torchrun states them: one for each of its processes."""
    size = os.environ.get("WORLD_SIZE", "")
    return float(size) if "RANK" in os.environ and size.isdigit() and len(size) < 10 else None


def _first(named: dict[str, Any]) -> dict[str, Any]:
    """As many of them as the agent takes."""
    return named if len(named) <= MAX_SCALARS else dict(list(named.items())[:MAX_SCALARS])


def _slurm_job() -> str:
    number = os.environ.get("SLURM_JOB_ID", "")
    return f"slurm/{number}" if number else ""
