"""A small training that is real: a linear model learns by gradient descent, in NumPy.

    python -m tests.e2e.training_loop FOLDER tensorboard|tensorboardX FIRST_STEP STEPS

It logs as its framework would, writes each logged value to standard output too, as JSON, and then waits to be
ended: a file is closed by nobody when a job is killed.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from itertools import chain
from pathlib import Path

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402 - its import, and that of the writers, may warn

Log = Callable[[str, float, int], None]
BATCH, SEQUENCE = 32, 8


def with_tensorboard_x(folder: str) -> tuple[Log, Callable[[], None]]:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(folder, flush_secs=1)

    def log(tag: str, value: float, step: int) -> None:
        writer.add_scalar(tag, value, step)

    return log, writer.flush


def with_tensorboard(folder: str) -> tuple[Log, Callable[[], None]]:
    """As Keras writes: tensors of the plugin `scalars`."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(folder, flush_secs=1)

    def log(tag: str, value: float, step: int) -> None:
        writer.add_event(Event(wall_time=time.time(), step=step, summary=scalar_pb(tag, value)))

    return log, writer.flush


def train(log: Log, first_step: int, steps: int) -> None:
    """Gradient descent on a problem whose answer is known."""
    dice = np.random.default_rng(first_step)
    truth = np.arange(SEQUENCE) / SEQUENCE
    weights = np.zeros(SEQUENCE)
    for step in range(first_step, first_step + steps):
        began_s = time.perf_counter()
        inputs = dice.normal(size=(BATCH, SEQUENCE))
        errors = inputs @ weights - inputs @ truth
        gradient = 2 * inputs.T @ errors / BATCH
        rate = 0.1 / (1 + step / 1000)
        weights -= rate * gradient
        values = {
            "train/loss": float(np.mean(errors**2)),
            "train/grad_norm": float(np.linalg.norm(gradient)),
            "train/learning_rate": rate,
            "train/num_input_tokens_seen": float(step * BATCH * SEQUENCE),
            "train/step_time": time.perf_counter() - began_s,
        }
        if step % 10 == 0:
            values["eval/loss"] = float(np.mean((weights - truth) ** 2))
        for tag, value in values.items():
            log(tag, value, step)
    print(json.dumps({"step": step, **values}), flush=True)


def main() -> None:
    folder, writer, first_step, steps = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    log, flush = {"tensorboard": with_tensorboard, "tensorboardX": with_tensorboard_x}[writer](folder)
    for line in chain([""], sys.stdin):  # one stretch of steps, then one more for each line
        if line.strip() == "nan":
            log("train/loss", float("nan"), int(first_step) + int(steps))
            print("{}", flush=True)
        elif line.strip():
            train(log, int(line), int(steps))
        else:
            train(log, int(first_step), int(steps))
        flush()


if __name__ == "__main__":
    main()
