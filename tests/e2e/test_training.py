"""A real training writes event files while the agent follows them, and Prometheus has what it wrote."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.servers import Server, agent, prometheus, query, until

pytestmark = pytest.mark.e2e

WITHIN_S = 20.0
WRITTEN_AS = {
    "train/loss": 'clusterwatt_training_loss{split="train"}',
    "eval/loss": 'clusterwatt_training_loss{split="eval"}',
    "train/grad_norm": "clusterwatt_training_gradient_norm",
    "train/learning_rate": "clusterwatt_training_learning_rate",
    "train/num_input_tokens_seen": "clusterwatt_training_tokens_total",
    "step": "clusterwatt_training_step",
}


class Training:
    """The process that trains."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.logged: dict[str, float] = self._answer()

    def more(self, first_step: int) -> dict[str, float]:
        """Train on from a step; returns what was logged last."""
        return self._ask(str(first_step))

    def diverge(self) -> None:
        self._ask("nan")

    def _ask(self, line: str) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        self.logged = self._answer()
        return self.logged

    def _answer(self) -> dict[str, float]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], WITHIN_S)
        assert ready, "the training does not answer"
        line = self.process.stdout.readline()
        assert line, "the training ended"
        answer: dict[str, float] = json.loads(line)
        return answer


@contextlib.contextmanager
def training(folder: Path, writer: str, first_step: int, steps: int = 50) -> Iterator[Training]:
    command = [
        sys.executable,
        "-m",
        "tests.e2e.training_loop",
        str(folder),
        writer,
        str(first_step),
        str(steps),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Training(process)
        finally:
            process.kill()


def in_file(tag: str, value: float) -> float:
    """A value as the file has it: a single."""
    return value if tag == "step" else float(np.float32(value))


def differences(store: Server, run: str, logged: dict[str, float]) -> dict[str, object]:
    """What Prometheus has otherwise than the training has logged."""
    wrong: dict[str, object] = {}
    for tag, value in logged.items():
        if tag in WRITTEN_AS:
            got = query(store, WRITTEN_AS[tag], by="run").get(run)
            if got != in_file(tag, value):
                wrong[tag] = (got, value)
    return wrong


@pytest.mark.parametrize("writer", ["tensorboardX", "tensorboard"])
def test_prometheus_has_what_a_real_training_wrote_also_after_it_was_killed_and_resumed(
    writer: str, prometheus_program: Path, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"  # is not there yet
    setting = f"training.directories=[{logs}]"
    with (
        agent(tmp_path, "--simulate", "h100", "--set", setting, "--set", "training.every_seconds=1") as ours,
        prometheus(prometheus_program, tmp_path, {"ours": ours.url}, every_s=1) as store,
    ):
        with training(logs / "llama" / "run1", writer, 1) as first:

            def agrees() -> bool:
                return not differences(store, "llama/run1", first.logged)

            until(agrees, WITHIN_S, f"Prometheus has {first.logged}")
            assert query(store, "clusterwatt_training_info", by="framework") == {"huggingface": 1.0}
            first.more(51)
            until(agrees, WITHIN_S, f"Prometheus has {first.logged}")
        # Killed: the steps since its checkpoint at 81 are done again, in a file of its own.
        with training(logs / "llama" / "run1", writer, 81, steps=10) as second:
            last = dict(second.logged)
            tokens = last.pop("train/num_input_tokens_seen")
            until(lambda: not differences(store, "llama/run1", last), WITHIN_S, f"Prometheus has {last}")
            assert last["step"] == 90
            shown = query(store, "clusterwatt_training_tokens_total", by="run")["llama/run1"]
            assert shown == first.logged["train/num_input_tokens_seen"] > tokens  # repeated tokens are none
            nonfinite = 'clusterwatt_training_nonfinite_total{tag="loss"}'
            assert query(store, nonfinite, by="run") == {"llama/run1": 0.0}
            second.diverge()
            until(
                lambda: query(store, nonfinite, by="run") == {"llama/run1": 1.0},
                WITHIN_S,
                "the value that is not a number is counted",
            )
            loss = WRITTEN_AS["train/loss"]
            until(lambda: query(store, loss, by="run") == {}, WITHIN_S, "no loss while the newest is NaN")
            last = second.more(101)
            until(lambda: not differences(store, "llama/run1", last), WITHIN_S, f"Prometheus has {last}")
        page = ours.page()
        assert page.value("clusterwatt_collector_up", collector="training") == 1
        assert not list(page.series("clusterwatt_collector_errors_total", collector="training"))
