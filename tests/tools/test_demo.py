"""`make demo`, on a small cluster: it comes up, what it names answers, and after Ctrl-C nothing is left."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.servers import get, until
from tests.tools.demo import ROOT, main

COMMAND = [sys.executable, "-m", "tests.tools.demo", "--nodes=2", "--gpus=2", "--scenario="]


def free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    for first in range(21_000, 29_000, 7):
        probes = [socket.socket() for _ in range(count)]
        try:
            for place, probe in enumerate(probes):
                probe.bind(("127.0.0.1", first + place))
        except OSError:
            continue
        else:
            return first
        finally:
            for probe in probes:
                probe.close()
    raise AssertionError("no free ports")


@pytest.mark.e2e
def test_it_comes_up_and_leaves_nothing_behind(
    tmp_path: Path, promtool: Path, prometheus_program: Path
) -> None:
    said, first = tmp_path / "said", free_ports(4)
    with said.open("wb") as output:
        demo = subprocess.Popen(
            [*COMMAND, "--past=1", f"--port={first}"],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT / "agent")},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: "Ctrl-C" in said.read_text() or demo.poll() is not None, 120.0, "it says what to open")
        assert demo.poll() is None, said.read_text()
        started = psutil.Process(demo.pid).children(recursive=True)
        assert started
        pages = re.findall(r"http://127\.0\.0\.1:\d+\S*", said.read_text())
        assert len(pages) >= 2
        for page in pages:
            assert get(page)
        store = f"http://127.0.0.1:{first + 1}/api/v1"
        until(lambda: '"1"' in get(f"{store}/query?query=min(up)"), 60.0, "every node is scraped")
        hour_ago_s = int(time.time()) - 1_800
        assert '"2"' in get(f"{store}/query?query=sum(up)&time={hour_ago_s}")  # the past is there too
    finally:
        demo.send_signal(signal.SIGINT)
        assert demo.wait(40) == 0, said.read_text()
    assert not [process for process in started if process.is_running()]
    assert [path.name for path in tmp_path.iterdir()] == ["said"]


def test_a_cluster_too_small_for_the_scenario_is_told_the_fewest_nodes_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--nodes=8"]) == 1
    said = capsys.readouterr()
    assert not said.out
    assert said.err == (
        "make demo: the scenario everything needs 16 nodes or more, not 8; --scenario= plays none\n"
    )


def test_a_scenario_that_no_number_of_nodes_mends_is_told_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--gpus=2"]) == 1
    assert "expected a GPU from 0 to 1" in capsys.readouterr().err
    assert main(["--scenario=nothing"]) == 1
    assert "no such file; shipped scenarios: everything, " in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        try:
            assert main(["--past=0", f"--port={port}"]) == 1
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    assert f"127.0.0.1:{port} for fleet: Address already in use" in capsys.readouterr().err
