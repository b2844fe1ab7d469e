from __future__ import annotations

import pytest

from clusterwatt.attribution.efficiency import REMEDIES, HeldGpus, Model, Models, utilisation
from clusterwatt.config.model import TrainingModel as Settings
from clusterwatt.readings.training import TrainingModel

H100 = "NVIDIA H100 80GB HBM3"
EIGHT = HeldGpus(((H100, 1.0),) * 8)
LLAMA = Model(4.844e10, "bf16", 8.0)


def test_eight_gpus_of_eight() -> None:
    ratio, missing = utilisation(LLAMA, 90_000.0, "slurm/1", EIGHT)
    assert ratio == pytest.approx(0.551, abs=5e-4)
    assert missing == ""


def test_fp8_halves_it() -> None:
    model = Model(4.844e10, "fp8", 8.0)
    assert utilisation(model, 90_000.0, "slurm/1", EIGHT)[0] == pytest.approx(0.2755, abs=5e-4)


def test_a_job_on_one_node_has_all_its_gpus_here() -> None:
    model = Model(4.844e10, "bf16")
    held = HeldGpus(EIGHT.shares, nodes=1)
    assert utilisation(model, 90_000.0, "slurm/1", held)[0] == pytest.approx(0.551, abs=5e-4)


def test_over_one_is_told_as_it_is() -> None:
    assert utilisation(LLAMA, 200_000.0, "slurm/1", EIGHT)[0] == pytest.approx(1.22, abs=0.01)


@pytest.mark.parametrize(
    ("model", "rate", "job", "held", "missing"),
    [
        (Model(None, "bf16", 8.0), 9e4, "slurm/1", EIGHT, "flops_per_token"),
        (LLAMA, None, "slurm/1", EIGHT, "token_rate"),
        (LLAMA, 9e4, "", EIGHT, "job"),
        (LLAMA, 9e4, "slurm/1", HeldGpus(), "gpus"),
        (LLAMA, 9e4, "slurm/1", HeldGpus(EIGHT.shares[:4], nodes=2), "all_gpus"),
        (Model(4.8e10, "bf16"), 9e4, "slurm/1", HeldGpus(EIGHT.shares, nodes=2), "all_gpus"),
        (Model(4.8e10, "bf16"), 9e4, "k8s/1", EIGHT, "all_gpus"),
        (Model(4.8e10, "bf16", 16.0), 9e4, "slurm/1", HeldGpus(EIGHT.shares, nodes=1), "all_gpus"),
        (Model(4.8e10, "", 8.0), 9e4, "slurm/1", EIGHT, "precision"),
        (LLAMA, 9e4, "slurm/1", HeldGpus(((H100, 1.0),) * 7 + (("NVIDIA Q9000", 1.0),)), "peak"),
        (Model(4.8e10, "fp4", 8.0), 9e4, "slurm/1", EIGHT, "peak"),
    ],
)
def test_without_it_there_is_none(
    model: Model, rate: float | None, job: str, held: HeldGpus, missing: str
) -> None:
    assert utilisation(model, rate, job, held) == (None, missing)
    assert REMEDIES[missing]


def test_slices_of_a_board_have_their_share_of_its_peak() -> None:
    model = Model(1e10, "bf16", 1.0)
    whole = utilisation(model, 1_000.0, "k8s/1", HeldGpus(((H100, 1.0),)))[0]
    part = utilisation(model, 1_000.0, "k8s/1", HeldGpus(((H100, 3 / 7),)))[0]
    assert whole is not None
    assert part == pytest.approx(whole * 7 / 3)


def test_the_first_model_that_fits_is_that_of_a_run() -> None:
    models = Models(
        {
            "small": Settings(runs="llama/1b-.*", parameters=1e9, precision="bf16"),
            "any": Settings(parameters=7e9, layers=32, hidden_size=4096, sequence_length=4096, gpus=8),
        }
    )
    assert models.of("llama/1b-x", None) == Model(6e9, "bf16")
    flops = models.of("xllama/1b-x", None).flops_per_token
    assert flops == pytest.approx(4.844e10, rel=1e-4)
    assert models.of("other", None).gpus == 8.0


def test_what_is_configured_stands_before_what_is_reported() -> None:
    models = Models({"a": Settings(runs="a", flops_per_token=5e10), "b": Settings(runs="b", precision="fp8")})
    reported = TrainingModel("a", "slurm/1", 4e10, "bf16", 8.0)
    assert models.of("a", reported) == Model(5e10, "bf16", 8.0)
    assert models.of("b", reported) == Model(4e10, "fp8", 8.0)
    assert models.of("c", reported) == Model(4e10, "bf16", 8.0)
    assert models.of("c", None) == Model()
