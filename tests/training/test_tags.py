"""Tags as the frameworks' own code writes them, and what they mean."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from clusterwatt.config.model import Training
from clusterwatt.training.tags import Tags, better

# (framework, tag, quantity, its steps are iterations), after each framework's documentation or code.
KNOWN = [
    ("huggingface", "train/learning_rate", "learning_rate", True),
    ("huggingface", "train/num_input_tokens_seen", "tokens_total", True),
    ("", "train/loss", "train_loss", True),
    ("", "eval/loss", "eval_loss", True),
    ("", "eval/accuracy", "eval_accuracy", True),
    ("", "train/grad_norm", "gradient_norm", True),
    ("lightning", "train_loss_step", "train_loss", True),
    ("lightning", "val_loss_epoch", "eval_loss", True),
    ("", "val_loss", "eval_loss", True),
    ("", "val_acc", "eval_accuracy", True),
    ("lightning", "lr-AdamW", "learning_rate", True),
    ("lightning", "lr-AdamW/pg1", "learning_rate", True),
    ("lightning", "grad_2.0_norm_total", "gradient_norm", True),
    ("lightning", "train/items_per_sec", "tokens_per_second", True),
    ("lightning", "train/device/items_per_sec", "tokens_per_second_per_gpu", True),
    ("megatron", "lm loss", "train_loss", True),
    ("megatron", "lm loss validation", "eval_loss", True),
    ("megatron", "learning-rate", "learning_rate", True),
    ("megatron", "grad-norm", "gradient_norm", True),
    ("megatron", "iteration-time", "step_duration_seconds", True),
    ("megatron", "loss-scale", "loss_scale", True),
    ("nemo", "reduced_train_loss", "train_loss", True),
    ("nemo", "train_step_timing in s", "step_duration_seconds", True),
    ("", "global_step", "step", True),
    ("deepspeed", "Train/Samples/train_loss", "train_loss", False),
    ("deepspeed", "Train/Samples/lr", "learning_rate", False),
    ("deepspeed", "Train/Samples/loss_scale", "loss_scale", False),
    ("keras", "epoch_loss", "train_loss", False),
    ("keras", "epoch_accuracy", "train_accuracy", False),
    ("keras", "epoch_learning_rate", "learning_rate", False),
    ("keras", "batch_loss", "train_loss", True),
    ("keras", "evaluation_loss_vs_iterations", "eval_loss", True),
    ("torchtitan", "loss_metrics/global_avg_loss", "train_loss", True),
    ("torchtitan", "validation_metrics/loss", "eval_loss", True),
    ("", "grad_norm", "gradient_norm", True),
    ("", "lr", "learning_rate", True),
    ("torchtitan", "n_tokens_seen", "tokens_total", True),
    ("torchtitan", "throughput(tps)", "tokens_per_second_per_gpu", True),
    ("torchtitan", "time_metrics/end_to_end(s)", "step_duration_seconds", True),
]


def tags(**settings: Any) -> Tags:
    return Tags(msgspec.convert(settings, Training))


@pytest.mark.parametrize(("framework", "tag", "quantity", "iterations"), KNOWN)
def test_tags_of_the_common_frameworks_are_known(
    framework: str, tag: str, quantity: str, iterations: bool
) -> None:
    meaning = tags().meaning(tag)
    assert meaning is not None
    assert (meaning.framework, meaning.quantity, meaning.counts_iterations) == (
        framework,
        quantity,
        iterations,
    )


@pytest.mark.parametrize(
    "tag",
    [
        "lm loss vs samples",
        "grad-norm vs samples",
        "learning-rate vs samples",
        "lm loss validation ppl",
        "lr-AdamW/pg2",
        "lr-SGD-momentum",
        "eval/samples_per_second",
        "loss_metrics/global_max_loss",
        "mfu(%)",
        "epoch",
        "trainloss",
        "TRAIN/LOSS",
    ],
)
def test_what_only_looks_like_it_is_not_taken(tag: str) -> None:
    assert tags().meaning(tag) is None
    assert not tags().wanted(tag)


def test_in_a_folder_for_evaluation_losses_are_of_evaluation_and_rates_are_nothing() -> None:
    known = tags()
    for tag, quantity in (("epoch_loss", "eval_loss"), ("accuracy", "eval_accuracy")):
        meaning = known.meaning(tag, evaluation=True)
        assert meaning is not None
        assert meaning.quantity == quantity
    assert known.meaning("epoch_steps_per_second", evaluation=True) is None
    assert known.meaning("epoch_learning_rate", evaluation=True) is None


def test_a_rate_of_steps_is_the_time_of_a_step() -> None:
    meaning = tags().meaning("batch_steps_per_second")
    assert meaning is not None
    assert meaning.of(4.0) == 0.25
    for broken in (0.0, -1.0, math.nan, math.inf):
        assert math.isnan(meaning.of(broken))


def test_own_tags_come_first() -> None:
    known = tags(tags={"train/loss": "eval_loss", "mine": "tokens_total"}, scalars=["moe/.*", "train/loss"])
    own, mine = known.meaning("train/loss"), known.meaning("mine")
    assert own is not None
    assert mine is not None
    assert (own.quantity, mine.quantity) == ("eval_loss", "tokens_total")
    assert known.exported("train/loss")
    assert known.exported("moe/balance")
    assert not known.exported("xmoe/balance")  # the whole tag has to fit
    assert known.wanted("moe/balance")


def test_a_framework_built_on_another_is_told_by_its_own_tags() -> None:
    known = tags()
    for order in (("epoch", "reduced_train_loss"), ("reduced_train_loss", "epoch")):
        framework = ""
        for tag in order:
            framework = better(known.framework(tag), framework)
        assert framework == "nemo"
    assert better(known.framework("hp_metric"), "") == "lightning"
    assert known.framework("loss") == ""


def test_what_is_remembered_of_tags_is_bounded() -> None:
    known = tags()
    for number in range(20_000):
        known.wanted(f"tag{number}")
    assert known.wanted("loss")
    assert not known.wanted("tag3")
