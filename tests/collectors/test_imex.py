"""IMEX, against a program that answers in the form that NVIDIA documents; no real one was met."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterwatt.collectors.imex import ImexCollector
from clusterwatt.config.load import load
from clusterwatt.config.model import ImexCollector as Settings
from clusterwatt.learnt import Learnt
from clusterwatt.readings.base import Reading
from clusterwatt.readings.network import Imex
from clusterwatt.wanted import Known, wanted
from tests.clocks import FakeClock


def answer(status: str, *nodes: str) -> str:
    """The state of a domain of some nodes, as `nvidia-imex-ctl -N -j` prints it."""
    return json.dumps(
        {
            "nodes": {
                str(number): {
                    "status": state,
                    "host": f"10.0.0.{number}",
                    "hostname": f"tray-{number}",
                    "version": "580.95.05",
                    "connections": {
                        str(other): {"host": f"10.0.0.{other}", "status": "CONNECTED", "changed": False}
                        for other in range(len(nodes))
                    },
                    "changed": False,
                }
                for number, state in enumerate(nodes)
            },
            "timestamp": "11/30/2026 10:00:00.123",
            "status": status,
        }
    )


def asked(folder: Path, body: str) -> list[Reading]:
    program = folder / "nvidia-imex-ctl"
    program.write_text(f'#!/bin/sh\n[ "$*" = "-N -j" ] || exit 9\n{body}\n')
    program.chmod(0o755)
    return list(ImexCollector(Settings(command=str(program), timeout_seconds=0.5)).collect())


@pytest.mark.parametrize(
    ("text", "ready"),
    [
        (answer("UP", "READY", "READY"), 1.0),
        (answer("DEGRADED", "READY", "UNAVAILABLE"), 0.0),
        (answer("DOWN", "UNAVAILABLE", "UNAVAILABLE"), 0.0),
        (answer("A_STATE_OF_LATER_VERSIONS", "READY"), 0.0),
        (answer("UP"), 0.0),
    ],
)
def test_a_domain_is_ready_when_it_is_complete(text: str, ready: float, tmp_path: Path) -> None:
    assert asked(tmp_path, f"cat <<'END'\n{text}\nEND") == [Imex(ready)]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("echo 'Failed to open /etc/nvidia-imex/config.cfg' >&2; exit 1", "ended with 1: Failed to open"),
        ("echo 'Usage: nvidia-imex-ctl'", "printed no domain"),  # before it knew -j
        ("echo '{}'", "printed no domain"),
        ("echo '[[[['", "printed no domain"),
        ("exec sleep 60", "took more than"),
    ],
)
def test_what_the_program_does_not_tell_is_a_failure_and_not_0(body: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=says):
        asked(tmp_path, body)


@pytest.mark.parametrize(("settings", "asks"), [([], False), (["collectors.imex.enabled=true"], True)])
def test_nobody_asks_who_is_not_told_to(settings: list[str], *, asks: bool) -> None:
    config = load(None, {}, settings).config
    assert (
        "imex"
        in {one.name for one in wanted(config, FakeClock(), Known(lambda: None, Learnt(None, FakeClock())))}
    ) is asks


def test_a_domain_that_is_told_counts_whatever_the_exit_status(tmp_path: Path) -> None:
    text = answer("DOWN", "UNAVAILABLE")
    assert asked(tmp_path, f"printf '%s' '{text}'; exit 1") == [Imex(0.0)]
