"""What a training run can say of itself: the quantities to which tags and reports are mapped."""

from __future__ import annotations

from clusterwatt.config.model import Quantity

# Split of a quantity that exists for training and for evaluation.
LOSSES: dict[str, Quantity] = {"train": "train_loss", "eval": "eval_loss"}
ACCURACIES: dict[str, Quantity] = {"train": "train_accuracy", "eval": "eval_accuracy"}

# Quantities whose values that are not finite are counted, by the label under which they are.
NONFINITE: dict[Quantity, str] = {"train_loss": "loss", "eval_loss": "loss", "gradient_norm": "gradient_norm"}
