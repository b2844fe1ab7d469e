from __future__ import annotations

import pytest

from clusterwatt.accelerators import peak_flops
from clusterwatt.meters.training import flops_per_token, mfu_ratio


def test_the_worked_example_of_a_7b_model_on_eight_h100() -> None:
    """8 x H100 and 90 000 tokens/s, with 7e9 parameters, 32 layers, width and length 4096."""
    flops = flops_per_token(7e9, layers=32, hidden_size=4096, sequence_length=4096)
    assert flops == pytest.approx(4.844e10, rel=1e-4)
    assert flops - flops_per_token(7e9) == pytest.approx(6.44e9, rel=1e-3)
    peak = 8 * peak_flops("NVIDIA H100 80GB HBM3")["bf16"]
    assert peak == pytest.approx(8 * 9.89e14, rel=1e-3)
    assert mfu_ratio(90_000, flops, peak) == pytest.approx(0.551, abs=5e-4)


def test_what_cannot_be_is_not_cut_to_what_can() -> None:
    assert mfu_ratio(100.0, 1e10, 5e11) == 2.0


def test_a_mixture_of_experts_costs_its_active_parameters() -> None:
    assert flops_per_token(1.3e10) == 7.8e10
