"""Network interfaces of a real kernel, in a network namespace that is made for one test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

IN_NAMESPACE = ("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc")


@pytest.fixture(scope="module")
def namespace() -> tuple[str, ...]:
    """The command that runs another one where it may make interfaces; skips where that is not allowed."""
    tools = [name for name in ("unshare", "ip", "mount") if shutil.which(name) is None]
    if tools:
        pytest.skip(f"not here: {', '.join(tools)}")
    probe = subprocess.run(
        [
            *IN_NAMESPACE,
            "sh",
            "-c",
            "mount -t sysfs none /sys && ip link add probe0 type veth peer name probe1",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        pytest.skip(f"no namespaces of our own here: {probe.stderr.strip()}")
    return IN_NAMESPACE


def run(namespace: tuple[str, ...], script: str) -> str:
    prelude = """
        import subprocess
        from clusterwatt.clock import SystemClock
        from clusterwatt.collectors.ethernet import EthernetCollector
        from clusterwatt.config.model import EthernetCollector as Settings
        from clusterwatt.readings.base import Failure
        from clusterwatt.readings.network import Network
        from clusterwatt.sysfs import Files

        def ip(words):
            subprocess.run(["ip", *words.split()], check=True)

        subprocess.run(["mount", "-t", "sysfs", "none", "/sys"], check=True)
        clock = SystemClock()
        collector = EthernetCollector(Files("/", clock), Settings(), clock)
    """
    code = textwrap.dedent(prelude) + textwrap.dedent(script)
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [*namespace, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_g31_a_veth_that_is_removed_in_the_middle_of_a_pass(namespace: tuple[str, ...]) -> None:
    out = run(
        namespace,
        """
        ip("link add keep0 type veth peer name keep1")
        ip("link add gone0 type veth peer name gone1")
        for name in ("keep0", "keep1", "gone0", "gone1"):
            ip(f"link set {name} up")
        list(collector.collect())  # descriptors of all four are kept from here on
        readings = []
        for reading in collector.collect():
            if not readings:
                ip("link del gone0")  # takes gone1 along
            readings.append(reading)
        first = readings[0].device
        seen = {r.device for r in readings if isinstance(r, Network)}
        print(seen - {first} == {"keep0", "keep1"} - {first})
        print([r for r in readings if isinstance(r, Failure)])
        print(sorted(r.device for r in collector.collect() if isinstance(r, Network)))
        """,
    ).splitlines()
    assert out == ["True", "[]", "['keep0', 'keep1']"]


def test_a_shut_interface_a_bridge_and_its_port(namespace: tuple[str, ...]) -> None:
    out = run(
        namespace,
        """
        ip("link add eth7 type veth peer name peer7")
        ip("link add shut0 type veth peer name shut1")
        ip("link add br7 type bridge")
        ip("link set eth7 master br7")
        for name in ("eth7", "peer7", "br7"):
            ip(f"link set {name} up")
        readings = list(collector.collect())
        for reading in readings:
            if isinstance(reading, Network):
                print(reading.device, reading.kind, reading.up, reading.link_rate_bytes_per_second)
        print([reading for reading in readings if isinstance(reading, Failure)])
        """,
    ).splitlines()
    assert sorted(out[:-1]) == [
        "br7 bridge 1.0 None",
        "eth7 virtual 1.0 None",
        "peer7 virtual 1.0 None",
        "shut0 virtual 0.0 None",
        "shut1 virtual 0.0 None",
    ]
    assert out[-1] == "[]"
