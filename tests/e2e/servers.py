"""Real processes on the loopback for the end-to-end tests: started, waited for, and always ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.e2e.page import Page

T = TypeVar("T")

START_S = 20.0
END_S = 10.0
POLL_S = 0.02
ANSWER_S = 5.0
AGENT_ADDRESS = re.compile(r"https?://127\.0\.0\.1:\d+")


def until(ask: Callable[[], T | None], within_s: float, what: str) -> T:
    """Ask again and again for something that the outside world brings about; fails when it does not."""
    end_s = time.monotonic() + within_s
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > end_s:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        time.sleep(POLL_S)


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def get(
    url: str, *, accept: str = "*/*", timeout_s: float = ANSWER_S, tls: ssl.SSLContext | None = None
) -> str:
    """The body of a page."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=timeout_s, context=tls) as answer:
        body: bytes = answer.read()
        return body.decode()


def answers(url: str, tls: ssl.SSLContext | None = None) -> bool:
    """Whether somebody answers there with success."""
    try:
        get(url, tls=tls)
    except (urllib.error.URLError, OSError):
        return False
    return True


@dataclass(frozen=True)
class Server:
    """A running process, where it answers, and what it wrote so far."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def get(self, path: str, *, accept: str = "*/*", timeout_s: float = ANSWER_S) -> str:
        """The body of one of its pages."""
        return get(self.url + path, accept=accept, timeout_s=timeout_s)

    def page(self, *, timeout_s: float = ANSWER_S) -> Page:
        """Its metrics."""
        return Page(self.get("/metrics", timeout_s=timeout_s))


@contextlib.contextmanager
def running(
    command: Sequence[str | Path], log: Path, variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, with its output in `log`; the whole group is ended afterwards."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=variables,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes], *, within_s: float = END_S) -> int:
    """SIGTERM, then SIGKILL to all of its group that is left; returns its exit status."""
    process.terminate()
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def wait_for(process: subprocess.Popen[bytes], log: Path, ask: Callable[[], T | None], what: str) -> T:
    """Wait until a process is ready; when it ends instead, fail with what it said."""

    def check() -> T | None:
        if process.poll() is not None:
            raise AssertionError(f"ended with {process.returncode} before {what}")
        return ask()

    try:
        return until(check, START_S, what)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{log.read_text()}") from None


def listening(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where a process of ours that took any free port listens."""

    def address() -> str | None:
        found = AGENT_ADDRESS.search(log.read_text())
        return found.group() if found else None

    return wait_for(process, log, address, "it said where it listens")


@contextlib.contextmanager
def agent(folder: Path, *arguments: str, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """`clusterwatt run` on a free port, with further arguments, once its first page is there.

    `tls`: what to connect with, where it speaks TLS.
    """
    log = folder / "agent.log"
    variables = {name: text for name, text in os.environ.items() if not name.startswith("CLUSTERWATT_")}
    variables["XDG_STATE_HOME"] = str(folder)
    command = [sys.executable, "-m", "clusterwatt", "run", "--listen", "127.0.0.1:0", *arguments]
    with running(command, log, variables) as process:
        url = listening(process, log)
        first = "/metrics" if tls is None else "/readyz"  # where there is TLS there may be a password
        wait_for(process, log, lambda: answers(url + first, tls), "its first page")
        yield Server(process, url, log)


@contextlib.contextmanager
def fleet(folder: Path, *arguments: str) -> Iterator[Server]:
    """`clusterwatt simulate fleet` on a free port, with further arguments, once it listens."""
    log = folder / "fleet.log"
    command = [sys.executable, "-m", "clusterwatt", "simulate", "fleet", "--listen", "127.0.0.1:0"]
    with running([*command, *arguments], log) as process:
        yield Server(process, listening(process, log), log)


@contextlib.contextmanager
def node_exporter(program: Path, folder: Path, *arguments: str) -> Iterator[Server]:
    """Debian's node_exporter, which reads the same kernel as the agent."""
    log, port = folder / "node_exporter.log", free_port()
    command: list[str | Path] = [program, f"--web.listen-address=127.0.0.1:{port}", *arguments]
    with running(command, log) as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(process, log, lambda: answers(f"{url}/metrics"), "its first page")
        yield Server(process, url, log)


@contextlib.contextmanager
def prometheus(
    program: Path,
    folder: Path,
    targets: Mapping[str, str],
    every_s: int,
    options: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """A Prometheus that scrapes the targets, given as job and URL; `options`: further lines of jobs."""
    jobs = "".join(
        f"  - job_name: {job}\n    static_configs: [{{targets: ['{url.partition('://')[2]}']}}]\n"
        + (options or {}).get(job, "")
        for job, url in targets.items()
    )
    times = f"{{scrape_interval: {every_s}s, scrape_timeout: {every_s}s}}"
    with prometheus_with(program, folder, f"global: {times}\nscrape_configs:\n{jobs}") as server:
        yield server


@contextlib.contextmanager
def prometheus_with(program: Path, folder: Path, text: str, *options: str) -> Iterator[Server]:
    """A Prometheus with this configuration, which keeps its series in `folder/tsdb`."""
    log, port, config = folder / "prometheus.log", free_port(), folder / "prometheus.yml"
    config.write_text(text)
    command: list[str | Path] = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        *options,
    ]
    with running(command, log) as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(process, log, lambda: answers(f"{url}/-/ready"), "ready")
        yield Server(process, url, log)


def query(store: Server, expression: str, by: str = "") -> dict[str, float]:
    """An instant query to Prometheus: values by one label."""
    answer = json.loads(store.get("/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
    return {row["metric"].get(by, ""): float(row["value"][1]) for row in answer["data"]["result"]}


def ranges(
    store: Server, selector: str, until_s: float
) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
    """Labels of each series and its samples as scraped, time and value; `selector` ends in [30s]."""
    asked = urllib.parse.urlencode({"query": selector, "time": until_s})
    answer = json.loads(store.get(f"/api/v1/query?{asked}"))
    return [
        (row["metric"], [(float(stamp), float(value)) for stamp, value in row["values"]])
        for row in answer["data"]["result"]
    ]
