"""The reporter against a server of plain sockets, as a training process uses it."""

from __future__ import annotations

import ast
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterwatt.training import Reporter, reporter
from tests.training.agents import Agent, Handler, TcpServer, UnixServer, serving


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """Listens at the socket `agent.sock`."""
    with serving(UnixServer(str(tmp_path / "agent.sock"), Handler)) as found:
        yield found


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*reporter.RANK_VARIABLES, "WORLD_SIZE", "SLURM_JOB_ID", reporter.ADDRESS_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def make(tmp_path: Path, **settings: Any) -> Reporter:
    return Reporter("a", f"unix:{tmp_path}/agent.sock", every_seconds=0.01, **settings)


def scalars(agent: Agent) -> dict[str, float]:
    return {tag: value for body in agent.bodies for tag, value in body.get("scalars", {}).items()}


def test_what_is_logged_arrives(agent: Agent, tmp_path: Path) -> None:
    began_s = time.time()
    with make(tmp_path, framework="PyTorch", flops_per_token=4.8e10, precision="bf16", gpus=8) as told:
        told.log({"train/lr": 0.1}, step=0, tokens=0, loss=2.5)
    (body,) = agent.bodies
    assert began_s <= body.pop("time") <= time.time()
    assert body == {
        "run": "a",
        "framework": "PyTorch",
        "flops_per_token": 4.8e10,
        "precision": "bf16",
        "gpus": 8,
        "step": 0,
        "tokens": 0,
        "scalars": {"train/lr": 0.1, "loss": 2.5},
    }
    assert agent.heads[0]["Content-Type"] == "application/json"
    assert agent.heads[0]["path"] == "/api/v1/training"
    assert (told.sent, told.dropped) == (1, 0)


def test_over_http_with_the_job_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    server = TcpServer(("127.0.0.1", 0), Handler)
    with serving(server) as agent:
        monkeypatch.setenv(reporter.ADDRESS_VARIABLE, f"http://127.0.0.1:{server.server_address[1]}")
        with Reporter("a") as told:
            told.log(loss=1)
        agent.wait_for(lambda: agent.bodies)
    assert agent.bodies[0]["job"] == "slurm/4711"


def test_phases_keep_their_order_and_their_times(agent: Agent, tmp_path: Path) -> None:
    """However quickly one follows another, none is lost: a checkpoint may take less than a second."""
    with make(tmp_path) as told:
        told.set_phase("warmup")
        told.set_phase("train")
        told.log(step=1)
        with told.phase("checkpoint"):
            told.log(loss=1)
        told.log(step=2)
    phases = [(body["phase"], body["phase_time"]) for body in agent.bodies]
    assert list(dict.fromkeys(phase for phase, _ in phases)) == ["warmup", "train", "checkpoint"]
    assert phases[-1][0] == "train"
    assert [began_s for _, began_s in phases] == sorted(began_s for _, began_s in phases)
    assert all(body["phase_time"] <= body["time"] for body in agent.bodies)
    assert next(body for body in agent.bodies if "scalars" in body)["phase"] == "checkpoint"


def test_a_phase_ends_with_an_error_in_it(agent: Agent, tmp_path: Path) -> None:
    with make(tmp_path) as told, pytest.raises(KeyError), told.phase("eval"):
        raise KeyError
    assert [body["phase"] for body in agent.bodies] == ["eval", "train"]


def test_while_the_agent_is_away_the_newest_is_kept(tmp_path: Path) -> None:
    told = make(tmp_path)
    for step in range(10_000):
        told.log(step=step, loss=float(step), tokens=step * 100)
    assert len(told._waiting) < 3
    with serving(UnixServer(str(tmp_path / "agent.sock"), Handler)) as agent:
        agent.wait_for(lambda: agent.bodies and agent.bodies[-1].get("step") == 9_999)
        told.close()
    assert scalars(agent) == {"loss": 9_999.0}
    assert told.dropped == 0


def test_what_has_no_room_is_dropped_and_counted(tmp_path: Path) -> None:
    told = make(tmp_path)
    for _ in range(200):
        with told.phase("checkpoint"):
            pass
    assert len(told._waiting) <= reporter.MAX_WAITING
    told.close()
    assert told.dropped == 400
    assert told.sent == 0


def test_values_that_are_not_finite_are_counted_each(tmp_path: Path) -> None:
    told = make(tmp_path)
    for loss in (float("nan"), float("inf"), 1.0, 10**400, float("nan")):
        told.log(loss=loss, lr=0.5)
    with serving(UnixServer(str(tmp_path / "agent.sock"), Handler)) as agent:
        agent.wait_for(lambda: sum(body.get("nonfinite", {}).get("loss", 0) for body in agent.bodies) == 4)
        told.close()
    assert scalars(agent)["lr"] == 0.5
    assert "loss" not in agent.bodies[-1]["scalars"]


