"""Arithmetic of training: FLOP of a token, and model FLOP utilisation.

Kaplan et al. 2020 (arXiv 2001.08361): a token costs 6 FLOP for each parameter that it passes, 2 forward and 4
backward. PaLM (arXiv 2204.02311, appendix B): attention adds 12 x layers x width x sequence length, and
utilisation is what the model needs over what the GPUs could do at most. Work that is done twice, as with
activation checkpointing, is no work of the model.
"""

from __future__ import annotations

PER_PARAMETER = 6.0
PER_ATTENTION = 12.0


def flops_per_token(
    parameters: float, layers: int = 0, hidden_size: int = 0, sequence_length: int = 0
) -> float:
    """FLOP that training needs for a token; `parameters`: of a mixture of experts, those that are active."""
    return PER_PARAMETER * parameters + PER_ATTENTION * layers * hidden_size * sequence_length


def mfu_ratio(tokens_per_second: float, flops: float, peak_flops: float) -> float:
    """Model FLOP utilisation. `flops`: of a token; `peak_flops`: of all GPUs, dense, in FLOP per second.

    Over 1 it is wrong, and it is left so: a number that was cut to 1 would look right.
    """
    return tokens_per_second * flops / peak_flops
