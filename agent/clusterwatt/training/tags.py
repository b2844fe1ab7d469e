"""Which quantity a tag of TensorBoard stands for, in the words of the common frameworks.

Where each states its tags:

- PyTorch Lightning: names that the user gives in `self.log`; `lr-<optimizer>[/pg<n>]` of LearningRateMonitor,
  `grad_2.0_norm_total` of `grad_norm`, `train/[device/]<rate>` of ThroughputMonitor
- Hugging Face Trainer: `rewrite_logs` of transformers/integrations puts `train/` or `eval/` before the names
- Megatron-LM: `training_log` in megatron/training/training.py. Most tags are there twice; the steps of those
  that end in `vs samples` are samples, and they are left out
- NeMo: the names in its Lightning modules and callbacks
- DeepSpeed: deepspeed.readthedocs.io/en/latest/monitor.html; steps are samples
- Keras: keras/src/callbacks/tensorboard.py; folders `train` and `validation`; steps of `epoch_` are epochs
- torchtitan: torchtitan/components/metrics.py; its throughput is that of one GPU
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import msgspec

from clusterwatt.config.model import Quantity
from clusterwatt.config.model import Training as Settings

HUGGINGFACE, LIGHTNING, MEGATRON, NEMO = "huggingface", "lightning", "megatron", "nemo"
DEEPSPEED, KERAS, TORCHTITAN = "deepspeed", "keras", "torchtitan"
MAX_KNOWN = 8192  # tags of all runs whose meaning is remembered
EVALUATION: Mapping[Quantity, Quantity] = {"train_loss": "eval_loss", "train_accuracy": "eval_accuracy"}


class Meaning(msgspec.Struct, frozen=True):
    """What a tag stands for.

    `framework`: who names it so; empty for a name that many use. `counts_iterations`: whether the steps of
    its events do. `inverse`: its value is a rate, the quantity a duration.
    """

    quantity: Quantity
    framework: str = ""
    counts_iterations: bool = True
    inverse: bool = False

    def of(self, value: float) -> float:
        """The quantity, for a value of the tag; NaN where a rate is no rate."""
        if not self.inverse:
            return value
        return 1.0 / value if math.isfinite(value) and value > 0 else math.nan


def _table() -> Iterator[tuple[str, Meaning]]:
    for framework, quantities in NAMES.items():
        for quantity, names in quantities.items():
            for name in names:
                by_step = framework != DEEPSPEED and not name.startswith("epoch_")
                inverse = name.endswith("steps_per_second")
                yield name, Meaning(quantity, framework, counts_iterations=by_step, inverse=inverse)


NAMES: Mapping[str, Mapping[Quantity, tuple[str, ...]]] = {
    "": {
        "train_loss": ("loss", "train_loss", "train/loss", "training_loss", "loss/train", "Loss/train"),
        "eval_loss": (
            "val_loss",
            "val/loss",
            "valid/loss",
            "validation/loss",
            "validation_loss",
            "eval_loss",
            "eval/loss",
            "loss/val",
            "Loss/val",
            "Loss/validation",
            "Loss/test",
        ),
        "train_accuracy": (
            "accuracy",
            "acc",
            "train_acc",
            "train_accuracy",
            "train/acc",
            "train/accuracy",
            "Accuracy/train",
        ),
        "eval_accuracy": (
            "val_acc",
            "val_accuracy",
            "val/acc",
            "val/accuracy",
            "validation/accuracy",
            "eval_accuracy",
            "eval/accuracy",
            "Accuracy/val",
            "Accuracy/test",
        ),
        "learning_rate": ("lr", "learning_rate", "train/lr"),
        "gradient_norm": ("grad_norm", "gradient_norm", "train/grad_norm"),
        "loss_scale": ("loss_scale", "train/loss_scale"),
        "step": ("global_step", "iteration", "train/global_step", "trainer/global_step"),
        "step_duration_seconds": ("step_time", "train/step_time"),
        "tokens_total": ("tokens", "tokens_total", "consumed_tokens", "train/tokens"),
        "tokens_per_second": ("tokens_per_second", "tokens_per_sec", "train/tokens_per_second"),
        "samples_per_second": ("samples_per_second", "samples_per_sec", "train/samples_per_second"),
    },
    LIGHTNING: {
        "train_loss": ("train_loss_step",),
        "eval_loss": ("val_loss_epoch",),
        "train_accuracy": ("train_acc_step",),
        "eval_accuracy": ("val_acc_epoch",),
        "gradient_norm": ("grad_2.0_norm_total", "grad_2_norm_total"),
        "samples_per_second": ("train/samples_per_sec",),
        "tokens_per_second": ("train/items_per_sec",),
        "tokens_per_second_per_gpu": ("train/device/items_per_sec",),
    },
    HUGGINGFACE: {
        "learning_rate": ("train/learning_rate",),
        "tokens_total": ("train/num_input_tokens_seen",),
        "tokens_per_second": ("train/train_tokens_per_second",),
        "samples_per_second": ("train/train_samples_per_second",),
    },
    MEGATRON: {
        "train_loss": ("lm loss",),
        "eval_loss": ("lm loss validation",),
        "learning_rate": ("learning-rate",),
        "gradient_norm": ("grad-norm",),
        "loss_scale": ("loss-scale",),
        "step_duration_seconds": ("iteration-time",),
    },
    NEMO: {
        "train_loss": ("reduced_train_loss",),
        "step_duration_seconds": ("train_step_timing in s",),
    },
    DEEPSPEED: {
        "train_loss": ("Train/Samples/train_loss",),
        "learning_rate": ("Train/Samples/lr",),
        "loss_scale": ("Train/Samples/loss_scale",),
    },
    KERAS: {
        "train_loss": ("epoch_loss", "batch_loss"),
        "eval_loss": ("evaluation_loss_vs_iterations",),
        "train_accuracy": ("epoch_accuracy", "batch_accuracy"),
        "eval_accuracy": ("evaluation_accuracy_vs_iterations",),
        "learning_rate": ("epoch_learning_rate", "epoch_lr"),
        "step_duration_seconds": ("batch_steps_per_second", "epoch_steps_per_second"),
    },
    TORCHTITAN: {
        "train_loss": ("loss_metrics/global_avg_loss",),
        "eval_loss": ("validation_metrics/loss",),
        "step_duration_seconds": ("time_metrics/end_to_end(s)",),
        "tokens_total": ("n_tokens_seen", "ntokens_seen"),
        "tokens_per_second_per_gpu": ("throughput(tps)",),
    },
}
MEANINGS: Mapping[str, Meaning] = dict(_table())
LEARNING_RATE = re.compile(r"lr-\w+(?:/pg1)?")  # of the first group of parameters
# Tags that tell a framework and are no quantity.
MARKS: Mapping[str, str] = {
    "epoch": LIGHTNING,
    "hp_metric": LIGHTNING,
    "train/epoch": HUGGINGFACE,
    "train/total_flos": HUGGINGFACE,
    "lm loss vs samples": MEGATRON,
    "consumed_samples": NEMO,
    "Train/Samples/elapsed_time_ms_forward": DEEPSPEED,
    "loss_metrics/global_max_loss": TORCHTITAN,
}
ON_TOP_OF = {LIGHTNING: 0}  # what other frameworks are built with: it counts where nothing else is seen


class Tags:
    """What tags mean under the settings, which come first."""

    def __init__(self, settings: Settings) -> None:
        self._own: dict[str, Meaning] = {tag: Meaning(quantity) for tag, quantity in settings.tags.items()}
        self._scalars = [re.compile(pattern) for pattern in settings.scalars if pattern]
        self._known: dict[str, tuple[Meaning | None, bool, str]] = {}

    def meaning(self, tag: str, *, evaluation: bool = False) -> Meaning | None:
        """The quantity that a tag stands for; `evaluation`: in a folder where a framework logs that."""
        meaning = self._look_up(tag)[0]
        if not evaluation or meaning is None:
            return meaning
        quantity = EVALUATION.get(meaning.quantity, meaning.quantity)
        # What is logged of an evaluation is not how the training goes: its rates, for instance.
        return msgspec.structs.replace(meaning, quantity=quantity) if quantity.startswith("eval_") else None

    def exported(self, tag: str) -> bool:
        """Whether a tag is exported under its own name."""
        return self._look_up(tag)[1]

    def framework(self, tag: str) -> str:
        """The framework that a tag tells of; empty when it tells of none."""
        return self._look_up(tag)[2]

    def wanted(self, tag: str) -> bool:
        """Whether a tag is of any use."""
        meaning, exported, _ = self._look_up(tag)
        return meaning is not None or exported

    def _look_up(self, tag: str) -> tuple[Meaning | None, bool, str]:
        known = self._known.get(tag)
        if known is None:
            meaning = self._own.get(tag) or MEANINGS.get(tag)
            if meaning is None and LEARNING_RATE.fullmatch(tag):
                meaning = Meaning("learning_rate", LIGHTNING)
            exported = any(pattern.fullmatch(tag) for pattern in self._scalars)
            framework = MARKS.get(tag, "") if meaning is None else meaning.framework
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[tag] = (meaning, exported, framework)
        return known


def better(framework: str, known: str) -> str:
    """Which of two frameworks that a run's tags tell of it is."""
    if not framework or not known:
        return framework or known
    return framework if ON_TOP_OF.get(framework, 1) > ON_TOP_OF.get(known, 1) else known