@pytest.mark.parametrize("value", ["text", None, object(), b"1", [1, 2]])
def test_what_is_no_number_is_left_out(agent: Agent, tmp_path: Path, value: object) -> None:
    with make(tmp_path) as told:
        told.log({"x": value}, step=value, tokens=value, loss=1.0)  # type: ignore[arg-type]  # that is the point
    assert scalars(agent) == {"loss": 1.0}
    assert "step" not in agent.bodies[0]


def test_nothing_is_raised_into_the_training(
    agent: Agent, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Sly:
        def __float__(self) -> float:
            raise RuntimeError("no number today")

    with caplog.at_level(logging.WARNING), make(tmp_path) as told:
        told.log(loss=Sly())
        told.log(loss=Sly())
        told.set_phase("rest")
        told.log(loss=1.0)
    assert scalars(agent) == {"loss": 1.0}
    assert [record.message for record in caplog.records] == [
        "a value cannot be reported: RuntimeError('no number today')"
    ]


@pytest.mark.parametrize("address", ["unix:/nowhere/at/all", "http://127.0.0.1:1", "ftp://x", "nonsense"])
def test_an_agent_that_is_not_there_costs_nothing(address: str, caplog: pytest.LogCaptureFixture) -> None:
    began_s = time.monotonic()
    with Reporter("a", address, every_seconds=0.01) as told:
        told.log(loss=1.0)
    assert time.monotonic() - began_s < reporter.CLOSE_WITHIN_S
    assert told.dropped == 1
    assert "does not answer" in caplog.text


def test_a_report_that_is_refused_is_not_sent_again(
    agent: Agent, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent.status = 400
    with make(tmp_path) as told:
        told.log(loss=1.0)
        agent.wait_for(lambda: agent.bodies)
    assert len(agent.bodies) == 1
    assert (told.sent, told.dropped) == (0, 1)
    assert "refuses a report (400)" in caplog.text


@pytest.mark.parametrize("status", [429, 503])
def test_a_report_that_comes_too_early_is_sent_again(agent: Agent, tmp_path: Path, status: int) -> None:
    agent.status = status
    told = make(tmp_path)
    told.log(loss=1.0)
    agent.wait_for(lambda: agent.bodies)
    agent.status = 204
    agent.wait_for(lambda: len(agent.bodies) > 1)
    told.close()
    assert agent.bodies[0] == agent.bodies[-1]
    assert (told.sent, told.dropped) == (1, 0)


@pytest.mark.parametrize("name", reporter.RANK_VARIABLES)
def test_only_the_first_rank_reports(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    with make(tmp_path) as silent:
        silent.log(loss=1)
    with make(tmp_path, enabled=True) as told:
        told.log(loss=2)
    assert [body["scalars"] for body in agent.bodies] == [{"loss": 2}]


def test_torchrun_states_the_number_of_gpus(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "16")
    with make(tmp_path) as told:
        told.log(loss=1)
    assert agent.bodies[0]["gpus"] == 16


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # it is the point
def test_a_forked_worker_neither_reports_nor_hangs(agent: Agent, tmp_path: Path) -> None:
    with make(tmp_path) as told:
        with told._changed:  # as a data loader forks in the middle of whatever else goes on
            child = os.fork()
            if child == 0:
                told.log(loss=5)
                with told.phase("eval"):
                    pass
                told.close()
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        told.log(loss=1)
    assert scalars(agent) == {"loss": 1}


def test_what_is_left_is_sent_when_the_interpreter_ends(agent: Agent, tmp_path: Path) -> None:
    """As a file of its own, in an interpreter that has nothing else of ours."""
    shutil.copy(reporter.__file__, tmp_path / "copied.py")
    script = f"from copied import Reporter; Reporter('a', 'unix:{tmp_path}/agent.sock').log(loss=3)"
    subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = ['{tmp_path}']; {script}"], check=True
    )
    assert scalars(agent) == {"loss": 3}


def test_importing_it_brings_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; from clusterwatt.training import Reporter; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    )
    package = Path(reporter.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = ['{package}']; {code}"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() in {"['__main__', 'clusterwatt']", "['clusterwatt']"}


def test_an_older_python_understands_it() -> None:
    """Training images are older than agents."""
    source = Path(reporter.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    unions = [node for node in ast.walk(tree) if isinstance(node, ast.Match)]
    assert not unions
    assert "from __future__ import annotations" in source
