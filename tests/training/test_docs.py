"""docs/TRAINING.md: its examples run, its settings load, its figures are right.

The frameworks are stood in for by modules that have the classes and call the hooks as they are documented, in
the order in which they are documented to come.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from clusterwatt.attribution.efficiency import REMEDIES
from clusterwatt.attribution.runs import METRICS
from clusterwatt.config.load import load
from clusterwatt.meters.training import flops_per_token
from clusterwatt.training import reporter
from clusterwatt.training.collector import METRICS as OF_RUNS
from clusterwatt.training.report import KEYS, PHASES, parse
from tests.machines import REPOSITORY
from tests.training.agents import Agent, Handler, UnixServer, serving

TEXT = (REPOSITORY / "docs" / "TRAINING.md").read_text(encoding="utf-8")
LOOP, HUGGING_FACE, LIGHTNING, KERAS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    for name in reporter.RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(reporter.ADDRESS_VARIABLE, f"unix:{tmp_path}/agent.sock")
    with serving(UnixServer(str(tmp_path / "agent.sock"), Handler)) as found:
        yield found


def run(example: str, **names: Any) -> dict[str, Any]:
    """The example, as it stands, with the names that it does not bring itself."""
    exec(compile(example, "docs/TRAINING.md", "exec"), names)
    return names


def module(monkeypatch: pytest.MonkeyPatch, path: str, **names: object) -> None:
    """A module of a framework that is not installed, with what an example imports from it."""
    parts = path.split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        if depth > 1:
            setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], sys.modules[name])
    vars(sys.modules[path]).update(names)


def phases(agent: Agent) -> list[str]:
    """The phases in their order."""
    return [phase for phase, _ in groupby(body["phase"] for body in agent.bodies if "phase" in body)]


def scalars(agent: Agent) -> dict[str, float]:
    return {tag: value for body in agent.bodies for tag, value in body.get("scalars", {}).items()}


def test_a_loop_of_ones_own(agent: Agent) -> None:
    saved: list[int] = []
    run(LOOP, train_step=lambda step: (5.0 / step, step * 1_000), save_checkpoint=saved.append)
    assert saved == [50, 100]
    assert phases(agent) == ["checkpoint", "train", "checkpoint", "train"]
    assert scalars(agent) == {"train/aux_loss": 0.01, "loss": 0.05}
    assert agent.bodies[-1]["run"] == "llama-7b"
    assert max(body.get("tokens", 0) for body in agent.bodies) == 100_000


def test_hugging_face_trainer(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks of transformers.TrainerCallback; `Trainer._maybe_log_save_evaluate` logs, evaluates, then saves.

    Before each of these hooks the handler takes back the request that it answers (`CallbackHandler`).
    """

    class TrainerCallback:
        pass

    module(monkeypatch, "transformers", TrainerCallback=TrainerCallback)
    example = run(HUGGING_FACE)["ClusterwattCallback"]
    assert issubclass(example, TrainerCallback)
    callback: Any = example("llama-7b", precision="bf16")
    args = SimpleNamespace()
    state = SimpleNamespace(global_step=0, num_input_tokens_seen=0)
    control = SimpleNamespace(should_log=False, should_evaluate=False, should_save=False)
    also = {"model": object(), "train_dataloader": object()}
    callback.on_train_begin(args, state, control, **also)
    for step in range(1, 5):
        state.global_step, state.num_input_tokens_seen = step, step * 4_096
        control.should_log, control.should_evaluate = True, step == 2
        control.should_save = step in (2, 4)
        callback.on_step_end(args, state, control, **also)
        control.should_log = False
        logs = {"loss": 2.5 - step / 10, "grad_norm": 1.5, "learning_rate": 1e-4, "epoch": 0.1}
        callback.on_log(args, state, control, logs=logs, **also)
        if control.should_evaluate:
            callback.on_prediction_step(args, state, control, **also)
            callback.on_log(args, state, control, logs={"eval_loss": 2.25, "epoch": 0.1}, **also)
            control.should_evaluate = False
            callback.on_evaluate(args, state, control, metrics={"eval_loss": 2.25}, **also)
        if control.should_save:
            control.should_save = False
            callback.on_save(args, state, control, **also)
    callback.on_train_end(args, state, control, **also)
    assert phases(agent) == ["train", "eval", "checkpoint", "train", "checkpoint", "train"]
    assert scalars(agent)["loss"] == pytest.approx(2.1)
    assert scalars(agent)["eval_loss"] == 2.25
    last = [body for body in agent.bodies if "tokens" in body][-1]
    assert (last["step"], last["tokens"], last["precision"]) == (4, 16_384, "bf16")


