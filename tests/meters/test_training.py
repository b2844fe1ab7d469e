from __future__ import annotations

import pytest

from clusterwatt.accelerators import peak_flops
from clusterwatt.meters.training import (
    flops_per_token,
    joules_per_token,
    mfu_ratio,
    per_million_tokens,
    tokens_per_joule,
)


def test_the_worked_example_of_a_7b_model_on_eight_h100() -> None:
    """8 x H100 at 650 W each and 90 000 tokens/s, with 7e9 parameters, 32 layers, width and length 4096."""
    flops = flops_per_token(7e9, layers=32, hidden_size=4096, sequence_length=4096)
    assert flops == pytest.approx(4.844e10, rel=1e-4)
    assert flops - flops_per_token(7e9) == pytest.approx(6.44e9, rel=1e-3)
    peak = 8 * peak_flops("NVIDIA H100 80GB HBM3")["bf16"]
    assert peak == pytest.approx(8 * 9.89e14, rel=1e-3)
    assert mfu_ratio(90_000, flops, peak) == pytest.approx(0.551, abs=5e-4)
    joules = joules_per_token(8 * 650.0, 90_000.0)
    assert joules == pytest.approx(0.0578, abs=5e-5)
    assert joules is not None
    assert joules * 1e6 / 3600 == pytest.approx(16.0, abs=0.1)  # Wh per million tokens


def test_what_cannot_be_is_not_cut_to_what_can() -> None:
    assert mfu_ratio(100.0, 1e10, 5e11) == 2.0


def test_a_mixture_of_experts_costs_its_active_parameters() -> None:
    assert flops_per_token(1.3e10) == 7.8e10


def test_an_interval_without_tokens_has_no_price_of_them() -> None:
    assert joules_per_token(5_000.0, 0.0) is None
    assert per_million_tokens(3.0, 0.0) is None
    assert per_million_tokens(None, 5.0) is None
    assert tokens_per_joule(0.0, 5.0) is None


def test_by_the_million() -> None:
    assert tokens_per_joule(50.0, 100.0) == 2.0
    assert per_million_tokens(3.0, 2e6) == 1.5
