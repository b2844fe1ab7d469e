"""The counters file of /dcgm/metrics at start and at reload."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterwatt.app import Agent
from clusterwatt.cli import main
from clusterwatt.clock import SystemClock
from clusterwatt.config.model import Collectors, Config, DcgmPage, Expose, GpuCollector
from clusterwatt.config.problems import ConfigError

WELL = "DCGM_FI_DEV_GPU_TEMP, gauge, Heat.\n"
WRONG = f"# Format\n\n{WELL}DCGM_FI_DEV_GPU_HEAT, gauge, Heat.\n"


def config(path: Path | str = "", *, enabled: bool = True) -> Config:
    dcgm = DcgmPage(enabled=enabled, counters_file=str(path))
    return Config(collectors=Collectors(gpu=GpuCollector(enabled=False)), expose=Expose(dcgm=dcgm))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "counters.csv"
    file.write_text(WELL, encoding="utf-8")
    return file


@pytest.fixture
def agent(file: Path) -> Iterator[Agent]:
    agent = Agent(config(file), SystemClock())
    yield agent
    agent.stop()


def test_g43_a_wrong_file_keeps_the_agent_from_starting(file: Path) -> None:
    file.write_text(WRONG, encoding="utf-8")
    with pytest.raises(ConfigError) as wrong:
        Agent(config(file), SystemClock())
    (line,) = str(wrong.value).splitlines()
    assert line.startswith(f'{file}:4: expose.dcgm.counters_file: unknown counter "DCGM_FI_DEV_GPU_HEAT"')


def test_at_a_reload_a_wrong_file_leaves_everything_as_it_was(agent: Agent, file: Path) -> None:
    before = agent._dcgm, agent.config
    file.write_text(WRONG, encoding="utf-8")
    with pytest.raises(ConfigError):
        agent.apply(config(file))
    assert (agent._dcgm, agent.config) == before


def test_a_reload_reads_the_file_anew_and_keeps_what_did_not_change(agent: Agent, file: Path) -> None:
    """What is kept has the earlier snapshots that rates need."""
    before = agent._dcgm
    file.write_text(f"# a comment\n{WELL}", encoding="utf-8")
    agent.apply(config(file))
    assert agent._dcgm is before
    file.write_text(WELL + "DCGM_FI_DEV_POWER_USAGE, gauge, Power.\n", encoding="utf-8")
    agent.apply(config(file))
    assert agent._dcgm is not before
    agent.apply(config(file, enabled=False))
    assert agent._dcgm is None


def test_what_is_left_out_is_said_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(f"{WELL}DCGM_EXP_P2P_STATUS, counter, Peers.\n", encoding="utf-8")
    with caplog.at_level(logging.WARNING, "clusterwatt"):
        agent = Agent(config(file), SystemClock())
        agent.apply(config(file))
        agent.stop()
    (said,) = [record.getMessage() for record in caplog.records if "P2P" in record.getMessage()]
    assert said.startswith(f"{file}:2: DCGM_EXP_P2P_STATUS is left out: ")


@pytest.mark.parametrize("command", ["check-config", "once"])
def test_the_command_line_says_what_is_wrong_with_the_file(
    command: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(WRONG, encoding="utf-8")
    assert main([command, "--set", f"expose.dcgm.counters_file={file}"]) == 2
    assert capsys.readouterr().err.startswith(f"{file}:4: expose.dcgm.counters_file: unknown counter ")


def test_check_config_tells_of_counters_that_are_left_out(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(f"{WELL}DCGM_EXP_P2P_STATUS, counter, Peers.\n", encoding="utf-8")
    assert main(["check-config", "--set", f"expose.dcgm.counters_file={file}"]) == 0
    assert f"clusterwatt: {file}:2: DCGM_EXP_P2P_STATUS is left out" in capsys.readouterr().err