def test_pytorch_lightning(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks of lightning.pytorch.callbacks.Callback; `on_save_checkpoint` comes before the file is there."""

    class Callback:
        pass

    module(monkeypatch, "lightning.pytorch.callbacks", Callback=Callback)
    example = run(LIGHTNING)["ClusterwattCallback"]
    assert issubclass(example, Callback)
    callback: Any = example("llama-7b")
    trainer = SimpleNamespace(global_step=0, log_every_n_steps=2, callback_metrics={})
    model: object = SimpleNamespace()
    callback.on_train_start(trainer, model)
    for number in range(4):
        callback.on_train_batch_start(trainer, model, object(), number)
        trainer.global_step += 1
        trainer.callback_metrics = {"train_loss": 4.0 - number}
        callback.on_train_batch_end(trainer, model, {"loss": 1.0}, object(), number)
        if number == 1:
            callback.on_validation_start(trainer, model)
            trainer.callback_metrics = {"train_loss": 3.0, "val_loss": 2.75}
            callback.on_validation_end(trainer, model)
            callback.on_save_checkpoint(trainer, model, {"state_dict": {}})
    callback.on_train_end(trainer, model)
    assert phases(agent) == ["train", "eval", "train", "checkpoint", "train"]
    assert scalars(agent) == {"train_loss": 1.0, "val_loss": 2.75}
    assert max(body.get("step", 0) for body in agent.bodies) == 4


def test_keras(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks of keras.callbacks.Callback, which fit() calls with numbers or None in `logs`."""

    class Callback:
        def __init__(self) -> None:
            self.params = None

    module(monkeypatch, "keras.callbacks", Callback=Callback)
    callback = run(KERAS)["ClusterwattCallback"]("llama-7b")
    callback.on_train_begin()
    for batch in range(3):
        callback.on_train_batch_end(batch, logs={"loss": 3.0 - batch, "accuracy": 0.25})
    callback.on_test_begin()
    callback.on_test_end(logs={"loss": 0.75, "accuracy": 0.5})
    callback.on_train_batch_end(0, logs=None)
    callback.on_train_end(logs={"loss": 1.0})
    assert phases(agent) == ["train", "eval", "train"]
    assert scalars(agent) == {"loss": 1.0, "accuracy": 0.25, "val_loss": 0.75, "val_accuracy": 0.5}
    assert max(body.get("step", 0) for body in agent.bodies) == 4


def test_the_settings_load(tmp_path: Path) -> None:
    path = tmp_path / "clusterwatt.yaml"
    settings = [
        text for text in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL) if "training:" in text[:10]
    ]
    assert len(settings) == 3
    for text in settings:
        path.write_text(text)
        load(path, {}, [])
    models = load(path, {}, []).config.training.models
    assert set(models) == {"llama-7b"}
    model = models["llama-7b"]
    flops = flops_per_token(model.parameters, model.layers, model.hidden_size, model.sequence_length)
    assert flops == pytest.approx(4.844e10, rel=1e-4)


def test_the_pods_part_is_yaml() -> None:
    (text,) = (text for text in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL) if "volumes" in text)
    tree = yaml.safe_load(text)
    folder = tree["volumes"][0]["hostPath"]["path"]
    assert tree["volumeMounts"][0]["mountPath"] == folder
    assert reporter.DEFAULT_ADDRESS.startswith(f"unix:{folder}/")
    assert f"socket: {reporter.DEFAULT_ADDRESS.removeprefix('unix:')}" in TEXT


def test_the_report_of_the_command_line_is_one() -> None:
    body = re.search(r"--json '(.*)'", TEXT)
    assert body is not None
    assert parse(body[1].encode()).scalars == {"loss": 2.31}


def test_all_keys_phases_and_answers_are_there() -> None:
    assert all(f"`{key}`" in TEXT for key in KEYS)
    assert all(phase in TEXT for phase in PHASES)
    assert all(f"`{missing}`" in TEXT for missing in REMEDIES)


def test_every_family_that_is_named_exists() -> None:
    known = {metric.name for metric in (*METRICS, *OF_RUNS)}
    named = set(re.findall(r"(?<![\w.])(?:clusterwatt_)?(training_[a-z_]+)", TEXT))
    assert named
    assert named <= known


def test_what_is_shown_as_json_is_json() -> None:
    assert json.loads(re.search(r"--json '(.*)'", TEXT)[1])  # type: ignore[index]  # it is there, as above


def test_the_queries_are_promql(promtool: Path, tmp_path: Path) -> None:
    queries = re.findall(r"`([^`]*rate\([^`]*)`", TEXT)
    assert len(queries) == 3
    rules = [{"record": f"a:b{number}", "expr": query} for number, query in enumerate(queries)]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "docs", "rules": rules}]}))
    subprocess.run([promtool, "check", "rules", path], check=True, capture_output=True)
