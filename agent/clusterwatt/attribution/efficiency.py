"""Model FLOP utilisation of a run, or the one thing that it is missing.

The denominator is what all GPUs of the run can do: known here only when all of them are on this node. For a
run on several nodes the rule `run:clusterwatt_mfu:ratio` sums over them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from clusterwatt.accelerators import peak_flops
from clusterwatt.config.model import TrainingModel as Settings
from clusterwatt.meters.training import flops_per_token, mfu_ratio
from clusterwatt.readings.training import TrainingModel


class Model(msgspec.Struct, frozen=True):
    """What is known of a run's model; None and empty where it is not. `gpus`: of the whole run."""

    flops_per_token: float | None = None
    precision: str = ""
    gpus: float | None = None


class HeldGpus(msgspec.Struct, frozen=True):
    """GPUs and MIG instances of a job on this node.

    `shares`: of each, the name of its model and the share of the whole board that the job holds. `nodes`: on
    how many nodes the job runs, None where nobody says.
    """

    shares: tuple[tuple[str, float], ...] = ()
    nodes: int | None = None


# What is missing, and what to do about it.
REMEDIES: Mapping[str, str] = {
    "flops_per_token": "FLOP per token is not known: state the model in training.models, or report it",
    "token_rate": "it logs neither tokens nor a rate of them",
    "job": "its job is not known",
    "gpus": "its job holds no GPU here",
    "all_gpus": "its job may have GPUs on other nodes: state `gpus`, or use run:clusterwatt_mfu:ratio",
    "precision": "its precision is not known: state it in training.models, or report it",
    "peak": "nobody states the peak of this model of GPU at this precision",
}


class Models:
    """The models of the configuration, by the names of runs."""

    def __init__(self, settings: Mapping[str, Settings]) -> None:
        self._models = [(re.compile(model.runs), _model(model)) for model in settings.values()]

    def of(self, run: str, reported: TrainingModel | None) -> Model:
        """What is known of a run's model. What the configuration states stands before what is reported."""
        configured = next((model for runs, model in self._models if runs.fullmatch(run)), Model())
        if reported is None:
            return configured
        flops, gpus = configured.flops_per_token, configured.gpus
        return Model(
            flops_per_token=reported.flops_per_token if flops is None else flops,
            precision=configured.precision or reported.precision,
            gpus=reported.gpus if gpus is None else gpus,
        )


def utilisation(
    model: Model, tokens_per_second: float | None, job_id: str, held: HeldGpus
) -> tuple[float | None, str]:
    """Model FLOP utilisation and nothing, or None and what is missing: a key of `REMEDIES`."""
    missing = _missing(model, tokens_per_second, job_id, held)
    if missing:
        return None, missing
    assert model.flops_per_token is not None
    assert tokens_per_second is not None
    peak = peak_of(held.shares, model.precision)
    if peak is None:
        return None, "peak"
    return mfu_ratio(tokens_per_second, model.flops_per_token, peak), ""


def peak_of(shares: Iterable[tuple[str, float]], precision: str) -> float | None:
    """Dense peak of GPUs together, in FLOP per second; None when that of any of them is not known."""
    total = 0.0
    for name, share in shares:
        peak = peak_flops(name).get(precision)
        if peak is None:
            return None
        total += share * peak
    return total or None


def _missing(model: Model, tokens_per_second: float | None, job_id: str, held: HeldGpus) -> str:
    checks = {
        "flops_per_token": model.flops_per_token is None,
        "token_rate": tokens_per_second is None,
        "job": not job_id,
        "gpus": not held.shares,
        "all_gpus": not _all_here(model, held),
        "precision": not model.precision,
    }
    return next((missing for missing, is_missing in checks.items() if is_missing), "")


def _all_here(model: Model, held: HeldGpus) -> bool:
    """Whether the job's GPUs on this node are all that the run has."""
    if model.gpus is not None:
        return len(held.shares) == model.gpus
    return held.nodes == 1


def _model(settings: Settings) -> Model:
    flops = settings.flops_per_token or flops_per_token(
        settings.parameters, settings.layers, settings.hidden_size, settings.sequence_length
    )
    stated = bool(settings.flops_per_token or settings.parameters)
    return Model(flops if stated else None, settings.precision, float(settings.gpus) or None)
